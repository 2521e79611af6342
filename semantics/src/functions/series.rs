//! `generate_series(start, stop [, step])` as a table: of integers, bigints, numerics and
//! timestamps. The rows are made while they are read.

use crate::arithmetic::temporal::move_timestamp;
use crate::arithmetic::{as_decimal, common_integer};
use crate::cast::{Mode, cast_scalar};
use crate::decimal::Shape;
use crate::error::invalid;
use crate::types::{arrow_type, sql_name, sql_type_of_arrow};
use datafusion::arrow::array::{
    ArrayRef, Decimal64Array, Decimal128Array, Int32Array, Int64Array, RecordBatch,
    TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, IntervalMonthDayNano, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// The function's name and the name of its column.
pub const NAME: &str = "generate_series";

/// The table function.
#[derive(Debug)]
pub struct GenerateSeries;

/// One step of a series.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add(i128),
    Move(IntervalMonthDayNano),
}

/// The rest of a series; `next` is `None` at its end.
#[derive(Clone, Debug)]
struct Series {
    schema: SchemaRef,
    next: Option<i128>,
    stop: i128,
    step: Step,
    descending: bool,
}

impl TableFunctionImpl for GenerateSeries {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let values = args
            .exprs()
            .iter()
            .map(|e| match e {
                Expr::Literal(value, _) => Ok(value.clone()),
                _ => Err(invalid(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "arguments of generate_series must be constants",
                )),
            })
            .collect::<Result<Vec<ScalarValue>>>()?;
        let series = series(&values)?;
        let schema = Arc::clone(&series.schema);
        Ok(Arc::new(StreamingTable::try_new(
            schema,
            vec![Arc::new(series)],
        )?))
    }
}

fn no_such_function(values: &[ScalarValue]) -> datafusion::error::DataFusionError {
    let types: Vec<String> = values.iter().map(|v| sql_name(&v.data_type())).collect();
    invalid(
        SqlState::UNDEFINED_FUNCTION,
        format!("function {NAME}({}) does not exist", types.join(", ")),
    )
}

/// The value as the type's 128-bit integer; `None` for NULL.
fn integer(value: &ScalarValue, sql_type: SqlType) -> Result<Option<i128>> {
    Ok(match cast_scalar(value, sql_type, Mode::Explicit)? {
        ScalarValue::Int32(v) => v.map(i128::from),
        ScalarValue::Int64(v) => v.map(i128::from),
        ScalarValue::Decimal64(v, ..) => v.map(i128::from),
        ScalarValue::Decimal128(v, ..) => v,
        ScalarValue::TimestampMicrosecond(v, _) => v.map(i128::from),
        other => return datafusion::common::internal_err!("no series of {other:?}"),
    })
}

fn series(values: &[ScalarValue]) -> Result<Series> {
    let (start, stop, step) = match values {
        [start, stop] => (start, stop, None),
        [start, stop, step] => (start, stop, Some(step)),
        _ => return Err(no_such_function(values)),
    };
    let of_time = |t: DataType| matches!(t, DataType::Timestamp(..) | DataType::Date32);
    let (sql_type, step) = if of_time(start.data_type()) || of_time(stop.data_type()) {
        let step = step.ok_or_else(|| no_such_function(values))?;
        let plain = |v: &ScalarValue| matches!(v.data_type(), DataType::Timestamp(_, None));
        let sql_type = if plain(start) || plain(stop) {
            SqlType::Timestamp
        } else {
            SqlType::TimestampTz
        };
        let step = match cast_scalar(step, SqlType::Interval, Mode::Explicit)? {
            ScalarValue::IntervalMonthDayNano(step) => step.map(Step::Move),
            _ => None,
        };
        (sql_type, step)
    } else {
        let sql_type = number_type(values).ok_or_else(|| no_such_function(values))?;
        let step = match step {
            Some(step) => integer(step, sql_type)?.map(Step::Add),
            None => integer(&ScalarValue::Int32(Some(1)), sql_type)?.map(Step::Add),
        };
        (sql_type, step)
    };
    let field = Field::new(NAME, arrow_type(sql_type), false);
    let schema = Arc::new(Schema::new(vec![field]));
    let (Some(start), Some(stop), Some(step)) =
        (integer(start, sql_type)?, integer(stop, sql_type)?, step)
    else {
        let step = Step::Add(1);
        return Ok(Series {
            schema,
            next: None,
            stop: 0,
            step,
            descending: false,
        });
    };
    let direction = match step {
        Step::Add(step) => step,
        Step::Move(v) => {
            let days = i128::from(v.months) * 30 + i128::from(v.days);
            days * 86_400_000_000_000 + i128::from(v.nanoseconds)
        }
    };
    if direction == 0 {
        return Err(invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            "step size cannot equal zero",
        ));
    }
    let descending = direction < 0;
    Ok(Series {
        schema,
        next: Some(start),
        stop,
        step,
        descending,
    })
}

/// The common type of the numbers, as for arithmetic: at least integer.
fn number_type(values: &[ScalarValue]) -> Option<SqlType> {
    let mut common = DataType::Int32;
    for value in values {
        let data_type = match value.data_type() {
            DataType::Null | DataType::Utf8 => continue,
            other => other,
        };
        common = match common_integer(&common, &data_type) {
            Some(integer) => integer,
            None => {
                let (a, b) = (as_decimal(&common)?, as_decimal(&data_type)?);
                Shape::of(&a)?.common(Shape::of(&b)?).0.data_type()
            }
        };
    }
    sql_type_of_arrow(&common)
}

impl Series {
    fn batch(&mut self, rows: usize) -> Option<Result<RecordBatch>> {
        let mut values = Vec::new();
        while let Some(value) = self.next
            && values.len() < rows
        {
            let past = if self.descending {
                value < self.stop
            } else {
                value > self.stop
            };
            if past {
                self.next = None;
                break;
            }
            values.push(value);
            self.next = match self.step {
                Step::Add(step) => value.checked_add(step),
                Step::Move(step) => move_timestamp(value as i64, step, 1).map(i128::from),
            };
        }
        if values.is_empty() {
            return None;
        }
        let array: ArrayRef = match self.schema.field(0).data_type() {
            DataType::Int32 => Arc::new(Int32Array::from_iter_values(
                values.iter().map(|v| *v as i32),
            )),
            DataType::Int64 => Arc::new(Int64Array::from_iter_values(
                values.iter().map(|v| *v as i64),
            )),
            data_type @ DataType::Decimal64(..) => {
                let array = Decimal64Array::from_iter_values(values.iter().map(|v| *v as i64));
                Arc::new(array.with_data_type(data_type.clone()))
            }
            data_type @ DataType::Decimal128(..) => {
                Arc::new(Decimal128Array::from(values).with_data_type(data_type.clone()))
            }
            data_type => {
                let micros = values.iter().map(|v| *v as i64);
                let array = TimestampMicrosecondArray::from_iter_values(micros);
                Arc::new(array.with_data_type(data_type.clone()))
            }
        };
        Some(RecordBatch::try_new(Arc::clone(&self.schema), vec![array]).map_err(Into::into))
    }
}

impl PartitionStream for Series {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }
    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = context.session_config().batch_size();
        let mut series = self.clone();
        let batches = std::iter::from_fn(move || series.batch(rows));
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            futures::stream::iter(batches),
        ))
    }
}
