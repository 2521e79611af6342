//! Sums and averages of real and double precision, added in double precision, and of intervals.
//!
//! Values that are not finite are counted separately, so that a sliding frame can remove them
//! exactly. An infinite sum of finite values is 22003.

use super::Kind;
use crate::arithmetic::temporal;
use crate::calendar::interval_out_of_range;
use crate::error::invalid;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, Int64Array, PrimitiveArray,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::Result;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion::scalar::ScalarValue;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::accumulate;
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::SqlState;

/// The type of partial sums: doubles for floats, else the input's.
pub fn state_type(input: &DataType) -> DataType {
    if input.is_floating() {
        DataType::Float64
    } else {
        input.clone()
    }
}

fn as_doubles(array: &ArrayRef) -> Result<PrimitiveArray<Float64Type>> {
    Ok(cast(array, &DataType::Float64)?
        .as_primitive::<Float64Type>()
        .clone())
}

fn overflow() -> DataFusionError {
    invalid(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        "value out of range: overflow",
    )
}

fn finish(kind: Kind, sum: f64, count: i64, saw_infinity: bool) -> Result<f64> {
    if sum.is_infinite() && !saw_infinity {
        return Err(overflow());
    }
    Ok(if kind == Kind::Average {
        sum / count as f64
    } else {
        sum
    })
}

fn scalar(value: Option<f64>, result: &DataType) -> Result<ScalarValue> {
    if *result != DataType::Float32 {
        return Ok(ScalarValue::Float64(value));
    }
    match value.map(|v| (v, v as f32)) {
        Some((wide, narrow)) if narrow.is_infinite() && wide.is_finite() => Err(overflow()),
        value => Ok(ScalarValue::Float32(value.map(|(_, narrow)| narrow))),
    }
}

/// A running sum and count of doubles; rows can be taken back.
#[derive(Debug)]
pub struct FloatSum {
    kind: Kind,
    result: DataType,
    finite: f64,
    count: i64,
    nans: i64,
    infinities: [i64; 2],
}

impl FloatSum {
    /// A sum of no values.
    pub fn new(kind: Kind, result: DataType) -> Self {
        Self {
            kind,
            result,
            finite: 0.0,
            count: 0,
            nans: 0,
            infinities: [0, 0],
        }
    }

    fn add(&mut self, values: &PrimitiveArray<Float64Type>, direction: i64) {
        let sign = direction as f64;
        for value in values.iter().flatten() {
            if value.is_finite() {
                self.finite += sign * value;
            } else if value.is_nan() {
                self.nans += direction;
            } else {
                self.infinities[usize::from(value < 0.0)] += direction;
            }
        }
    }

    fn sum(&self) -> f64 {
        match (self.nans, self.infinities) {
            (0, [0, 0]) => self.finite,
            (0, [_, 0]) => f64::INFINITY,
            (0, [0, _]) => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }
}

impl Accumulator for FloatSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = as_doubles(&values[0])?;
        self.count += (values.len() - values.null_count()) as i64;
        self.add(&values, 1);
        Ok(())
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = as_doubles(&values[0])?;
        self.count -= (values.len() - values.null_count()) as i64;
        self.add(&values, -1);
        Ok(())
    }
    fn supports_retract_batch(&self) -> bool {
        true
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        if self.finite.is_infinite() {
            return Err(overflow());
        }
        let sum = (self.count > 0).then(|| self.sum());
        Ok(vec![
            ScalarValue::Float64(sum),
            ScalarValue::Int64(Some(self.count)),
        ])
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add(states[0].as_primitive::<Float64Type>(), 1);
        self.count += states[1]
            .as_primitive::<Int64Type>()
            .iter()
            .flatten()
            .sum::<i64>();
        Ok(())
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = match self.count {
            0 => None,
            n => Some(finish(self.kind, self.sum(), n, self.infinities != [0, 0])?),
        };
        scalar(value, &self.result)
    }
    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// Running sums and counts of doubles per group.
