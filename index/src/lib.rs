//! Keys → row ids. [`AccessMethod`] is the interface of an index. Two methods are memory-resident
//! and rebuilt at open: [`MemoryIndex`], a [`HashIndex`] of all entries with [`KeySequences`] as a
//! short cut, and [`OrderedIndex`], a B-link tree. [`PagedIndex`] is a B-tree on the pages of a
//! file, [`SpatialIndex`] an R-tree over boxes on such pages. [`LidIndex`] has blocks on the fast
//! tier before a [`PagedIndex`]. [`FdIndex`] is an FD+tree in levels of
//! blocks that are written in sequence. [`UnusableIndex`] takes the place of an index that could
//! not be built.
//!
//! Rooms, lowest first; a room imports only from rooms above it in this table:
//!
//! | room | what is in it |
//! |---|---|
//! | `key_hash`, `sequences` | hashes of keys; keys that follow each other as their rows do |
//! | `rect` | boxes and conditions on them |
//! | `access_method` | the interface of an index |
//! | `hash_index`, `row_keys` | entries by hash; entries of rows that change their keys |
//! | `ordered_key` | keys as bytes that are ordered as their values |
//! | `entry`, `sorted_load` | entries of indexes on a device; bulk loads of sorted entries |
//! | `fd_tree` | entries in levels of blocks |
//! | `tree_pages` | what the trees on pages have in common |
//! | `memory_index`, `ordered_index`, `search_tree`, `r_tree` | access methods |
//! | `fd_index`, `unusable_index` | access methods |
//! | `lid_block` | the search tree with blocks on the fast tier before it |

mod access_method;
mod entry;
mod fd_index;
mod fd_tree;
mod hash_index;
mod key_hash;
mod lid_block;
mod memory_index;
mod ordered_index;
mod ordered_key;
mod r_tree;
mod rect;
mod row_keys;
mod search_tree;
mod sequences;
mod sorted_load;
mod tree_pages;
mod unusable_index;

pub use access_method::{
    AccessMethod, BulkLoad, Capabilities, Collision, Cursor, Direction, KeyBytes, KeyRange, Lookup,
    NearestCursor, Neighbour, OldestSnapshot, SpatialMethod,
};
pub use fd_index::{FdIndex, FdIndexSettings};
pub use fd_tree::{
    FdTree, FilterMemory, FilterOf, HeadMemory, LevelFigures, Mode as FdTreeMode,
    Settings as FdTreeSettings, Side as LevelSide, TreeFigures,
};
pub use hash_index::HashIndex;
pub use key_hash::{hash_integer, hash_key, is_same_key};
pub use lid_block::{BlockKind, LidForm, LidIndex};
pub use memory_index::MemoryIndex;
pub use ordered_index::OrderedIndex;
pub use ordered_key::{OrderedKeys, PartOrder};
pub use r_tree::{SPATIAL_NODE_BYTES_MIN, SpatialIndex, SpatialIndexSettings};
pub use rect::{Rect, SpatialQuery};
pub use row_keys::RowKeys;
pub use search_tree::{NODE_BYTES_MIN, PagedIndex, PagedIndexSettings};
pub use sequences::{KeySequence, KeySequences, integer_key};
pub use unusable_index::UnusableIndex;
