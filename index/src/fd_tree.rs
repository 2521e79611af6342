//! The FD+tree with FD+FC [FD+ §2–4]: an ordered index on the fast tier. Modifications go into a
//! head in memory; levels below it are runs of blocks, joined by fences; a compaction replaces the
//! upper levels beside readers and writers. `fd_index` is the access method over it.
//!
//! docs/rfcs/3-fd-tree.md has the invariants I1 to I6, the protocol and the crash cases.
//!
//! Lock order: the turn and its line (`drive`), gate (mode `Xm`), latch of an entry, compactor,
//! state, places of a level. No device is read or written under the state's or the line's lock.
//!
//! Differences from the paper:
//! * A fence has an ordinal of the next level, whose list of block numbers is in memory (24 bytes a
//!   block), instead of a block's address.
//! * Readers hold an era instead of coupling locks of blocks; a reclaimed block is freed when no
//!   reader of its era is left and an image without it is durable.
//! * A compaction begins at half of the head's budget, so that ascending keys, which the wavefront
//!   meets last, have room. Writers pay for it ahead, step by step (`budget`, `drive`).
//! * A level has Bloom filters of its keys or entries, which are written with its blocks (`filter`,
//!   `partition`, `filtering`), and a load is a source of a compaction (`load`).
//! * Besides prefix-compressed blocks there are tables of entries of one width (`block`).
//! * A compaction keeps the blocks of the lowest replaced level that lie before all other entries,
//!   in place of writing them again: ascending keys write each block of a level about once
//!   (`compaction`; RFC 3, "Kept blocks").
//! * A key has at most one data entry in a level: duplicates are different entries.
//! * Sizes are bytes: I3 allows a quarter more and 2 blocks.

mod batch;
mod block;
mod budget;
mod buffer;
mod builder;
mod check;
mod compaction;
mod drive;
mod estimate;
mod filter;
mod filter_memory;
mod filtering;
mod finalize;
mod head;
mod head_memory;
mod head_size;
mod image;
mod inspect;
mod level;
mod load;
mod loaded;
mod lookup;
mod partition;
mod partitions;
mod places;
mod plan;
mod progress;
mod read_ahead;
mod scan;
mod sorted_lookup;
mod sources;
mod state;
mod tree;

pub use filter::FilterOf;
pub use filter_memory::FilterMemory;
pub use head_memory::HeadMemory;
pub use inspect::{LevelFigures, Side, TreeFigures};
pub use state::{Mode, Settings};
pub(crate) use tree::Entries;
pub use tree::FdTree;

#[cfg(all(test, not(shuttle)))]
mod tests;