#[derive(Debug)]
pub struct FloatGroups {
    kind: Kind,
    result: DataType,
    sums: Vec<f64>,
    counts: Vec<i64>,
    saw_infinity: bool,
}

impl FloatGroups {
    /// No groups.
    pub fn new(kind: Kind, result: DataType) -> Self {
        Self {
            kind,
            result,
            sums: Vec::new(),
            counts: Vec::new(),
            saw_infinity: false,
        }
    }

    fn add(
        &mut self,
        values: &PrimitiveArray<Float64Type>,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
        step: i64,
    ) {
        self.saw_infinity |= values
            .values()
            .iter()
            .fold(false, |any, v| any | v.is_infinite());
        self.sums.resize(total_groups, 0.0);
        self.counts.resize(total_groups, 0);
        let (sums, counts) = (self.sums.as_mut_slice(), self.counts.as_mut_slice());
        accumulate(groups, values, filter, |group, value| {
            sums[group] += value;
            counts[group] += step;
        });
    }

    fn take(&mut self, emit_to: EmitTo) -> (Vec<f64>, Vec<i64>, Option<NullBuffer>) {
        let sums = emit_to.take_needed(&mut self.sums);
        let counts = emit_to.take_needed(&mut self.counts);
        let nulls = counts
            .contains(&0)
            .then(|| counts.iter().map(|&c| c > 0).collect());
        (sums, counts, nulls)
    }
}

impl GroupsAccumulator for FloatGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let values = as_doubles(&values[0])?;
        self.add(&values, group_indices, opt_filter, total_num_groups, 1);
        Ok(())
    }
    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (mut sums, counts, nulls) = self.take(emit_to);
        for (i, (sum, count)) in sums.iter_mut().zip(counts).enumerate() {
            if nulls.as_ref().is_none_or(|n| n.is_valid(i)) {
                *sum = finish(self.kind, *sum, count, self.saw_infinity)?;
            }
        }
        if self.result != DataType::Float32 {
            return Ok(Arc::new(Float64Array::new(sums.into(), nulls)));
        }
        let narrow: Vec<f32> = sums.iter().map(|&v| v as f32).collect();
        let lost = |(wide, narrow): (&f64, &f32)| narrow.is_infinite() && wide.is_finite();
        if sums.iter().zip(&narrow).any(lost) {
            return Err(overflow());
        }
        Ok(Arc::new(Float32Array::new(narrow.into(), nulls)))
    }
    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts, nulls) = self.take(emit_to);
        if !self.saw_infinity && sums.iter().any(|s| s.is_infinite()) {
            return Err(overflow());
        }
        let sums = Float64Array::new(sums.into(), nulls);
        Ok(vec![Arc::new(sums), Arc::new(Int64Array::from(counts))])
    }
    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        let sums = values[0].as_primitive::<Float64Type>();
        self.add(sums, group_indices, None, total_num_groups, 0);
        let counts = self.counts.as_mut_slice();
        let partial = values[1].as_primitive::<Int64Type>();
        accumulate(group_indices, partial, None, |group, count| {
            counts[group] += count
        });
        Ok(())
    }
    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let nulls = super::exact::nulls_with_filter(&values[0], opt_filter);
        let input = as_doubles(&values[0])?;
        let counts = match &nulls {
            Some(nulls) => nulls.iter().map(i64::from).collect::<Vec<_>>(),
            None => vec![1; input.len()],
        };
        let sums = Float64Array::new(input.values().clone(), nulls);
        Ok(vec![Arc::new(sums), Arc::new(Int64Array::from(counts))])
    }
    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<f64>() + self.counts.capacity() * size_of::<i64>()
    }
}

