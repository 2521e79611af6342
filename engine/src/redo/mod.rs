//! The log record of a transaction: all its changes as one unit, redo only \[L-Store §5.1.3\].
//!
//! `docs/format.md` has every byte. A record is a version byte, the commit timestamp (patched in
//! under the log's lock) and operations. An operation begins with the byte of its kind.
//!
//! Each kind of operation is a file of this room. The file has the encoding, the scope (the reads
//! and files that the operation concerns), the replay and the name. [`KINDS`] lists it; no other
//! code names it.
//!
//! Changes of rows are applied in batches on several threads, each range by one thread. All other
//! operations are applied alone, after the changes of rows that were logged before them. Values of
//! identity columns do not concern rows and do not end a batch.

mod definitions;
mod identities;
mod loads;
mod restoration;
mod rows;
mod values;

pub(crate) use definitions::put_definition;
pub(crate) use identities::put_drawn;
pub(crate) use loads::put_load;
pub(crate) use restoration::Restoration;
pub(crate) use rows::{RowOperation, put_change, put_insert};

use std::fmt::Debug;
use std::ops::Range;
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{CommitTs, Error, RangeNo, Result, RowId, StorageId};

const VERSION: u8 = 2;
const TS_AT: std::ops::Range<usize> = 1..9;
/// Bytes before the first operation.
pub const HEADER_BYTES: usize = 9;

/// Initial capacity of a record, enough for a small transaction.
const RECORD_BYTES: usize = 256;

/// Starts a record's bytes.
pub fn begin(out: &mut Vec<u8>) {
    out.clear();
    out.reserve(RECORD_BYTES);
    out.put_u8(VERSION);
    out.put_u64(0);
}

/// Puts the commit timestamp into a finished record.
pub fn set_commit_ts(record: &mut [u8], ts: CommitTs) {
    let place = record.get_mut(TS_AT).expect("a finished record has one");
    place.copy_from_slice(&ts.0.to_le_bytes());
}

/// The part of a record before its first operation.
pub(crate) fn header_of(record: &[u8]) -> &[u8] {
    record.get(..HEADER_BYTES).unwrap_or_default()
}

/// All kinds of operations.
pub(crate) const KINDS: [RedoKind; 6] = [
    rows::INSERT,
    rows::UPDATE,
    rows::DELETE,
    loads::LOAD,
    definitions::DEFINE,
    identities::DRAW,
];

/// A kind of operation.
pub(crate) struct RedoKind {
    /// the first byte of its operations
    pub tag: u8,
    /// name in the output of `inspect`
    pub name: &'static str,
    /// decodes an operation behind its tag; None: malformed
    pub decode: fn(&mut ByteReader<'_>) -> Option<Operation>,
}

/// One operation of a transaction.
#[derive(Debug)]
pub(crate) enum Operation {
    /// a change of one row
    Row(RowOperation),
    /// any other operation
    Other(Box<dyn OtherOperation>),
}

/// An operation that is not a change of one row.
pub(crate) trait OtherOperation: Debug + Send + Sync {
    /// The objects that the operation concerns.
    fn scope(&self) -> Scope;
    /// Whether a transaction with only this operation frees space, and is accepted on a full disk.
    fn frees_space(&self) -> bool;
    /// The numbers of the data files that the operation names.
    fn data_files(&self) -> Vec<u64> {
        Vec::new()
    }
    /// The range that the operation loads.
    fn loaded_range(&self) -> Option<RangeNo> {
        None
    }
    /// Applies the operation again. Earlier operations that it depends on have been restored.
    fn restore(&self, commit: &Commit<'_>, database: &mut Restoration) -> Result<()>;
}

/// The objects that an operation concerns. They determine which reads it may contradict, and
/// whether files already have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// one row
    Row(StorageId, RowId),
    /// many rows of a storage
    Storage(StorageId),
    /// the catalog; restored first, since the rows of its transaction depend on it
    Definitions,
    /// drawn values of identity columns
    Identities,
}

/// The transaction of an operation that is being restored.
pub(crate) struct Commit<'a> {
    /// its commit timestamp
    pub ts: CommitTs,
    /// the position of its record, for errors
    pub place: &'a str,
}

/// A decoded operation.
#[derive(Debug)]
pub(crate) struct Redo {
    /// position in [`KINDS`]
    pub kind: usize,
    /// its bytes in the record
    pub at: Range<usize>,
    /// the operation
    pub operation: Operation,
}

impl Scope {
    /// The storage whose rows the operation changes.
    pub fn storage(self) -> Option<StorageId> {
        match self {
            Self::Row(storage, _) | Self::Storage(storage) => Some(storage),
            Self::Definitions | Self::Identities => None,
        }
    }
}

impl Operation {
    /// The objects that the operation concerns.
    pub fn scope(&self) -> Scope {
        match self {
            Self::Row(row) => Scope::Row(row.storage, row.row),
            Self::Other(other) => other.scope(),
        }
    }

    /// The range that the operation loads.
    pub fn loaded_range(&self) -> Option<RangeNo> {
        match self {
            Self::Row(_) => None,
            Self::Other(other) => other.loaded_range(),
        }
    }

    /// The numbers of the data files that the operation names.
    pub fn data_files(&self) -> Vec<u64> {
        match self {
            Self::Row(_) => Vec::new(),
            Self::Other(other) => other.data_files(),
        }
    }

    /// Whether the operation frees space.
    pub fn frees_space(&self) -> bool {
        match self {
            Self::Row(row) => row.frees_space(),
            Self::Other(other) => other.frees_space(),
        }
    }
}

/// Decodes a record. The log has checked its checksum, so a malformed record is damage.
pub(crate) fn decode(record: &[u8], place: &str) -> Result<(CommitTs, Vec<Redo>)> {
    decode_record(record)
        .ok_or_else(|| Error::corrupt(place, "a transaction's log record is malformed"))
}

fn decode_record(record: &[u8]) -> Option<(CommitTs, Vec<Redo>)> {
    let mut r = ByteReader::new(record);
    if r.u8()? != VERSION {
        return None;
    }
    let ts = CommitTs(r.u64()?);
    let mut operations = Vec::new();
    while r.remaining() > 0 {
        let from = record.len() - r.remaining();
        let (kind, operation) = take_operation(&mut r)?;
        let at = from..record.len() - r.remaining();
        operations.push(Redo {
            kind,
            at,
            operation,
        });
    }
    Some((ts, operations))
}

fn take_operation(r: &mut ByteReader<'_>) -> Option<(usize, Operation)> {
    let tag = r.u8()?;
    let mut kinds = KINDS.iter().enumerate();
    let (kind, registered) = kinds.find(|(_, kind)| kind.tag == tag)?;
    let operation = (registered.decode)(r)?;
    Some((kind, operation))
}

#[cfg(test)]
mod tests;
