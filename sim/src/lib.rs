//! Simulation of the engine's environment, so that tests decide which faults occur and can repeat
//! them.
//!
//! [`SimDisk`] is a disk that separates written from durable bytes: it crashes at a chosen
//! operation, tears and drops unsynced sectors, fails writes and syncs, fills up and flips bits,
//! all from a seed. [`SimDevice`] is the [`strandline_device::Device`] on it.

mod crash_clock;
mod crash_style;
mod disk;
mod inode;
mod sim_device;
#[cfg(feature = "objects")]
mod sim_store;

pub use crash_style::CrashStyle;
pub use disk::SimDisk;
pub use sim_device::SimDevice;
#[cfg(feature = "objects")]
pub use sim_store::{SimStore, StoreFault};

#[cfg(test)]
mod tests;