/// The sum or average of distinct doubles, each with the number of times it is in the frame.
/// All NaNs are one value, and so are 0 and -0.
#[derive(Debug)]
pub struct DistinctFloats {
    kind: Kind,
    result: DataType,
    values: HashMap<u64, usize>,
}

impl DistinctFloats {
    /// A sum of no values.
    pub fn new(kind: Kind, result: DataType) -> Self {
        Self {
            kind,
            result,
            values: HashMap::new(),
        }
    }
    fn key(value: f64) -> u64 {
        if value.is_nan() {
            f64::NAN.to_bits()
        } else {
            (value + 0.0).to_bits()
        }
    }
}

impl Accumulator for DistinctFloats {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in as_doubles(&values[0])?.iter().flatten() {
            *self.values.entry(Self::key(value)).or_insert(0) += 1;
        }
        Ok(())
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in as_doubles(&values[0])?.iter().flatten() {
            let key = Self::key(value);
            if let Some(times) = self.values.get_mut(&key) {
                *times -= 1;
                if *times == 0 {
                    self.values.remove(&key);
                }
            }
        }
        Ok(())
    }
    fn supports_retract_batch(&self) -> bool {
        true
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Float64Array = self
            .values
            .keys()
            .map(|v| Some(f64::from_bits(*v)))
            .collect();
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
        let mut sum = FloatSum::new(self.kind, self.result.clone());
        let values: Float64Array = self
            .values
            .keys()
            .map(|v| Some(f64::from_bits(*v)))
            .collect();
        sum.update_batch(&[Arc::new(values)])?;
        sum.evaluate()
    }
    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<(u64, usize)>()
    }
}

/// A running sum and count of intervals; rows can be taken back.
#[derive(Debug)]
pub struct IntervalSum {
    kind: Kind,
    sum: IntervalMonthDayNano,
    count: i64,
}

impl IntervalSum {
    /// A sum of no values.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            sum: IntervalMonthDayNano::new(0, 0, 0),
            count: 0,
        }
    }

    fn add(&mut self, array: &ArrayRef, sign: i32) -> Result<i64> {
        let values = array.as_primitive::<IntervalMonthDayNanoType>();
        for value in values.iter().flatten() {
            self.sum =
                temporal::add_intervals(self.sum, value, sign).ok_or_else(interval_out_of_range)?;
        }
        Ok((values.len() - values.null_count()) as i64)
    }
}

impl Accumulator for IntervalSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count += self.add(&values[0], 1)?;
        Ok(())
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count -= self.add(&values[0], -1)?;
        Ok(())
    }
    fn supports_retract_batch(&self) -> bool {
        true
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(vec![
            ScalarValue::IntervalMonthDayNano(sum),
            ScalarValue::Int64(Some(self.count)),
        ])
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add(&states[0], 1)?;
        self.count += states[1]
            .as_primitive::<Int64Type>()
            .iter()
            .flatten()
            .sum::<i64>();
        Ok(())
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = match (self.kind, self.count) {
            (_, 0) => None,
            (Kind::Sum, _) => Some(self.sum),
            (Kind::Average, n) => Some(
                temporal::scale(self.sum, |v| v / n as f64).ok_or_else(interval_out_of_range)?,
            ),
        };
        Ok(ScalarValue::IntervalMonthDayNano(value))
    }
    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The accumulator of an input type without exact sums.
pub fn accumulator(kind: Kind, input: &DataType, distinct: bool) -> Result<Box<dyn Accumulator>> {
    match input {
        DataType::Interval(IntervalUnit::MonthDayNano) if distinct => Err(invalid(
            SqlState::FEATURE_NOT_SUPPORTED,
            "sum and avg of DISTINCT intervals are not supported",
        )),
        DataType::Interval(_) => Ok(Box::new(IntervalSum::new(kind))),
        _ if distinct => Ok(Box::new(DistinctFloats::new(kind, input.clone()))),
        _ => Ok(Box::new(FloatSum::new(kind, input.clone()))),
    }
}
