//! Identifiers. All are plain integers on disk (little-endian) and newtypes in code.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Rows of one range, the merge unit \[L-Store §4.4\]: 2^16.
pub const RANGE_ROWS: usize = 1 << 16;
/// Rows of one update range, the unit of tail pages \[L-Store §4.4\]: 2^12.
pub const UPDATE_ROWS: usize = 1 << 12;
/// Update ranges per range.
pub const UPDATE_RANGES: usize = RANGE_ROWS / UPDATE_ROWS;
/// Rows of one block, the unit of random read of a chunk.
pub const BLOCK_ROWS: usize = 1 << 12;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[derive(Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A table in the catalog, stable for life, never reused.
    TableId(u32)
);
id!(
    /// The stored rows of a table. TRUNCATE gives a table a new storage; the old one lives on for
    /// AS OF until the retention has passed. Never reused.
    StorageId(u32)
);
id!(
    /// A column of one table: the position at which it was added, never reused after a DROP.
    ColumnId(u32)
);
id!(
    /// The number of a 2^16-row range inside a storage.
    RangeNo(u32)
);
id!(
    /// A commit timestamp: microseconds since the Unix epoch, strictly increasing over the life of
    /// a database, in commit order (= log order).
    CommitTs(u64)
);

impl CommitTs {
    /// Before every commit.
    pub const ZERO: CommitTs = CommitTs(0);
    /// After every commit.
    pub const MAX: CommitTs = CommitTs((1 << 62) - 1);
}

/// The stable identity of a row inside its storage: range number and slot.
/// The papers' base RID \[L-Store §2.2\] and LID \[Indirection §2\].
#[doc(alias("RID", "LID"))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RowId(pub u64);

impl RowId {
    /// The row at `slot` of `range`.
    pub fn new(range: RangeNo, slot: u16) -> Self {
        Self((u64::from(range.0) << 16) | u64::from(slot))
    }
    /// The range that holds this row.
    pub fn range(self) -> RangeNo {
        RangeNo((self.0 >> 16) as u32)
    }
    /// The slot inside the range, below [`RANGE_ROWS`].
    pub fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

impl fmt::Debug for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowId({}:{})", self.range().0, self.slot())
    }
}
