//! TPC-H: data as Parquet files, definitions and queries, with the same text for every engine.
//!
//! The tables have no keys. No engine measured here needs one for the queries, and DuckDB's load
//! would pay for an index that it does not use.

use crate::Result;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use std::fs::File;
use std::path::{Path, PathBuf};
use tpchgen::generators;
use tpchgen_arrow as arrow_tables;

/// Definitions of all tables, one statement each.
pub const DEFINITIONS: &str = include_str!("../queries/tpch.sql");

/// Tables in loading order.
pub const TABLES: [&str; 8] = [
    "region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem",
];

/// The queries measured.
pub const QUERIES: [(&str, &str); 4] = [
    ("Q1", include_str!("../queries/q1.sql")),
    ("Q6", include_str!("../queries/q6.sql")),
    ("Q3", include_str!("../queries/q3.sql")),
    ("Q18", include_str!("../queries/q18.sql")),
];

/// The statement that defines `table`.
pub fn definition(table: &str) -> &'static str {
    let head = format!("CREATE TABLE {table} ");
    DEFINITIONS
        .split(';')
        .map(str::trim)
        .find(|statement| statement.starts_with(&head))
        .expect("tpch.sql defines every table")
}

/// The statement that loads `table` from its file in `folder`.
pub fn load_statement(table: &str, folder: &Path) -> String {
    format!(
        "COPY {table} FROM '{}' (FORMAT parquet)",
        file(table, folder).display()
    )
}

/// The file of `table` in `folder`.
pub fn file(table: &str, folder: &Path) -> PathBuf {
    folder.join(format!("{table}.parquet"))
}

/// Generates every table at `scale` as a Parquet file in `folder`; returns the number of lineitem
/// rows.
pub fn generate(scale: f64, folder: &Path) -> Result<u64> {
    let mut rows = 0;
    for table in TABLES {
        rows = write_parquet(&file(table, folder), batches(table, scale))?;
    }
    Ok(rows)
}

type Batches = Box<dyn Iterator<Item = std::result::Result<RecordBatch, ArrowError>>>;

fn batches(table: &str, scale: f64) -> Batches {
    macro_rules! table {
        ($arrow:ident, $generator:ident) => {
            Box::new(arrow_tables::$arrow::new(generators::$generator::new(
                scale, 1, 1,
            )))
        };
    }
    match table {
        "region" => table!(RegionArrow, RegionGenerator),
        "nation" => table!(NationArrow, NationGenerator),
        "supplier" => table!(SupplierArrow, SupplierGenerator),
        "customer" => table!(CustomerArrow, CustomerGenerator),
        "part" => table!(PartArrow, PartGenerator),
        "partsupp" => table!(PartSuppArrow, PartSuppGenerator),
        "orders" => table!(OrderArrow, OrderGenerator),
        "lineitem" => table!(LineItemArrow, LineItemGenerator),
        other => unreachable!("{other} is not in TABLES"),
    }
}

/// Writes `batches` as one snappy-compressed Parquet file; returns the number of rows.
pub fn write_parquet(
    path: &Path,
    batches: impl Iterator<Item = std::result::Result<RecordBatch, ArrowError>>,
) -> Result<u64> {
    let mut batches = batches.peekable();
    let Some(Ok(first)) = batches.peek() else {
        return Err("nothing to write".into());
    };
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, first.schema(), Some(properties))?;
    let mut rows = 0;
    for batch in batches {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        writer.write(&batch)?;
    }
    writer.close()?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_definition_that_fits_its_data() {
        for table in TABLES {
            let schema = batches(table, 0.001).next().unwrap().unwrap().schema();
            let columns = definition(table).split_once('(').unwrap().1;
            for field in schema.fields() {
                assert!(
                    columns.contains(&format!("{} ", field.name())),
                    "{}",
                    field.name()
                );
            }
        }
    }
}
