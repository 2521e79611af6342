//! The experiments of the SSD-DB thesis \[SSD-DB §2.7\]: one database image, copied onto emulated
//! devices for each setting, warmed up without delays and measured with them.
//!
//! | device | emulated by |
//! |---|---|
//! | disk | [`EmulatedHdd`], 7,200 rpm, faster by a time scale |
//! | SSD | [`Throttled`] to the bounds of the thesis' SSD; a sync costs nothing |
//!
//! Both lie over memory, so no cache of the operating system takes part, and the machine's own disk
//! neither; the rival foyer alone has files. Memory is the page store's budget. The log is on the
//! SSD in every setting that has one.
//!
//! Differences from the paper: one disk instead of two in RAID 0; a database of 0.4 GB instead of
//! 50 GB, and a checkpoint every 4 s instead of every 30 minutes. In both intervals the disk can
//! serve requests for about a twentieth of the database's pages: 700,000 of 13 million there, 4,000
//! of 57,000 here.

#[cfg(feature = "foyer")]
mod foyer;
mod machine;
pub mod processor;
mod read_cache;
mod running;
#[cfg(test)]
mod tests;

pub use machine::{Image, Setting, Size};
pub use running::{Crashed, Plan, Running, Window};
