//! The paper's two rivals [L-Store §6.1], as an honest attempt at fast ones in the same harness.
//!
//! Both keep columns, one hash index by primary key and two timestamps' worth of metadata per
//! version as we do; both log to memory, with checksums, before they commit; neither checks types,
//! speaks SQL or can be restarted.
//!
//! * [`Iuh`]: *in-place update + history* with latched pages;
//! * [`Dbm`]: *delta + blocking merge*, which drains transactions.

mod dbm;
mod index;
mod iuh;
mod log;
mod transactions;
mod versions;

#[cfg(test)]
mod tests;

pub use dbm::{Dbm, Layout};
pub use iuh::Iuh;

/// How the rivals run.
pub const SETTINGS: &str = "in this process, same allocator, log to memory with checksums; IUH: \
                            32 KB pages of 341 rows, columns apart, a latch each; DBM: ranges of \
                            4 096 rows, merged at 2 048 versions";
