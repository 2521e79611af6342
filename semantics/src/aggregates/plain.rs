//! Exact sums and averages without groups: over a whole input, over sliding frames, and over
//! distinct values.

use super::exact::{Exact, Finish, sum_and_count_of, with_exact_type};
use crate::error::numeric_overflow;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::compute::sum_checked;
use datafusion::arrow::datatypes::{
    DataType, Decimal64Type, Decimal128Type, Int16Type, Int32Type, Int64Type,
};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::Accumulator;
use datafusion::scalar::ScalarValue;
use std::collections::HashMap;
use std::sync::Arc;

/// One value of the result or state type.
fn decimal(value: Option<i128>, data_type: &DataType) -> Result<ScalarValue> {
    match data_type {
        DataType::Int64 => Ok(ScalarValue::Int64(value.map(|v| v as i64))),
        DataType::Decimal128(p, s) => Ok(ScalarValue::Decimal128(value, *p, *s)),
        other => internal_err!("no exact value of {other}"),
    }
}

fn finished(finish: &Finish, sum: i128, count: i64) -> Result<ScalarValue> {
    let value = if count == 0 {
        None
    } else {
        Some(finish.value(sum, count)?)
    };
    decimal(value, &finish.data_type())
}

/// A running sum and count; rows can be taken back.
#[derive(Debug)]
pub struct ExactSum {
    sum: i128,
    count: i64,
    finish: Finish,
}

impl ExactSum {
    /// A sum of no values.
    pub fn new(finish: Finish) -> Self {
        Self {
            sum: 0,
            count: 0,
            finish,
        }
    }
}

impl Accumulator for ExactSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = sum_and_count_of(&values[0])?;
        self.sum = self.sum.checked_add(sum).ok_or_else(numeric_overflow)?;
        self.count += count as i64;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = sum_and_count_of(&values[0])?;
        self.sum = self.sum.checked_sub(sum).ok_or_else(numeric_overflow)?;
        self.count -= count as i64;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.count > 0).then_some(self.sum);
        let sum = decimal(sum, &self.finish.state_type())?;
        Ok(match self.finish {
            Finish::Average { .. } => vec![sum, ScalarValue::Int64(Some(self.count))],
            _ => vec![sum],
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (sum, count) = sum_and_count_of(&states[0])?;
        self.sum = self.sum.checked_add(sum).ok_or_else(numeric_overflow)?;
        self.count += match states.get(1) {
            Some(counts) => sum_checked(counts.as_primitive::<Int64Type>())?.unwrap_or(0),
            None => count as i64,
        };
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        finished(&self.finish, self.sum, self.count)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The sum or average of distinct values, each with the number of times it is in the frame.
#[derive(Debug)]
pub struct DistinctSum {
    values: HashMap<i128, usize>,
    finish: Finish,
}

impl DistinctSum {
    /// A sum of no values.
    pub fn new(finish: Finish) -> Self {
        Self {
            values: HashMap::new(),
            finish,
        }
    }

    fn each(array: &ArrayRef, mut f: impl FnMut(i128)) -> Result<()> {
        with_exact_type!(array.data_type(), P => {
            array.as_primitive::<P>().iter().flatten().for_each(|v| f(<P as Exact>::widen(v)));
            Ok(())
        })
    }

    fn sum(&self) -> Result<i128> {
        let mut values = self.values.keys();
        values
            .try_fold(0i128, |sum, v| sum.checked_add(*v))
            .ok_or_else(numeric_overflow)
    }
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        Self::each(&values[0], |v| *self.values.entry(v).or_insert(0) += 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        Self::each(&values[0], |v| {
            if let Some(times) = self.values.get_mut(&v) {
                *times -= 1;
                if *times == 0 {
                    self.values.remove(&v);
                }
            }
        })
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Decimal128Array = self.values.keys().map(|v| Some(*v)).collect();
        let values = values.with_data_type(self.finish.state_type());
        let list = SingleRowListArrayBuilder::new(Arc::new(values)).with_nullable(true);
        Ok(vec![list.build_list_scalar()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[values])?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        finished(&self.finish, self.sum()?, self.values.len() as i64)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<(i128, usize)>()
    }
}
