//! The names of a schema's relations. Tables, views and indexes share one namespace. A PRIMARY KEY
//! or UNIQUE constraint's index has the constraint's name.

use crate::parse::names;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::{Catalog, TableDef};

/// Bytes of the longest generated name.
const CHOSEN_MAX: usize = names::MAX_NAME_BYTES;

/// Whether `schema` has a relation `name`.
pub fn is_taken(catalog: &Catalog, schema: &str, name: &str) -> bool {
    let is_in = |table: &TableDef| table.name == name || has_index(table, name);
    let mut tables = catalog.tables.values().filter(|t| t.schema == schema);
    catalog.view(schema, name).is_some() || tables.any(|table| is_in(table))
}

/// Whether `table` has an index `name`.
pub fn has_index(table: &TableDef, name: &str) -> bool {
    table.keys.iter().any(|key| key.name == name)
        || table.indexes.iter().any(|index| index.name == name)
}

/// 42P07 if `schema` has a relation `name`.
pub fn require_free(catalog: &Catalog, schema: &str, name: &str) -> Result<()> {
    match is_taken(catalog, schema, name) {
        true => Err(taken(name)),
        false => Ok(()),
    }
}

/// The error for a name that is taken.
pub fn taken(name: &str) -> Error {
    Error::invalid(
        SqlState::DUPLICATE_TABLE,
        format!("relation \"{name}\" already exists"),
    )
}

/// `table_column_label`, cut to the longest length, with the first number that makes it free.
pub fn choose(
    table: &str,
    columns: &[String],
    label: &str,
    taken: &dyn Fn(&str) -> bool,
) -> String {
    let columns = columns.join("_");
    (0u32..)
        .map(|n| match n {
            0 => made(table, &columns, label),
            n => made(table, &columns, &format!("{label}{n}")),
        })
        .find(|name| !taken(name))
        .expect("numbers do not end")
}

/// The parts joined by underlines. If that is too long, the longer of the first two parts is cut.
fn made(table: &str, columns: &str, label: &str) -> String {
    let (mut table, mut columns) = (table, columns);
    let underlines = if columns.is_empty() { 1 } else { 2 };
    while table.len() + columns.len() + label.len() + underlines > CHOSEN_MAX {
        let longer = if table.len() > columns.len() {
            &mut table
        } else {
            &mut columns
        };
        match longer.char_indices().next_back() {
            Some((last, _)) => *longer = &longer[..last],
            None => break,
        }
    }
    match columns {
        "" => format!("{table}_{label}"),
        columns => format!("{table}_{columns}_{label}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{CHOSEN_MAX, choose};

    #[test]
    fn chosen_names_are_postgresql_s() {
        let columns = ["a".to_string(), "b".to_string()];
        let free = |_: &str| false;
        assert_eq!(choose("t", &columns, "idx", &free), "t_a_b_idx");
        let taken = |name: &str| name == "t_a_b_idx" || name == "t_a_b_idx1";
        assert_eq!(choose("t", &columns, "idx", &taken), "t_a_b_idx2");
        let long = ["c".repeat(CHOSEN_MAX)];
        let chosen = choose("table", &long, "idx", &free);
        assert_eq!(chosen.len(), CHOSEN_MAX);
        assert!(chosen.starts_with("table_ccc") && chosen.ends_with("c_idx"));
    }
}
