//! How many bytes tables take on the device, and indexes, which are not there, in memory.

use super::{Definition, argument, relation_at, stable};
use crate::catalogs::pg_catalog::catalog_value::CatalogValue;
use crate::catalogs::pg_catalog::system::System;
use crate::catalogs::pg_catalog::table_index::Index;
use strandline_base::{Error, Result};
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::index::IndexDef;

pub(super) const FUNCTIONS: &[Definition] = &[
    stable("pg_total_relation_size", "int8", |system, args| {
        let oid = relation_at(system, args, 0)?;
        Ok(
            match (relation(system, args)?.as_int(), system.table(oid)) {
                (Some(bytes), Some(table)) => (bytes + indexes_bytes(system, table)).into(),
                (bytes, _) => CatalogValue::option(bytes),
            },
        )
    }),
    stable("pg_table_size", "int8", relation),
    stable("pg_relation_size", "int8", relation),
    stable("pg_indexes_size", "int8", |system, args| {
        let table = system.table(relation_at(system, args, 0)?);
        Ok(table.map_or(0, |table| indexes_bytes(system, table)).into())
    }),
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
            CatalogValue::Float(bytes) if bytes.fract() != 0.0 => {
                return Err(Error::unsupported(
                    "pg_size_pretty of a number with a fraction is not supported",
                ));
            }
            CatalogValue::Float(bytes) => *bytes as i64,
            other => other.as_int().unwrap_or(0),
        };
        Ok(pretty(bytes).into())
    }),
];

/// The bytes that a table's ordered indexes take in memory or in their files: those of CREATE INDEX
/// and of ordered keys.
fn indexes_bytes(system: &System, table: &TableDef) -> i64 {
    let indexes = table.readable_indexes();
    indexes.map(|index| index_bytes(system, table, index)).sum()
}

fn index_bytes(system: &System, table: &TableDef, index: &IndexDef) -> i64 {
    // An index of the past may be gone.
    let size = system.statement.index_size(table, index.id);
    size.map_or(0, |(_, bytes)| bytes as i64)
}

fn relation(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    let oid = relation_at(system, args, 0)?;
    if let Some((table, index)) = system.index(oid) {
        let ordered = match index {
            Index::Secondary(index) => Some(index),
            Index::Key(key) => key.ordered.as_deref(),
        };
        let bytes = ordered.map_or(0, |index| index_bytes(system, table, index));
        return Ok(bytes.into());
    }
    let Some(table) = system.table(oid) else {
        return Ok(match system.relation_name(oid) {
            Some(_) => 0.into(),
            None => CatalogValue::Null,
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
