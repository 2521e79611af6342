//! A table as a statement writes it.

use super::Statement;
use crate::catalog::TableDef;
use crate::store::{Store, StoredIndex, key_index, secondary_index};
use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use strandline_base::{ColumnId, Result, Value};
use strandline_tail::change::Writer;

/// A table, its rows and its indexes for one statement, whose transaction is registered as a writer
/// of the table: its definition, and with it the set of its indexes, does not change meanwhile.
pub(crate) struct WriteTarget<'a> {
    pub table: &'a Arc<TableDef>,
    pub store: Arc<Store>,
    pub writer: Writer,
    /// looked up by the first row that is entered into one
    indexes: OnceCell<TableIndexes>,
    /// the buffer of `with_columns`
    key_columns: Cell<Vec<Value>>,
}

/// The indexes of a table in the order of its definition.
pub(super) struct TableIndexes {
    /// by `TableDef::keys`
    pub keys: Vec<Arc<StoredIndex>>,
    /// by `TableDef::indexes`
    pub secondary: Vec<Arc<StoredIndex>>,
}

impl Statement {
    /// `table`, with this transaction registered as a writer of it.
    pub(crate) fn writable<'a>(&self, table: &'a Arc<TableDef>) -> Result<WriteTarget<'a>> {
        let store = self.txn.db().store(table.storage)?;
        let word = self.txn.lock_store(&store)?;
        self.check_definition(table)?;
        self.txn.db().check_mergeable(&store)?;
        self.txn.admit_write()?;
        Ok(WriteTarget {
            table,
            store,
            writer: Writer {
                word,
                statement: self.visibility.statement,
                snapshot: self.visibility.ts,
                speculative: self.txn.options().speculative,
            },
            indexes: OnceCell::new(),
            key_columns: Cell::default(),
        })
    }
}

impl WriteTarget<'_> {
    /// The table's indexes.
    pub(super) fn indexes(&self) -> Result<&TableIndexes> {
        if let Some(known) = self.indexes.get() {
            return Ok(known);
        }
        let found = TableIndexes::of(self.table, &self.store)?;
        Ok(self.indexes.get_or_init(|| found))
    }

    /// Calls `work` with the values of an index's columns in a row whose `values` are by column id.
    pub(super) fn with_columns<R>(
        &self,
        columns: &[ColumnId],
        values: &[Value],
        work: impl FnOnce(&[Value]) -> R,
    ) -> R {
        if let [column] = columns {
            return work(std::slice::from_ref(&values[column.0 as usize]));
        }
        let mut gathered = self.key_columns.take();
        gathered.extend(columns.iter().map(|id| values[id.0 as usize].clone()));
        let result = work(&gathered);
        gathered.clear();
        self.key_columns.set(gathered);
        result
    }
}

impl TableIndexes {
    /// Those of `table`, which the transaction is registered with.
    pub fn of(table: &TableDef, store: &Store) -> Result<Self> {
        let keys = table.keys.iter();
        let secondary = table.indexes.iter();
        Ok(Self {
            keys: keys
                .map(|key| key_index(store, &key.columns))
                .collect::<Result<_>>()?,
            secondary: secondary
                .map(|def| secondary_index(store, def.id))
                .collect::<Result<_>>()?,
        })
    }
}
