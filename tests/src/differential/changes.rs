//! Random statements that change rows.

use super::data::{TABLES, Table};
use super::generator::{Generator, numbered};
use super::scope::{Column, Kind, Scope};

/// The target is `r0` in every statement.
const TARGET: &str = "r0";

impl Generator {
    /// A change of some table, and a query of all that it holds.
    pub(super) fn change(&mut self) -> (String, String) {
        let table = &TABLES[self.rng.below(4) as usize];
        let target = target(table);
        let mut sql = match self.rng.below(8) {
            0 => self.insert_values(table),
            1 => self.insert_query(table, &target),
            2..=4 => self.update(table, &target),
            5 => self.merge_rows(table, &target),
            _ => self.delete(table, &target),
        };
        if !sql.starts_with("MERGE") && self.rng.one_in(3) {
            let kind = self.kind();
            // RETURNING takes no column of the statement's other tables here.
            let value = self.expression(kind, 2, &target.own());
            sql.push_str(&format!(" RETURNING {TARGET}.id, {value}"));
        }
        (sql, format!("SELECT * FROM {}", table.name))
    }

    /// Rows of which some have the key of a row that is there.
    fn insert_values(&mut self, table: &Table) -> String {
        let first = 1 + self.rng.below(12);
        let rows: Vec<String> = (0..1 + self.rng.below(3))
            .map(|i| {
                let others = table.columns[1..].iter();
                let others = others.map(|(_, kind, declared)| match self.rng.one_in(3) {
                    true => self.expression(*kind, 2, &Scope::default()),
                    false => self.value(*kind, declared),
                });
                let key = (first + i * 4).to_string();
                let values: Vec<String> = std::iter::once(key).chain(others).collect();
                format!("({})", values.join(", "))
            })
            .collect();
        let target = format!("INSERT INTO {} AS {TARGET} VALUES", table.name);
        let conflict = match self.rng.below(4) {
            0 => " ON CONFLICT DO NOTHING".to_string(),
            1 | 2 => {
                let (name, kind, _) = self.pick(&table.columns[1..]);
                let mut scope = target_scope(table);
                let excluded = format!("excluded.{name}");
                scope.columns.push(Column {
                    sql: excluded,
                    kind: *kind,
                });
                let value = self.expression(*kind, 2, &scope);
                format!(" ON CONFLICT (id) DO UPDATE SET {name} = {value}")
            }
            _ => String::new(),
        };
        format!("{target} {}{conflict}", rows.join(", "))
    }

    fn insert_query(&mut self, table: &Table, target: &Scope) -> String {
        let columns = &table.columns[1..3];
        let kinds: Vec<Kind> = columns.iter().map(|(_, kind, _)| *kind).collect();
        let query = self.query(&surroundings(target), Some(&kinds));
        let missing = table.columns[3..].iter();
        let missing: Vec<_> = missing
            .filter(|(_, _, declared)| declared.contains("NOT NULL"))
            .collect();
        let mut names: Vec<&str> = columns.iter().map(|(name, _, _)| *name).collect();
        let mut values = vec!["c1".to_string(), "c2".to_string()];
        for (name, kind, declared) in missing {
            names.push(name);
            values.push(self.value(*kind, declared));
        }
        format!(
            "INSERT INTO {} AS {TARGET} (id, {}) \
             SELECT 100 + row_number() OVER (ORDER BY c1, c2), {} FROM ({}) AS new (c1, c2)",
            table.name,
            names.join(", "),
            values.join(", "),
            query.sql
        )
    }

    fn update(&mut self, table: &Table, target: &Scope) -> String {
        let mut scope = target.clone();
        let mut from = String::new();
        if self.rng.one_in(4) {
            let (source, on) = self.one_row_each(table, &mut scope);
            from = format!(" FROM {source} WHERE {on}");
        }
        let mut columns: Vec<usize> =
            vec![1 + self.rng.below(table.columns.len() as u64 - 1) as usize];
        let other = 1 + self.rng.below(table.columns.len() as u64 - 1) as usize;
        if !columns.contains(&other) {
            columns.push(other);
        }
        let assignments: Vec<String> = columns
            .into_iter()
            .map(|i| {
                let (name, kind, _) = &table.columns[i];
                format!("{name} = {}", self.expression(*kind, 2, &scope))
            })
            .collect();
        let filter = self.filter(&from, &scope);
        format!(
            "UPDATE {} AS {TARGET} SET {}{from}{filter}",
            table.name,
            assignments.join(", ")
        )
    }

    fn delete(&mut self, table: &Table, target: &Scope) -> String {
        let mut scope = target.clone();
        let mut using = String::new();
        if self.rng.one_in(4) {
            let (source, on) = self.one_row_each(table, &mut scope);
            using = format!(" USING {source} WHERE {on}");
        }
        let filter = self.filter(&using, &scope);
        format!("DELETE FROM {} AS {TARGET}{using}{filter}", table.name)
    }

    fn merge_rows(&mut self, table: &Table, target: &Scope) -> String {
        let mut scope = target.clone();
        let (source, on) = self.one_row_each(table, &mut scope);
        let (name, kind, _) = &table.columns[1 + self.rng.below(3) as usize];
        let condition = match self.rng.one_in(2) {
            true => format!(" AND {}", self.condition(2, &scope.own())),
            false => String::new(),
        };
        let matched = match self.rng.one_in(3) {
            true => "DELETE".to_string(),
            false => {
                let value = self.expression(*kind, 2, &scope.own());
                format!("UPDATE SET {name} = {value}")
            }
        };
        format!(
            "MERGE INTO {} AS {TARGET} USING {source} ON {on} \
             WHEN MATCHED{condition} THEN {matched}",
            table.name
        )
    }

    /// A source with at most one row for each row of the target, and the condition that pairs them.
    fn one_row_each(&mut self, table: &Table, scope: &mut Scope) -> (String, String) {
        let other = &TABLES[self.rng.below(4) as usize];
        let (name, kind, _) = &other.columns[2];
        let (key, _, _) = &table.columns[1];
        let source = format!(
            "(SELECT k, max({name}) FROM {} WHERE k IS NOT NULL GROUP BY k) AS r99 (c1, c2)",
            other.name
        );
        scope
            .columns
            .extend(numbered("r99", &[Kind::Integer, *kind]));
        let on = format!("{TARGET}.{key} = r99.c1");
        (source, on)
    }

    /// The WHERE clause, or what is added to the one that `before` ends with.
    fn filter(&mut self, before: &str, scope: &Scope) -> String {
        if self.rng.one_in(6) {
            return String::new();
        }
        let word = match before.is_empty() {
            true => "WHERE",
            false => "AND",
        };
        format!(" {word} {}", self.condition(3, scope))
    }
}

fn target_scope(table: &Table) -> Scope {
    let column = |(name, kind, _): &(&str, Kind, &str)| Column {
        sql: format!("{TARGET}.{name}"),
        kind: *kind,
    };
    Scope {
        columns: table.columns.iter().map(column).collect(),
        ..Scope::default()
    }
}

/// The target's columns, with subqueries.
fn target(table: &Table) -> Scope {
    Scope {
        subqueries: 1,
        ..target_scope(table)
    }
}

/// For a query that sees nothing of the target.
fn surroundings(target: &Scope) -> Scope {
    Scope {
        subqueries: target.subqueries,
        ..Scope::default()
    }
}
