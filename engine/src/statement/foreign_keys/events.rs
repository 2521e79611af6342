//! The changes that a statement notes for foreign keys, as a queue. Once they are many, they count
//! among what the transaction keeps, and are refused like its writes.

use super::{ColumnValues, ParentChange};
use crate::catalog::TableDef;
use crate::db::backpressure::SMALL_BYTES;
use crate::db::memory_account::HeldBytes;
use crate::store::Store;
use crate::transaction::Transaction;
use std::collections::VecDeque;
use std::sync::Arc;
use strandline_base::{ColumnId, RangeNo, Result, RowId, Value};

/// A change that foreign keys look at.
pub(crate) enum RowEvent {
    /// rows of a referencing table are new, or have new values in referencing columns
    Child {
        /// the referencing table
        table: Arc<TableDef>,
        /// its rows
        store: Arc<Store>,
        /// the changed rows
        rows: Vec<RowId>,
    },
    /// a range of a referencing table was bulk-loaded
    ChildRange {
        /// the referencing table
        table: Arc<TableDef>,
        /// its rows
        store: Arc<Store>,
        /// the one that was loaded
        range: RangeNo,
    },
    /// a row of a referenced table went or has another key
    Parent(ParentChange),
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct RowEvents {
    queue: VecDeque<RowEvent>,
    /// bytes that the events keep beside the queue
    heap: usize,
    /// None: they are few
    held: Option<HeldBytes>,
}

impl RowEvent {
    /// Bytes that it keeps beside itself.
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Child { rows, .. } => rows.capacity() * size_of::<RowId>(),
            Self::ChildRange { .. } => 0,
            Self::Parent(change) => {
                let new = change.new.as_ref();
                values_bytes(&change.old) + new.map_or(0, values_bytes)
            }
        }
    }
}

fn values_bytes(values: &ColumnValues) -> usize {
    let heap = values.iter().map(|(_, value)| match value {
        Value::Text(text) => text.len(),
        Value::Bytea(bytes) => bytes.len(),
        Value::Box(corners) => corners.as_bytes().len(),
        _ => 0,
    });
    values.capacity() * size_of::<(ColumnId, Value)>() + heap.sum::<usize>()
}

impl RowEvents {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a change.
    ///
    /// # Errors
    /// 53200 if the transaction keeps too much.
    pub fn push(&mut self, event: RowEvent, txn: &Transaction) -> Result<()> {
        self.heap += event.heap_bytes();
        self.queue.push_back(event);
        self.hold(txn)
    }

    /// Adds a row of a referencing table.
    ///
    /// # Errors
    /// 53200 if the transaction keeps too much.
    pub fn push_child(
        &mut self,
        (table, store): (&Arc<TableDef>, &Arc<Store>),
        row: RowId,
        txn: &Transaction,
    ) -> Result<()> {
        if let Some(RowEvent::Child {
            table: last,
            store: last_store,
            rows,
        }) = self.queue.back_mut()
            && Arc::ptr_eq(last, table)
            && Arc::ptr_eq(last_store, store)
        {
            let before = rows.capacity();
            rows.push(row);
            let more = rows.capacity() - before;
            self.heap += more * size_of::<RowId>();
            return if more > 0 { self.hold(txn) } else { Ok(()) };
        }
        let (table, store, rows) = (table.clone(), store.clone(), vec![row]);
        self.push(RowEvent::Child { table, store, rows }, txn)
    }

    /// Adds all of `others` at the end.
    ///
    /// # Errors
    /// 53200 if the transaction keeps too much.
    pub fn append(&mut self, mut others: Self, txn: &Transaction) -> Result<()> {
        self.queue.append(&mut others.queue);
        self.heap += others.heap;
        drop(others);
        self.hold(txn)
    }

    /// Takes the oldest change, which counts until the next call.
    pub fn pop(&mut self) -> Option<RowEvent> {
        if let Some(held) = &mut self.held {
            held.set(self.queue.capacity() * size_of::<RowEvent>() + self.heap);
        }
        let event = self.queue.pop_front()?;
        self.heap -= event.heap_bytes();
        Some(event)
    }

    fn hold(&mut self, txn: &Transaction) -> Result<()> {
        let bytes = self.queue.capacity() * size_of::<RowEvent>() + self.heap;
        match bytes < SMALL_BYTES {
            true => Ok(()),
            false => txn.hold_checks(&mut self.held, bytes),
        }
    }
}
