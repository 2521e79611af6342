//! Generates the TPC-H tables in process and loads them.
//!
//! A thread generates batches ahead of the loader, into a bounded channel. The rate in rows per
//! second therefore covers generation and loading side by side, until the last row is durable.

use super::schema::TABLES;
use crate::progress;
use crate::session::{Connection, Error, Result};
use arrow::array::cast::AsArray;
use arrow::array::{Array, RecordBatch};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// Batches the generator may be ahead.
const BATCHES_AHEAD: usize = 8;
const BATCH_ROWS: usize = 16_384;
/// Lines per order on average, for the progress bar of `lineitem`.
const LINES_PER_ORDER: u64 = 4;

/// The result of the load.
pub struct Loaded {
    /// Table → rows.
    pub tables: Vec<(&'static str, u64)>,
    /// Bytes of the values without any compression: 8 per bigint and numeric, 4 per integer and
    /// date, a text's own length.
    pub raw_bytes: u64,
    pub elapsed: Duration,
}

impl Loaded {
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|(_, rows)| rows).sum()
    }
}

type Batches = Box<dyn Iterator<Item = std::result::Result<RecordBatch, ArrowError>> + Send>;

/// Creates and loads the eight tables.
pub fn run(connection: &mut Connection, sf: f64) -> Result<Loaded> {
    let begin = Instant::now();
    let mut loaded = Loaded {
        tables: Vec::new(),
        raw_bytes: 0,
        elapsed: Duration::ZERO,
    };
    for table in &TABLES {
        connection.execute(table.ddl, ())?;
        let (rows, bytes) = load_table(connection, table.name, sf)?;
        loaded.tables.push((table.name, rows));
        loaded.raw_bytes += bytes;
    }
    loaded.elapsed = begin.elapsed();
    Ok(loaded)
}

/// Loads one table; returns its rows and raw bytes.
fn load_table(connection: &mut Connection, name: &'static str, sf: f64) -> Result<(u64, u64)> {
    let (expected, batches) = generator(name, sf);
    let bar = progress::rows_bar(expected, name);
    let (sender, receiver) = sync_channel(BATCHES_AHEAD);
    let mut raw_bytes = 0;
    let rows = std::thread::scope(|scope| {
        scope.spawn(move || {
            for batch in batches {
                // The loader has stopped and reports its own error.
                if sender.send(batch).is_err() {
                    break;
                }
            }
        });
        let mut appender = connection.appender(name)?;
        for batch in receiver {
            let batch = batch.map_err(|e| Error::internal(format!("generating {name}: {e}")))?;
            raw_bytes += raw_size(&batch);
            appender.append_batch(&batch)?;
            bar.inc(batch.num_rows() as u64);
        }
        appender.finish()
    })?;
    bar.finish_and_clear();
    Ok((rows, raw_bytes))
}

/// The approximate number of rows of `table`, and its batches.
fn generator(table: &str, sf: f64) -> (u64, Batches) {
    let scaled = |base: i32| (f64::from(base) * sf) as u64;
    macro_rules! batches {
        ($arrow:ident, $generator:ident) => {
            Box::new($arrow::new($generator::new(sf, 1, 1)).with_batch_size(BATCH_ROWS))
        };
    }
    match table {
        "region" => (5, batches!(RegionArrow, RegionGenerator)),
        "nation" => (25, batches!(NationArrow, NationGenerator)),
        "supplier" => (scaled(10_000), batches!(SupplierArrow, SupplierGenerator)),
        "part" => (scaled(200_000), batches!(PartArrow, PartGenerator)),
        "partsupp" => (scaled(800_000), batches!(PartSuppArrow, PartSuppGenerator)),
        "customer" => (scaled(150_000), batches!(CustomerArrow, CustomerGenerator)),
        "orders" => (
            scaled(OrderGenerator::SCALE_BASE),
            batches!(OrderArrow, OrderGenerator),
        ),
        "lineitem" => (
            scaled(OrderGenerator::SCALE_BASE) * LINES_PER_ORDER,
            batches!(LineItemArrow, LineItemGenerator),
        ),
        other => unreachable!("{other} is no table of TPC-H"),
    }
}

fn raw_size(batch: &RecordBatch) -> u64 {
    let rows = batch.num_rows() as u64;
    let sizes = batch.columns().iter().map(|array| match array.data_type() {
        DataType::Utf8View => array
            .as_string_view()
            .iter()
            .flatten()
            .map(|text| text.len() as u64)
            .sum(),
        DataType::Int32 | DataType::Date32 => 4 * rows,
        // bigint and numeric(15,2)
        _ => 8 * rows,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_generator_of_the_right_shape() {
        for table in &TABLES {
            let (_, mut batches) = generator(table.name, 0.001);
            let batch = batches.next().expect("a batch").expect("no error");
            let columns = table.ddl.matches(" NOT NULL").count()
                + table.ddl.matches("bigint PRIMARY KEY").count()
                + table.ddl.matches("_comment varchar(152)").count();
            assert_eq!(batch.num_columns(), columns, "{}", table.name);
            assert!(raw_size(&batch) > 0);
        }
    }
}
