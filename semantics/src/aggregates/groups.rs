//! Exact sums and averages per group.

use super::exact::{Exact, Finish, nulls_with_filter};
use crate::error::numeric_overflow;
use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array, PrimitiveArray,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{Decimal128Type, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::{
    NullState, accumulate,
};
use std::marker::PhantomData;
use std::sync::Arc;

/// The groups that have a value: `sum` needs to know only that, `avg` counts.
#[derive(Debug)]
enum Tally {
    Seen(NullState),
    Counts(Vec<i64>),
}

/// Running sums of the groups, indexed by group number.
#[derive(Debug)]
pub struct ExactGroups<P> {
    sums: Vec<i128>,
    tally: Tally,
    finish: Finish,
    input: PhantomData<P>,
}

impl<P: Exact> ExactGroups<P> {
    /// No groups.
    pub fn new(finish: Finish) -> Self {
        let tally = match finish {
            Finish::Average { .. } => Tally::Counts(Vec::new()),
            _ => Tally::Seen(NullState::new()),
        };
        Self {
            sums: Vec::new(),
            tally,
            finish,
            input: PhantomData,
        }
    }

    fn add<Q: Exact>(
        &mut self,
        values: &PrimitiveArray<Q>,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
        count_rows: bool,
    ) -> Result<()> {
        self.sums.resize(total_groups, 0);
        let sums = self.sums.as_mut_slice();
        let mut overflow = false;
        let mut add = |group: usize, value: Q::Native| {
            let sum = &mut sums[group];
            if Q::NARROW {
                *sum = sum.wrapping_add(Q::widen(value));
            } else {
                let (next, fault) = sum.overflowing_add(Q::widen(value));
                *sum = next;
                overflow |= fault;
            }
        };
        match &mut self.tally {
            Tally::Seen(seen) => seen.accumulate(groups, values, filter, total_groups, add),
            Tally::Counts(counts) => {
                counts.resize(total_groups, 0);
                let step = i64::from(count_rows);
                accumulate(groups, values, filter, |group, value| {
                    add(group, value);
                    counts[group] += step;
                });
            }
        }
        if overflow {
            Err(numeric_overflow())
        } else {
            Ok(())
        }
    }

    /// The sums of the groups to emit, their counts (all 1 for `sum`), and the NULL groups.
    fn take(&mut self, emit_to: EmitTo) -> (Vec<i128>, Option<Vec<i64>>, Option<NullBuffer>) {
        let sums = emit_to.take_needed(&mut self.sums);
        match &mut self.tally {
            Tally::Seen(seen) => (sums, None, seen.build(emit_to)),
            Tally::Counts(counts) => {
                let counts = emit_to.take_needed(counts);
                let nulls = counts
                    .contains(&0)
                    .then(|| counts.iter().map(|&c| c > 0).collect());
                (sums, Some(counts), nulls)
            }
        }
    }

    fn state_array(&self, sums: Vec<i128>, nulls: Option<NullBuffer>) -> ArrayRef {
        let array = Decimal128Array::new(sums.into(), nulls);
        Arc::new(array.with_data_type(self.finish.state_type()))
    }
}

impl<P: Exact> GroupsAccumulator for ExactGroups<P> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let values = values[0].as_primitive::<P>();
        self.add(values, group_indices, opt_filter, total_num_groups, true)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, counts, nulls) = self.take(emit_to);
        match counts {
            Some(counts) => self.finish.array(sums, counts.into_iter(), nulls),
            None => self.finish.array(sums, std::iter::repeat(1), nulls),
        }
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts, nulls) = self.take(emit_to);
        let mut state = vec![self.state_array(sums, nulls)];
        if let Some(counts) = counts {
            state.push(Arc::new(Int64Array::from(counts)));
        }
        Ok(state)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        let sums = values[0].as_primitive::<Decimal128Type>();
        self.add(sums, group_indices, None, total_num_groups, false)?;
        if let (Tally::Counts(counts), Some(partial)) = (&mut self.tally, values.get(1)) {
            let partial = partial.as_primitive::<Int64Type>();
            accumulate(group_indices, partial, None, |group, count| {
                counts[group] += count
            });
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let nulls = nulls_with_filter(&values[0], opt_filter);
        let input = values[0].as_primitive::<P>();
        let sums = input.values().iter().map(|&v| P::widen(v)).collect();
        let mut state = vec![self.state_array(sums, nulls.clone())];
        if let Tally::Counts(_) = self.tally {
            let counts = match &nulls {
                Some(nulls) => nulls.iter().map(i64::from).collect::<Vec<_>>(),
                None => vec![1; input.len()],
            };
            state.push(Arc::new(Int64Array::from(counts)));
        }
        Ok(state)
    }

    fn size(&self) -> usize {
        let tally = match &self.tally {
            Tally::Seen(seen) => seen.size(),
            Tally::Counts(counts) => counts.capacity() * size_of::<i64>(),
        };
        self.sums.capacity() * size_of::<i128>() + tally
    }
}
