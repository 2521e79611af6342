//! The paper's two rivals [L-Store §6.1]: other ways to store rows, on the parts that we have.
//!
//! The paper compares three designs of storage inside one prototype. So do we: what is not storage
//! is shared with us, as code or at least as work.
//!
//! | part | shared code | the same work |
//! |---|---|---|
//! | primary index | `HashIndex`, `KeySequences` | a sequence per 65,536 loaded rows |
//! | transactions | `TxnManager`, its slots and snapshots | a slot for the first write |
//! | log | `Wal` on a `MemoryDevice` | a redo record of our format, relaxed durability |
//! | interface | `Value`, `ColumnId`, `Error` | keys, columns and types are checked |
//!
//! [`Storage`] is ours among them: the product's storage of rows on the rivals' transactions, log
//! and table, so that the designs are compared as in the paper. The whole product stands beside it.
//!
//! Their own are the storage of rows and its versions, and what keeps threads apart in it:
//!
//! * [`Iuh`]: *in-place update + history* with latched pages;
//! * [`Dbm`]: *delta + blocking merge*, which drains transactions.
//!
//! What is left of the product on our side only: sessions, the catalog's versions, a writer's
//! registration with its table, locks of a transaction's own state, statement numbers, deletion and
//! NULL, memory limits. The rivals are never written out and cannot be restarted; their scans are
//! loops, ours are SQL.
//!
//! Differences from the paper's: there logging was off for everybody, here all three log. In-place
//! updates would have to log undo as well; the rival logs redo only, which favours it.

mod dbm;
mod iuh;
mod log;
mod point;
mod storage;
mod table;
mod transactions;
mod versions;

#[cfg(test)]
mod tests;

pub use dbm::{Dbm, Layout};
pub use iuh::{Apart, Iuh};
pub use storage::Storage;

/// How the rivals run.
pub const SETTINGS: &str = "in this process on our index, transaction manager and log (device in \
                            memory, relaxed durability, cut by the merge thread); IUH: 32 KB pages \
                            of 341 rows, columns apart, a latch each; DBM: ranges of 4 096 rows, \
                            merged at 2 048 versions";
