//! TPC-H as a test: its tables, its 22 queries, and answers to compare with.
//!
//! `tpch/queries/*.sql` name tables in braces, so that a query can be asked of the present or of a
//! past moment. `tpch/answers/*.csv` were computed by DuckDB 2.0 from the same generated data (`*
//! .after.csv`: after `tpch/updates.sql`); their header names each column's type there. Exact
//! numbers must be equal, doubles (DuckDB's type of averages and quotients) agree to 12 digits.

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use std::path::{Path, PathBuf};
use strandline::{Connection, Error, QueryResult};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// The scale factor that the answers are for.
pub const SCALE: f64 = 0.1;
/// The tables.
pub const TABLES: [&str; 8] = [
    "region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem",
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tpch")
}

fn read(name: &str) -> String {
    let path = directory().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Creates and fills the tables.
pub fn load(connection: &mut Connection) -> Result<(), Error> {
    connection.execute_script(&read("schema.sql"))?;
    for table in TABLES {
        let mut appender = connection.appender(table)?;
        for batch in batches(table) {
            let batch = batch.map_err(|e| Error::internal(format!("generating {table}: {e}")))?;
            appender.append_batch(&batch)?;
        }
        appender.finish()?;
    }
    Ok(())
}

fn batches(table: &str) -> Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>> {
    match table {
        "region" => Box::new(RegionArrow::new(RegionGenerator::new(SCALE, 1, 1))),
        "nation" => Box::new(NationArrow::new(NationGenerator::new(SCALE, 1, 1))),
        "supplier" => Box::new(SupplierArrow::new(SupplierGenerator::new(SCALE, 1, 1))),
        "part" => Box::new(PartArrow::new(PartGenerator::new(SCALE, 1, 1))),
        "partsupp" => Box::new(PartSuppArrow::new(PartSuppGenerator::new(SCALE, 1, 1))),
        "customer" => Box::new(CustomerArrow::new(CustomerGenerator::new(SCALE, 1, 1))),
        "orders" => Box::new(OrderArrow::new(OrderGenerator::new(SCALE, 1, 1))),
        "lineitem" => Box::new(LineItemArrow::new(LineItemGenerator::new(SCALE, 1, 1))),
        other => unreachable!("{other} is no table of TPC-H"),
    }
}

/// The statements that change the data between the first and the second answers.
pub fn updates() -> Vec<String> {
    let script = read("updates.sql");
    let statements = script.split(";\n").map(str::trim).filter(|s| !s.is_empty());
    statements.map(str::to_string).collect()
}

/// Which answers a query must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataState {
    /// Those of the generated data.
    Loaded,
    /// Those after [`updates`].
    Updated,
}

/// Runs query `number` (1 to 22) and compares; `as_of` is a moment in the past.
///
/// # Panics
/// If the answer differs; the message shows the first row that does.
pub fn check(connection: &mut Connection, number: usize, state: DataState, as_of: Option<&str>) {
    let mut sql = read(&format!("queries/q{number:02}.sql"));
    for table in TABLES {
        let reference = match as_of {
            Some(moment) => format!("{table} for system_time as of '{moment}'"),
            None => table.to_string(),
        };
        sql = sql.replace(&format!("{{{table}}}"), &reference);
    }
    let suffix = if state == DataState::Updated {
        ".after"
    } else {
        ""
    };
    let expected = read(&format!("answers/q{number:02}{suffix}.csv"));
    let result = match connection.query(&sql, ()) {
        Ok(result) => result,
        Err(error) => panic!("query {number}, {state:?}, as of {as_of:?}: {error:?}"),
    };
    if let Err(difference) = compare(&result, &expected) {
        panic!("query {number}, {state:?}, as of {as_of:?}: {difference}");
    }
}

fn compare(result: &QueryResult, expected: &str) -> Result<(), String> {
    let mut lines = expected.lines();
    let header = lines.next().ok_or("the answers' file is empty")?;
    let columns: Vec<(&str, &str)> = header
        .split('|')
        .filter_map(|c| c.split_once(':'))
        .collect();
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let schema = result.schema();
    let got_names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    if names != got_names {
        return Err(format!("columns {got_names:?}, expected {names:?}"));
    }
    let lines: Vec<&str> = lines.collect();
    if lines.len() != result.row_count() {
        return Err(format!(
            "{} rows, expected {}",
            result.row_count(),
            lines.len()
        ));
    }
    for (number, (row, line)) in result.rows().zip(lines).enumerate() {
        for (column, (want, (name, data_type))) in line.split('|').zip(&columns).enumerate() {
            let got = row.text(column).map_err(|e| e.to_string())?;
            let got = got.as_deref().unwrap_or("NULL").trim_end();
            if !agree(got, want, data_type) {
                return Err(format!("row {number}, {name}: {got}, expected {want}"));
            }
        }
    }
    Ok(())
}

/// Whether two texts are the same value of the answers' type.
fn agree(got: &str, want: &str, data_type: &str) -> bool {
    if got == want || got == "NULL" || want == "NULL" {
        return got == want;
    }
    if data_type == "double" {
        let (Ok(got), Ok(want)) = (got.parse::<f64>(), want.parse::<f64>()) else {
            return false;
        };
        return (got - want).abs() <= 1e-12 * want.abs().max(1.0);
    }
    if data_type.starts_with("decimal") {
        // The same number, perhaps with more zeros.
        let plain = |s: &str| match s.contains('.') {
            true => s.trim_end_matches('0').trim_end_matches('.').to_string(),
            false => s.to_string(),
        };
        return plain(got) == plain(want);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::agree;

    #[test]
    fn agreement_is_exact_except_for_doubles() {
        assert!(agree("1.50", "1.5", "decimal(15,2)"));
        assert!(!agree("1.51", "1.5", "decimal(15,2)"));
        assert!(agree("0.3333333333333333", "0.33333333333333337", "double"));
        assert!(!agree("0.3333333", "0.33333333333333337", "double"));
        assert!(!agree("10", "1", "bigint"));
        assert!(!agree("a", "b", "varchar"));
        assert!(!agree("NULL", "0", "decimal(15,2)"));
    }
}
