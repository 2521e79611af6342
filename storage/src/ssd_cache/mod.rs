//! The persistent second-level cache on the fast tier, between the memory pool's evictions and the
//! capacity tier: *PC* of the SSD-DB thesis [SSD-DB §2.4 to §2.6], for pages and column blocks.
//!
//! A reader asks the memory pool, then [`SsdCache::read`], then the capacity tier. Blocks enter
//! when they are evicted from memory ([`SsdCache::evict`]). The cache is write-back: its version of
//! a block may be fresher than the capacity tier's. Slots and a directory are persistent, so that a
//! checkpoint copies nothing out, recovery reads through the cache, and the cache is warm after it.
//!
//! Invariants (contract, protocol and crash cases: docs/rfcs/2-ssd-cache.md):
//! 1. Memory is at least as fresh as the cache, the cache at least as fresh as the capacity tier.
//! 2. The durable directory lists a slot only after the slot's content is durable.
//! 3. A slot listed as clean has the same bytes as the capacity tier durably has. It is never
//!    overwritten.
//! 4. A slot is used again only after its removal from the directory is durable; a fresh block is
//!    removed only after the capacity tier's copy is durable.
//! 5. After a [`Checkpoint::finish`] the marker on the capacity tier names every file of which the
//!    cache has a fresher block.
//! 6. After a failed sync no write is accepted. A failed write of the directory is repaired by a
//!    directory in another file.
//!
//! Lock order: `maintenance` → `state`. No I/O is done under `state`. Only steps, checkpoints and
//! changes of the size take `maintenance`, which is held during syncs; reads and evictions never
//! do. Threads wait on `written` for the end of another thread's write of the same block.
//!
//! Differences from the paper:
//! * An eviction never evicts from the cache itself. Steps that the caller drives keep slots free
//!   ahead; without a free slot a clean block is refused and a dirty one goes to the capacity tier.
//! * Rounds run one at a time. So a round of `pc` copies as many fresh victims out as evictions
//!   have found no slot since the last one; in the thesis each of these threads evicts one.
//! * A fresh victim's fresh neighbours in its file are copied out with it, and stay.
//! * The first dirty version of a block that is cached clean goes to another slot. The thesis
//!   overwrites the slot and sets a flag; a crash between the two would leave a slot that is
//!   fresher than its flag says, and recovery could later drop it.
//! * The directory is a log of changes instead of an array (`directory`), since entries can be
//!   torn.
//! * A block that idle cleaning has copied out stays listed as fresh, so that cleaning does not
//!   write the directory; after a restart it counts as fresh again.
//! * `pc2` copies its batch block after block under one sync, without asynchronous requests.
//! * A clean block whose write on the capacity tier is not synced is not admitted.
//!
//! | module | contents |
//! |---|---|
//! | `settings`, `capacity`, `counters` | settings; the capacity tier as a trait; counts |
//! | `slots`, `directory`, `marker` | the three files |
//! | `free_slots`, `state`, `clock` | free slots; the memory-resident directory; its victims |
//! | `core` | the cache's parts, copies to the capacity tier, failures |
//! | `read`, `evict`, `round`, `checkpoint` | operations |
//! | `open`, `loss`, `check` | opening; lost caches; the inspector |

mod capacity;
mod check;
mod checkpoint;
mod clock;
mod core;
mod counters;
mod directory;
mod evict;
mod free_slots;
mod loss;
mod marker;
mod open;
mod read;
mod round;
mod settings;
mod slots;
mod state;
#[cfg(test)]
mod tests;

pub use self::core::SsdCache;
pub use capacity::Capacity;
pub use check::{Inspection, inspect};
pub use checkpoint::Checkpoint;
pub use counters::Stats;
pub use directory::DIRECTORY_FILE;
pub use evict::Evicted;
pub use loss::Loss;
pub use marker::MARKER_FILE;
pub use settings::{Admission, BlockKey, Mode, OnLoss, Settings};
pub use slots::SLOTS_FILE;
