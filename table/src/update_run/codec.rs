//! Committed tail records as the records of a sorted run.

use super::group::{self, BlockTimes};
use super::{RunRecord, RunRecordKind};
use std::sync::Arc;
use strandline_base::bytes::ByteReader;
use strandline_base::value_words::bytes_of;
use strandline_base::{ColumnId, CommitTs, Error, Result, RowId, SqlType, Value};
use strandline_storage::run::{RunCodec, RunItem};
use strandline_tail::schema::StorageSchema;

/// Encodes and decodes groups of update records.
#[derive(Clone, Debug)]
pub struct UpdateCodec {
    /// sorted by column
    types: Arc<[(ColumnId, SqlType)]>,
}

impl UpdateCodec {
    /// `types` are the columns to read; values of all others (of dropped columns) are passed over.
    pub fn new(types: &[(ColumnId, SqlType)]) -> Self {
        let mut types = types.to_vec();
        types.sort_by_key(|(column, _)| *column);
        let types = types.into();
        Self { types }
    }

    /// Reads all columns of `schema`.
    pub fn of(schema: &StorageSchema) -> Self {
        let types: Vec<_> = schema.iter().map(|(id, c)| (id, c.sql_type)).collect();
        Self::new(&types)
    }

    fn type_of(&self, column: ColumnId) -> Option<SqlType> {
        let at = self.types.binary_search_by_key(&column, |(c, _)| *c).ok()?;
        Some(self.types[at].1)
    }
}

impl RunCodec for UpdateCodec {
    type Record = RunRecord;
    type Origin = BlockTimes;

    fn origin(group: &[RunRecord]) -> BlockTimes {
        BlockTimes::near(group)
    }

    fn put_origin(origin: BlockTimes, out: &mut Vec<u8>) {
        origin.put(out);
    }

    fn take_origin(reader: &mut ByteReader<'_>) -> Option<BlockTimes> {
        BlockTimes::take(reader)
    }

    fn put_group(out: &mut Vec<u8>, group: &[RunRecord], origin: BlockTimes) -> Result<()> {
        if group::put_records(out, group, origin) {
            return Ok(());
        }
        let row = group.first().map(RunItem::row);
        let what = format!("a record of {row:?} with a column twice");
        Err(Error::internal(what))
    }

    fn take_group(&self, row: RowId, bytes: &[u8], origin: BlockTimes) -> Option<Vec<RunRecord>> {
        group::take_records(row, bytes, origin, |column| self.type_of(column))
    }
}

impl RunItem for RunRecord {
    fn row(&self) -> RowId {
        self.row
    }

    fn ts(&self) -> CommitTs {
        self.ts
    }

    fn is_version(&self) -> bool {
        self.kind != RunRecordKind::OldValue
    }

    fn may_precede(&self, next: &Self) -> bool {
        self.row < next.row
            || (self.row == next.row
                && match (self.is_version(), next.is_version()) {
                    (false, true) => false,
                    (true, false) => true,
                    _ => self.ts >= next.ts,
                })
    }

    fn single_bytes(&self) -> usize {
        let bytes = |value: &Value| bytes_of(value).map_or(8, <[u8]>::len);
        let columns = self.columns.iter();
        8 + columns.map(|(_, value)| 2 + bytes(value)).sum::<usize>()
    }
}
