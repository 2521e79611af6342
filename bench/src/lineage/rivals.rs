//! The paper's two rivals [L-Store §6.1]: other storage of rows, on shared parts of the product.
//!
//! The paper compares three designs of storage inside one prototype, and so does this harness.
//! Everything else is shared with the product, as code or at least as equal work.
//!
//! | part | shared code | the same work |
//! |---|---|---|
//! | primary index | `HashIndex`, `KeySequences` | a sequence per 65,536 loaded rows |
//! | transactions | `TxnManager`, its slots and snapshots | a slot for the first write |
//! | log | `Wal` on a `MemoryDevice` | a redo record of our format, relaxed durability |
//! | interface | `Value`, `ColumnId`, `Error` | keys, columns and types are checked |
//!
//! [`Storage`] puts the product's storage of rows on the rivals' transactions, log and table, so
//! that only the designs differ, as in the paper. The whole product is measured beside it.
//!
//! The rivals have their own storage of rows and versions, and their own synchronization:
//!
//! * [`Iuh`]: *in-place update + history* with latched pages;
//! * [`Dbm`]: *delta + blocking merge*, which drains transactions.
//!
//! Only the product has sessions, the catalog's versions, the registration of writers with their
//! table, locks of a transaction's own state, statement numbers, deletion and NULL, and memory
//! limits. The rivals are never written out and cannot be restarted. Their scans are loops; the
//! product's scans are SQL.
//!
//! Difference from the paper: there no engine logged; here all three do. In-place updates would
//! have to log undo as well. The rival logs redo only, which favours it.

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

/// The rivals' settings.
pub const SETTINGS: &str = "in this process on our index, transaction manager and log (device in \
                            memory, relaxed durability, cut by the merge thread); IUH: 32 KB pages \
                            of 341 rows, columns apart, a latch each; DBM: ranges of 4 096 rows, \
                            merged at 2 048 versions";
