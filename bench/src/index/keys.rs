//! Reads by a primary key of one kind or another, in process: kinds that the table's rows do not
//! follow, beside the serial key that they do.

use super::{Bench, Case};
use crate::Result;
use crate::report::Report;
use crate::rounds::{Side, interleave};
use datafusion::scalar::ScalarValue;
use serde_json::json;
use std::cell::RefCell;
use strandline::{Connection, Database, Value};
use strandline_index::hash_integer;

/// A kind of key.
pub(super) struct Kind {
    pub name: &'static str,
    /// the key's columns
    columns: &'static str,
    /// the condition on them
    condition: &'static str,
    /// the key of a row
    key: fn(i64) -> Vec<Value>,
}

pub(super) const KINDS: [Kind; 5] = [
    Kind {
        name: "serial",
        columns: "k bigint",
        condition: "k = $1",
        key: |row| vec![Value::BigInt(row)],
    },
    Kind {
        name: "random bigint",
        columns: "k bigint",
        condition: "k = $1",
        key: |row| vec![Value::BigInt(hash_integer(row) as i64)],
    },
    Kind {
        name: "UUID",
        columns: "k uuid",
        condition: "k = $1",
        key: |row| {
            let bits = u128::from(hash_integer(row)) << 64 | u128::from(hash_integer(!row));
            vec![Value::Uuid(bits.to_be_bytes())]
        },
    },
    Kind {
        name: "text",
        columns: "k text",
        condition: "k = $1",
        key: |row| vec![Value::from(format!("customer {:016x}", hash_integer(row)))],
    },
    Kind {
        name: "composite",
        columns: "k bigint, l bigint",
        condition: "k = $1 AND l = $2",
        key: |row| {
            let scattered = hash_integer(row) as i64;
            vec![Value::BigInt(scattered >> 32), Value::BigInt(scattered)]
        },
    },
];

/// A figure per kind, beside serial keys.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let path = bench.directory.join("keys.strandline");
    let builder = Database::builder(&path);
    let database = builder.synchronous_commit(false).build()?;
    let mut connection = database.connect();
    for no in 0..KINDS.len() {
        fill(&mut connection, no, bench.small_rows as i64)?;
    }
    database.merge_all()?;
    let connection = RefCell::new(connection);
    let sides = (0..KINDS.len()).map(|no| reads(bench, &connection, no));
    let figures = interleave(bench.rounds, sides.collect::<Result<_>>()?)?;
    for (kind, ours) in KINDS.iter().zip(&figures).skip(1) {
        let case = Case {
            name: &format!("a row by a {} key", kind.name),
            unit: "µs",
            peer: "strandline, serial keys",
            theirs: figures.first().copied(),
            goal: None,
            rows: bench.small_rows,
            settings: json!({ "in_process": true, "prepared": true }),
        };
        bench.add(report, &case, *ours)?;
    }
    Ok(())
}

/// Microseconds of a read by the key of a random row.
pub(super) fn reads<'b>(
    bench: &'b Bench,
    connection: &'b RefCell<Connection>,
    no: usize,
) -> Result<Side<'b>> {
    let kind = &KINDS[no];
    let sql = format!("SELECT v FROM keys_{no} WHERE {}", kind.condition);
    let read = connection.borrow_mut().prepare_typed(&sql, &[])?;
    Ok(Box::new(move |round| {
        bench.time(round, bench.small_rows, |row| {
            let key = (kind.key)(row);
            let key: Vec<ScalarValue> = key.iter().map(scalar).collect();
            let mut connection = connection.borrow_mut();
            std::hint::black_box(connection.run_prepared(&read, &key)?);
            Ok(())
        })
    }))
}

/// Makes and fills the table of a kind.
pub(super) fn fill(connection: &mut Connection, no: usize, rows: i64) -> Result<()> {
    let kind = &KINDS[no];
    let columns = kind.columns.replace(" bigint", "").replace(" uuid", "");
    let key = columns.replace(" text", "");
    let definition = kind.columns;
    connection.execute(
        &format!("CREATE TABLE keys_{no} ({definition}, v bigint, PRIMARY KEY ({key}))"),
        (),
    )?;
    let mut appender = connection.appender(&format!("keys_{no}"))?;
    for row in 0..rows {
        let mut values = (kind.key)(row);
        values.push(Value::BigInt(row));
        appender.append_row(&values)?;
    }
    appender.finish()?;
    Ok(())
}

fn scalar(value: &Value) -> ScalarValue {
    match value {
        Value::BigInt(v) => ScalarValue::Int64(Some(*v)),
        Value::Text(v) => ScalarValue::Utf8(Some(v.to_string())),
        Value::Uuid(v) => ScalarValue::FixedSizeBinary(16, Some(v.to_vec())),
        _ => ScalarValue::Null,
    }
}
