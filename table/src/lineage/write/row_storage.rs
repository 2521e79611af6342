//! The base, insert range or chunks, as the write protocol reads it.

use crate::lineage::Lineage;
use crate::lineage::base::row_meta::NEVER;
use crate::lineage::base::{BaseBody, BaseState, MetaBlob, base_values};
use arc_swap::Guard;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result, Value};
use strandline_tail::change::Writer;
use strandline_tail::column_set::ColumnSet;
use strandline_tail::record_page::PageBytes;
use strandline_tail::schema::StorageSchema;
use strandline_tail::visibility::{RecordState, record_state, resolve};
use strandline_tail::write::RowStorage;
use strandline_txn::{StartWord, TxnManager};

impl RowStorage for Lineage {
    type Base = BaseState;

    #[inline]
    fn page_bytes(&self) -> &PageBytes {
        &self.shared.page_bytes
    }

    #[inline]
    fn txns(&self) -> &TxnManager {
        &self.shared.txns
    }

    #[inline]
    fn current_schema(&self) -> Guard<Arc<StorageSchema>> {
        self.load_schema()
    }

    #[inline]
    fn base_state(&self, base: &BaseState, slot: usize, writer: &Writer) -> Result<RecordState> {
        let txns = &self.shared.txns;
        match &base.body {
            BaseBody::Insert(rows) => Ok(match rows.existing_page(slot) {
                Some((page, i)) => record_state(page, i, writer.word, txns),
                None => RecordState::Nothing,
            }),
            BaseBody::Chunks(chunks) if slot >= chunks.rows as usize => Ok(RecordState::Nothing),
            BaseBody::Chunks(chunks) => match &chunks.meta {
                None => Ok(resolve(|| chunks.start.load(), writer.word, txns)),
                Some(meta) => state_of_meta(meta, slot, writer),
            },
        }
    }

    fn base_start(&self, base: &BaseState, slot: usize) -> Result<(StartWord, u32)> {
        Ok(match &base.body {
            BaseBody::Insert(rows) => match rows.existing_page(slot) {
                Some((page, i)) => (page.start(i), page.statement(i)),
                None => (StartWord::ABORTED, 0),
            },
            BaseBody::Chunks(chunks) => match &chunks.meta {
                Some(meta) => (StartWord(meta.load()?.starts[slot]), 0),
                None => (chunks.start.load(), chunks.start.statement),
            },
        })
    }

    #[inline]
    fn merged_through(&self, base: &BaseState) -> CommitTs {
        base.merged_through()
    }

    #[inline]
    fn remove_updated(&self, base: &BaseState, slot: usize, columns: &mut ColumnSet) -> Result<()> {
        if let BaseBody::Chunks(chunks) = &base.body
            && let Some(meta) = &chunks.meta
        {
            let meta = meta.load()?;
            columns.retain(|column| !meta.was_updated(slot, column));
        }
        Ok(())
    }

    fn base_values(
        &self,
        base: &BaseState,
        slot: usize,
        columns: &ColumnSet,
        schema: &StorageSchema,
    ) -> Result<Vec<(ColumnId, Value)>> {
        let mut values = Vec::new();
        // What the row's block does not have comes from the chunks themselves.
        let mut others = columns.clone();
        if let BaseBody::Chunks(chunks) = &base.body {
            let pool = &self.shared.pool;
            chunks.read_row(slot, columns.iter(), pool, |row| {
                others.retain(|column| {
                    let mut value = Value::Null;
                    let is_held = row.read(column, &mut value);
                    if is_held {
                        values.push((column, value));
                    }
                    !is_held
                });
            })?;
        }
        let others: Vec<ColumnId> = others.iter().collect();
        let positions = others.iter().copied().enumerate();
        base_values(base, slot, positions, schema, |at, value| {
            values.push((others[at], value));
        })?;
        Ok(values)
    }
}

/// The state of a row whose times are in the range's metadata.
#[inline(never)]
fn state_of_meta(meta: &MetaBlob, slot: usize, writer: &Writer) -> Result<RecordState> {
    let meta = meta.load()?;
    let newest = meta.starts[slot].max(meta.last_updated[slot]);
    let is_deleted = meta.deleted.get(slot) && newest <= writer.snapshot.0;
    Ok(match is_deleted || meta.starts[slot] == NEVER {
        true => RecordState::Nothing,
        false => RecordState::Committed(CommitTs(newest)),
    })
}
