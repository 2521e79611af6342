//! How many bytes things take on the device.

use super::{Definition, argument, relation_at, stable};
use crate::catalogs::pg_catalog::cell::Cell;
use crate::catalogs::pg_catalog::system::System;
use strandline_base::Result;

pub(super) const FUNCTIONS: &[Definition] = &[
    stable("pg_total_relation_size", "int8", relation),
    stable("pg_table_size", "int8", relation),
    stable("pg_relation_size", "int8", relation),
    // Key indexes are in memory.
    stable("pg_indexes_size", "int8", |_, _| Ok(0.into())),
    stable("pg_database_size", "int8", |system, _| {
        let bytes = system.statement.transaction().db().device_bytes()?;
        Ok((bytes as i64).into())
    }),
    stable("pg_tablespace_size", "int8", |system, _| {
        let bytes = system.statement.transaction().db().device_bytes()?;
        Ok((bytes as i64).into())
    }),
    stable("pg_size_pretty", "text", |_, args| {
        let bytes = match argument(args, 0) {
            Cell::Float(bytes) => *bytes as i64,
            other => other.as_int().unwrap_or(0),
        };
        Ok(pretty(bytes).into())
    }),
];

fn relation(system: &System, args: &[Cell]) -> Result<Cell> {
    let oid = relation_at(system, args, 0)?;
    let Some(table) = system.table(oid) else {
        return Ok(match system.relation_name(oid) {
            Some(_) => 0.into(),
            None => Cell::Null,
        });
    };
    let bytes = system.statement.transaction().db().table_bytes(table)?;
    Ok((bytes as i64).into())
}

/// In the largest unit that leaves at least ten of it.
fn pretty(bytes: i64) -> String {
    let mut value = i128::from(bytes);
    for unit in ["bytes", "kB", "MB", "GB"] {
        if value.abs() < 10 * 1024 {
            return format!("{value} {unit}");
        }
        // Halves round up.
        value = (value + 512 * value.signum()) / 1024;
    }
    format!("{value} TB")
}

#[cfg(test)]
mod tests {
    use super::pretty;

    #[test]
    fn sizes_are_written_as_postgresql_does() {
        let shown = [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (1 << 30, "1024 MB"),
        ];
        for (bytes, text) in shown {
            assert_eq!(pretty(bytes), text);
        }
    }
}
