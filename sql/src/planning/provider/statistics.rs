//! The engine's statistics in DataFusion's form, for join order and selectivity. All are marked
//! inexact, because they are of another moment than the snapshot. DataFusion would answer `COUNT`,
//! `MIN` and `MAX` from exact ones without reading a row.

use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use strandline_base::{SqlType, Value};
use strandline_column::types;
use strandline_engine::TableStatistics;
use strandline_engine::catalog::TableDef;

/// Statistics of all columns of `def`, and of `_rowid` if `row_id`.
pub fn of_table(engine: &TableStatistics, def: &TableDef, row_id: bool) -> Statistics {
    let rows = engine.rows as usize;
    let mut columns: Vec<ColumnStatistics> = def
        .columns
        .iter()
        .enumerate()
        .map(|(i, column)| {
            let Some(known) = engine.columns.get(i) else {
                return ColumnStatistics::new_unknown();
            };
            ColumnStatistics {
                null_count: inexact(known.nulls.map(|n| n as usize)),
                max_value: inexact(scalar(column.sql_type, known.max.as_ref())),
                min_value: inexact(scalar(column.sql_type, known.min.as_ref())),
                sum_value: Precision::Absent,
                distinct_count: inexact(distinct(
                    def,
                    i,
                    rows,
                    known.min.as_ref().zip(known.max.as_ref()),
                )),
                byte_size: inexact(Some(known.bytes as usize)),
            }
        })
        .collect();
    if row_id {
        columns.push(ColumnStatistics {
            distinct_count: Precision::Inexact(rows),
            ..ColumnStatistics::new_unknown()
        });
    }
    Statistics {
        num_rows: Precision::Inexact(rows),
        total_byte_size: Precision::Inexact(engine.bytes as usize),
        column_statistics: columns,
    }
}

fn inexact<T: std::fmt::Debug + Clone + PartialEq + Eq + PartialOrd>(
    value: Option<T>,
) -> Precision<T> {
    value.map_or(Precision::Absent, Precision::Inexact)
}

fn scalar(sql_type: SqlType, value: Option<&Value>) -> Option<ScalarValue> {
    let array = types::array_of(sql_type, std::slice::from_ref(value?)).ok()?;
    ScalarValue::try_from_array(&array, 0).ok()
}

/// The distinct values of a column. A single-column key has as many values as rows; integers have
/// at most as many as their span.
fn distinct(
    def: &TableDef,
    position: usize,
    rows: usize,
    bounds: Option<(&Value, &Value)>,
) -> Option<usize> {
    let id = def.columns[position].id;
    if def.keys.iter().any(|key| key.columns == [id]) {
        return Some(rows);
    }
    let (min, max) = bounds?;
    let span = integer(max)?.checked_sub(integer(min)?)?.checked_add(1)?;
    Some(usize::try_from(span).ok()?.min(rows))
}

fn integer(value: &Value) -> Option<i64> {
    match *value {
        Value::Boolean(v) => Some(i64::from(v)),
        Value::SmallInt(v) => Some(i64::from(v)),
        Value::Integer(v) | Value::Date(v) => Some(i64::from(v)),
        Value::BigInt(v) => Some(v),
        _ => None,
    }
}
