//! The changes that a transaction is going to make: its redo record.
//!
//! ```text
//! varint  writes; for each:
//!   u8      0 row: u8 table, u64 row id, bytes of the row
//!           1 entry added, 2 entry removed: u8 index, u64 row id, bytes of the key
//! ```
//!
//! Every write is absolute: made twice it has the effect of once.

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{CommitTs, Error, Result, RowId};
use strandline_index::{AccessMethod, KeyBytes};

use super::tables::{Index, Tables};
use crate::rows::{Row, Table};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Write {
    Row {
        table: Table,
        row: RowId,
        bytes: Vec<u8>,
    },
    Add {
        index: Index,
        row: RowId,
        key: KeyBytes,
    },
    Remove {
        index: Index,
        row: RowId,
        key: KeyBytes,
    },
}

impl Write {
    /// The table of a row.
    fn table(&self) -> Option<Table> {
        match self {
            Self::Row { table, .. } => Some(*table),
            Self::Add { .. } | Self::Remove { .. } => None,
        }
    }

    /// The place and bytes of a row.
    fn row(&self) -> Option<(RowId, &[u8])> {
        match self {
            Self::Row { row, bytes, .. } => Some((*row, bytes)),
            Self::Add { .. } | Self::Remove { .. } => None,
        }
    }
}

/// The changes of one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteSet {
    writes: Vec<Write>,
}

impl WriteSet {
    /// Sets a row, new or not.
    pub fn set<R: Row>(&mut self, row: RowId, value: &R) {
        self.writes.push(Write::Row {
            table: R::TABLE,
            row,
            bytes: value.encode(),
        });
    }

    /// Adds an entry.
    pub fn add(&mut self, index: Index, key: KeyBytes, row: RowId) {
        self.writes.push(Write::Add { index, row, key });
    }

    /// Removes an entry.
    pub fn remove(&mut self, index: Index, key: KeyBytes, row: RowId) {
        self.writes.push(Write::Remove { index, row, key });
    }

    /// Makes the changes.
    ///
    /// # Errors
    /// Those of the pages; then any part of the changes is made.
    pub fn apply(&self, tables: &Tables) -> Result<()> {
        // Neighbouring rows of one table may share a page.
        let is_together = |a: &Write, b: &Write| a.table().is_some() && a.table() == b.table();
        for writes in self.writes.chunk_by(is_together) {
            if let Some(table) = writes.first().and_then(Write::table) {
                let rows = writes.iter().filter_map(Write::row);
                tables.heap(table).put(rows)?;
            }
            for write in writes {
                match write {
                    Write::Row { .. } => {}
                    Write::Add { index, row, key } => {
                        tables.index(*index).add(key, *row)?;
                    }
                    Write::Remove { index, row, key } => {
                        tables.index(*index).retire(key, *row, CommitTs::ZERO)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The redo record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.writes.len() as u64);
        for write in &self.writes {
            let (kind, number, row, bytes) = match write {
                Write::Row { table, row, bytes } => (0, *table as u8, row, bytes.as_slice()),
                Write::Add { index, row, key } => (1, *index as u8, row, key.as_slice()),
                Write::Remove { index, row, key } => (2, *index as u8, row, key.as_slice()),
            };
            out.put_u8(kind);
            out.put_u8(number);
            out.put_u64(row.0);
            out.put_bytes(bytes);
        }
    }

    /// Reads a redo record.
    ///
    /// # Errors
    /// XX001 if the bytes are none.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<Self> {
        let count = reader.varint().unwrap_or(0);
        let writes = (0..count).map(|_| decode_write(reader));
        let writes: Option<Vec<Write>> = writes.collect();
        let damaged = || Error::corrupt("a transaction's record in the log", "not readable");
        Ok(Self {
            writes: writes.ok_or_else(damaged)?,
        })
    }
}

fn decode_write(reader: &mut ByteReader<'_>) -> Option<Write> {
    let (kind, number) = (reader.u8()?, usize::from(reader.u8()?));
    let row = RowId(reader.u64()?);
    let bytes = reader.bytes()?.to_vec();
    if kind == 0 {
        let table = *Table::ALL.get(number)?;
        return Some(Write::Row { table, row, bytes });
    }
    let index = *Index::ALL.get(number)?;
    let key = KeyBytes::encoded(bytes);
    match kind {
        1 => Some(Write::Add { index, row, key }),
        2 => Some(Write::Remove { index, row, key }),
        _ => None,
    }
}
