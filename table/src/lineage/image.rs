//! A range as plain data: base rows with their metadata columns and row map heads, the records of
//! its tails \[L-Store §2.2, Tables 2–5\]. For inspection and for tests of the lineage; no query
//! uses it.
//!
//! Differences from the paper: the tables there show one space of tail RIDs; here records are
//! numbered per update range, from 1, and 0 is the paper's ⊥.

use crate::lineage::Lineage;
use crate::lineage::base::row_meta::{NEVER, RowMeta};
use crate::lineage::base::{BaseBody, BaseState, base_values};
use crate::lineage::range::{Range, RangeVersion};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, RangeNo, Result, RowId, UPDATE_ROWS, Value};
use strandline_tail::merge_watermarks::MergeWatermarks;
use strandline_tail::record_page::{RecordKind, RecordPage};
use strandline_txn::StartWord;

/// A range as of one load of its version.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeImage {
    /// the range's number
    pub no: RangeNo,
    /// whether its rows are still record pages (the paper's table-level tail pages)
    pub is_insert: bool,
    /// which commits are in the base, column by column (the paper's TPS)
    pub merged: MergeWatermarks,
    /// the base's rows in slot order
    pub rows: Vec<RowImage>,
    /// the records of its tails that are in memory, by update range and number
    pub records: Vec<RecordImage>,
}

/// A row of a base.
#[derive(Clone, Debug, PartialEq)]
pub struct RowImage {
    /// which row
    pub row: RowId,
    /// the number of its newest tail record, 0 if there is none (the paper's indirection)
    pub head: u64,
    /// its insertion; ABORTED for slots that hold no row
    pub start: StartWord,
    /// its newest merged update or deletion, zero if there is none
    pub last_updated: CommitTs,
    /// whether base has it as deleted
    pub is_deleted: bool,
    /// the columns whose updates have been merged (the paper's schema encoding)
    pub updated: Vec<ColumnId>,
    /// base's values, by column id
    pub values: Vec<Value>,
}

/// A tail record.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordImage {
    /// its number in its update range, from 1
    pub number: u64,
    /// the row it is about (the paper's base RID)
    pub row: RowId,
    /// the number of the row's record before, 0 if that is the base's row
    pub back: u64,
    /// kind of record
    pub kind: RecordKind,
    /// a transaction, the time of its commit, or ABORTED
    pub start: StartWord,
    /// the columns it has values of, and these
    pub columns: Vec<(ColumnId, Value)>,
}

impl Lineage {
    /// Lays `range` open. Reads all of its base.
    pub fn image(&self, range: &Range) -> Result<RangeImage> {
        let version = range.load_full();
        let (is_insert, slots, meta) = match &version.base.body {
            BaseBody::Insert(rows) => (true, rows.rows(), None),
            BaseBody::Chunks(chunks) => {
                let meta = chunks.meta.as_ref().map(|meta| meta.load()).transpose()?;
                (false, chunks.rows, meta)
            }
        };
        let mut rows = Vec::with_capacity(slots as usize);
        for slot in 0..slots as usize {
            rows.push(self.row_image(range.no(), &version, slot, meta.as_ref())?);
        }
        Ok(RangeImage {
            no: range.no(),
            is_insert,
            merged: version.base.merged(),
            rows,
            records: self.record_images(range.no(), &version)?,
        })
    }

    fn row_image(
        &self,
        no: RangeNo,
        version: &RangeVersion,
        slot: usize,
        meta: Option<&Arc<RowMeta>>,
    ) -> Result<RowImage> {
        let schema = self.schema();
        let tail = version.tails[slot / UPDATE_ROWS].as_ref();
        let mut values = vec![Value::Null; schema.len()];
        let columns = schema.iter().map(|(column, _)| column).enumerate();
        base_values(&version.base, slot, columns, &schema, |at, value| {
            values[at] = value;
        })?;
        let updated = meta.map_or_else(Vec::new, |meta| {
            let updated = schema.iter().filter(|(c, _)| meta.was_updated(slot, *c));
            updated.map(|(column, _)| column).collect()
        });
        Ok(RowImage {
            row: RowId::new(no, slot as u16),
            head: tail.map_or(0, |tail| {
                let entry = tail.row_map().entry(slot % UPDATE_ROWS);
                tail.pages().head(entry)
            }),
            start: match meta {
                Some(meta) if meta.starts[slot] == NEVER => StartWord::ABORTED,
                Some(meta) => StartWord(meta.starts[slot]),
                None => uniform_start(&version.base, slot),
            },
            last_updated: CommitTs(meta.map_or(0, |meta| meta.last_updated[slot])),
            is_deleted: meta.is_some_and(|meta| meta.deleted.get(slot)),
            updated,
            values,
        })
    }

    fn record_images(&self, no: RangeNo, version: &RangeVersion) -> Result<Vec<RecordImage>> {
        let mut records = Vec::new();
        for (at, tail) in version.tails.iter().enumerate() {
            let Some(tail) = tail else { continue };
            for page in tail.pages().iter() {
                for i in 0..page.claimed() {
                    if page.start(i) != StartWord::UNPUBLISHED {
                        records.push(self.record_image(no, at * UPDATE_ROWS, page, i)?);
                    }
                }
            }
        }
        Ok(records)
    }

    fn record_image(
        &self,
        no: RangeNo,
        first_slot: usize,
        page: &RecordPage,
        i: u32,
    ) -> Result<RecordImage> {
        let schema = self.schema();
        let (slot, kind) = page.slot_kind(i);
        let columns: Result<Vec<(ColumnId, Value)>> = page
            .columns_of(i)
            .map(|column| Ok((column, page.value(i, column, schema.column(column))?)))
            .collect();
        Ok(RecordImage {
            number: page.first() + u64::from(i) + 1,
            row: RowId::new(no, (first_slot + usize::from(slot)) as u16),
            back: page.back(i),
            kind,
            start: page.start(i),
            columns: columns?,
        })
    }
}

/// The start of a row of a base without row metadata.
fn uniform_start(base: &BaseState, slot: usize) -> StartWord {
    match &base.body {
        BaseBody::Insert(rows) => match rows.existing_page(slot) {
            Some((page, i)) => page.start(i),
            None => StartWord::UNPUBLISHED,
        },
        BaseBody::Chunks(chunks) => chunks.start.load(),
    }
}
