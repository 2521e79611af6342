//! Keys → row ids. [`AccessMethod`] is what an index can be asked; for now there is one method, a
//! memory-resident multimap rebuilt at open ([`MemoryIndex`]: a [`HashIndex`] of all entries, with
//! [`KeySequences`] as a short cut). Ordered methods, and methods on a device, take their places
//! behind the same trait.

mod access_method;
mod hash_index;
mod key_hash;
mod memory_index;
mod row_keys;
mod sequences;

pub use access_method::{
    AccessMethod, BulkLoad, Capabilities, Cursor, Direction, Found, KeyBytes, KeyRange,
};
pub use hash_index::HashIndex;
pub use key_hash::{hash_integer, hash_key, is_same_key};
pub use memory_index::MemoryIndex;
pub use row_keys::RowKeys;
pub use sequences::{KeySequence, KeySequences, integer_key};
