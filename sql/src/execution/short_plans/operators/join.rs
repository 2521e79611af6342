//! Nested-loop joins: the inner side is run for each outer row with the row's keys in slots, or
//! once if it does not depend on them.

use crate::execution::short_plans::node::{Node, Operator, OuterRows};
use crate::execution::short_plans::run::{
    Expression, PAIRS_MAX, Pairs, Rows, Run, Stop, batch_of, mask, taken, values,
};
use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{concat_batches, filter_record_batch, take};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

/// What a join gives of an outer row and the inner rows that match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::execution::short_plans) enum JoinKind {
    /// each pair
    Inner,
    /// each pair, or the outer row with NULLs
    Outer,
    /// the outer row, if there is a match
    Semi,
    /// the outer row, if there is none
    Anti,
    /// the outer row, and whether there is a match
    Mark,
}

/// A key of an outer row, and the slot where the inner side looks for it.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Key {
    pub slot: usize,
    pub value: Expression,
}

/// A join; see the module's documentation.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Join {
    pub kind: JoinKind,
    pub outer: Node,
    pub inner: Node,
    /// none: the inner side is run once. A row with a NULL among its keys has no match.
    pub keys: Vec<Key>,
    /// what else a pair must fulfil
    pub conditions: Vec<Expression>,
    pub inner_schema: SchemaRef,
    /// of a pair: the outer columns, then the inner ones
    pub pair_schema: SchemaRef,
    /// the columns of a pair that the join gives
    pub wanted: Vec<usize>,
    pub schema: SchemaRef,
    pub text: String,
}

impl Join {
    /// The pairs that agree in the keys.
    fn by_keys(&self, run: &mut Run<'_>, outer: &RecordBatch) -> Result<Pairs, Stop> {
        let keys = self.keys.iter().map(|key| values(&key.value, outer));
        let keys: Vec<ArrayRef> = keys.collect::<Result<_, _>>()?;
        let rows = OuterRows {
            slots: self.keys.iter().map(|key| key.slot).collect(),
            keys: &keys,
            count: outer.num_rows(),
        };
        match self.inner.rows_for(run, &rows) {
            Some(pairs) => pairs,
            None => self.one_by_one(run, &rows),
        }
    }

    /// The same of an inner side that is run for each outer row.
    fn one_by_one(&self, run: &mut Run<'_>, outer: &OuterRows<'_>) -> Result<Pairs, Stop> {
        let (mut places, mut parts) = (Vec::new(), Vec::new());
        let mut last: Option<(Vec<ScalarValue>, RecordBatch)> = None;
        for at in 0..outer.count {
            let Some(key) = outer.key(at)? else { continue };
            let known = last.take().filter(|(known, _)| *known == key);
            let found = match known {
                Some((_, found)) => found,
                None => {
                    outer.set(run, &key);
                    self.inner.rows(run)?
                }
            };
            if found.num_rows() > 0 {
                let at = u32::try_from(at).map_err(|_| Stop::Undecided)?;
                places.extend(std::iter::repeat_n(at, found.num_rows()));
                if places.len() > PAIRS_MAX {
                    return Err(Stop::Undecided);
                }
                parts.push(found.clone());
            }
            last = Some((key, found));
        }
        let inner = match parts.as_slice() {
            [one] => one.clone(),
            parts => concat_batches(&self.inner_schema, parts)?,
        };
        Ok(Pairs {
            outer: places,
            inner,
        })
    }

    /// All pairs.
    fn all_pairs(&self, run: &mut Run<'_>, outer: &RecordBatch) -> Result<Pairs, Stop> {
        let inner = self.inner.rows(run)?;
        let pairs = outer.num_rows().saturating_mul(inner.num_rows());
        if pairs > PAIRS_MAX {
            return Err(Stop::Undecided);
        }
        let rows = 0..outer.num_rows() as u32;
        let others = inner.num_rows();
        let places = rows.clone().flat_map(|at| std::iter::repeat_n(at, others));
        let outer = places.collect();
        let inner = match rows.len() {
            1 => inner,
            _ => {
                let places = rows.flat_map(|_| 0..others as u32);
                taken(&inner, &UInt32Array::from_iter_values(places))?
            }
        };
        Ok(Pairs { outer, inner })
    }

