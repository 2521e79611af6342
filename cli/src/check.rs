//! `strandline check PATH`: verifies a database.

use crate::render::PrintError;
use crate::session::{Database, Result};
use std::io::Write;
use std::time::Instant;

/// Verifies everything; prints a summary, or the damage. Returns true if there is no damage.
pub fn run(database: &Database, out: &mut dyn Write) -> Result<bool, PrintError> {
    let begin = Instant::now();
    let damage = database.check()?;
    let elapsed = begin.elapsed().as_secs_f64();
    for line in &damage {
        writeln!(out, "DAMAGE:  {line}")?;
    }
    if damage.is_empty() {
        let files = database.engine().file_count()?;
        let rows = count_rows(database)?;
        writeln!(
            out,
            "{files} files, {rows} rows verified in {elapsed:.2} s, no damage found"
        )?;
    } else {
        writeln!(
            out,
            "{} damaged places found in {elapsed:.2} s",
            damage.len()
        )?;
    }
    Ok(damage.is_empty())
}

/// The rows of all tables.
fn count_rows(database: &Database) -> Result<i64> {
    let mut connection = database.connect();
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let mut rows = 0;
    for table in database.catalog().tables.values() {
        let sql = format!(
            "SELECT count(*) FROM {}.{}",
            quoted(&table.schema),
            quoted(&table.name)
        );
        rows += connection.query(&sql, ())?.single::<i64>()?;
    }
    Ok(rows)
}