    /// The pairs that fulfil the conditions.
    fn matching(&self, mut pairs: Pairs, outer: &RecordBatch) -> Result<Pairs, Stop> {
        for condition in &self.conditions {
            if pairs.outer.is_empty() {
                break;
            }
            let places = UInt32Array::from(pairs.outer.clone());
            let mut columns = taken(outer, &places)?.columns().to_vec();
            columns.extend(pairs.inner.columns().iter().cloned());
            let batch = batch_of(&self.pair_schema, columns, pairs.outer.len())?;
            let mask = mask(condition, &batch)?;
            pairs = pairs.masked(&mask)?;
        }
        Ok(pairs)
    }

    /// Per outer row whether it has a match.
    fn matched(pairs: &Pairs, rows: usize) -> BooleanArray {
        let mut matched = vec![false; rows];
        for at in &pairs.outer {
            if let Some(matched) = matched.get_mut(*at as usize) {
                *matched = true;
            }
        }
        BooleanArray::from(matched)
    }

    /// The pairs, and then the outer rows at `unmatched` with NULLs.
    fn joined(&self, pairs: &Pairs, outer: &RecordBatch, unmatched: &[u32]) -> Rows {
        let rows = pairs.outer.len() + unmatched.len();
        let places = pairs.outer.iter().chain(unmatched).copied();
        let places = UInt32Array::from_iter_values(places);
        let matches = (0..pairs.outer.len() as u32).map(Some);
        let nothing = unmatched.iter().map(|_| None);
        let inner_places: UInt32Array = matches.chain(nothing).collect();
        let column = |at: &usize| match at.checked_sub(outer.num_columns()) {
            None => take(outer.column(*at).as_ref(), &places, None),
            Some(at) if unmatched.is_empty() => Ok(pairs.inner.column(at).clone()),
            Some(at) => take(pairs.inner.column(at).as_ref(), &inner_places, None),
        };
        let columns = self.wanted.iter().map(column);
        batch_of(&self.schema, columns.collect::<Result<_, _>>()?, rows)
    }

    /// The outer rows that `mask` has, as the join gives them.
    fn outer_rows(&self, outer: &RecordBatch, mask: Option<&BooleanArray>) -> Rows {
        let columns = self.wanted.iter().filter_map(|at| outer.columns().get(*at));
        let columns = columns.cloned().collect();
        let batch = batch_of(&self.schema, columns, outer.num_rows())?;
        Ok(match mask {
            Some(mask) => filter_record_batch(&batch, mask)?,
            None => batch,
        })
    }
}

impl Operator for Join {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let outer = self.outer.rows(run)?;
        let rows = outer.num_rows();
        if rows == 0 {
            return Ok(RecordBatch::new_empty(self.schema.clone()));
        }
        let pairs = match self.keys.is_empty() {
            true => self.all_pairs(run, &outer)?,
            false => self.by_keys(run, &outer)?,
        };
        let pairs = self.matching(pairs, &outer)?;
        let batch = match self.kind {
            JoinKind::Inner => self.joined(&pairs, &outer, &[])?,
            JoinKind::Outer => {
                let matched = Self::matched(&pairs, rows);
                let unmatched = (0..rows).filter(|at| !matched.value(*at));
                let unmatched: Vec<u32> = unmatched.map(|at| at as u32).collect();
                self.joined(&pairs, &outer, &unmatched)?
            }
            JoinKind::Semi => self.outer_rows(&outer, Some(&Self::matched(&pairs, rows)))?,
            JoinKind::Anti => {
                let matched = Self::matched(&pairs, rows);
                let unmatched = datafusion::arrow::compute::not(&matched)?;
                self.outer_rows(&outer, Some(&unmatched))?
            }
            JoinKind::Mark => {
                let wanted = self.wanted.iter();
                let columns = wanted.filter_map(|at| outer.columns().get(*at).cloned());
                let mut columns: Vec<ArrayRef> = columns.collect();
                columns.push(Arc::new(Self::matched(&pairs, rows)));
                batch_of(&self.schema, columns, rows)?
            }
        };
        run.charge(&batch)?;
        Ok(batch)
    }

    fn text(&self) -> String {
        let way = match self.keys.is_empty() {
            true => "of all pairs",
            false => "by key",
        };
        let kind = match self.kind {
            JoinKind::Inner => "inner",
            JoinKind::Outer => "outer",
            JoinKind::Semi => "semi",
            JoinKind::Anti => "anti",
            JoinKind::Mark => "mark",
        };
        match self.text.is_empty() {
            true => format!("Join: {kind}, {way}"),
            false => format!("Join: {kind}, {way}, on {}", self.text),
        }
    }

    fn inputs(&self) -> Vec<&Node> {
        vec![&self.outer, &self.inner]
    }
}
