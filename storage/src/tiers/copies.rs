//! Which directories are copies. A file that records the number of the directory in which it was
//! written (the inode) tells a copy by another number; the file `takeover.signal` is the operator's
//! word that the copy goes on in the place of its original.
//!
//! A directory that is renamed keeps its number. One that was moved to another file system, or was
//! unpacked from an archive, is a copy.

use strandline_base::Result;
use strandline_device::{Device, TAKEOVER_FILE};

use super::holds;

/// The number of the directory of `device`; 0 if the device cannot tell.
pub(super) fn number_of(device: &dyn Device) -> u64 {
    device.directory_number().unwrap_or(0)
}

/// Whether the directory of `device` is a copy of the one numbered `recorded`. False if one of the
/// two is not known.
pub(super) fn is_copy(recorded: u64, device: &dyn Device) -> bool {
    let number = number_of(device);
    recorded != 0 && number != 0 && recorded != number
}

/// Whether the operator has asked that the directory of `device` takes its original's place.
pub(super) fn takes_over(device: &dyn Device) -> Result<bool> {
    holds(device, TAKEOVER_FILE)
}

/// Removes the operator's file, if it is there; durable on return.
pub(super) fn end_takeover(device: &dyn Device) -> Result<()> {
    if takes_over(device)? {
        device.remove(TAKEOVER_FILE)?;
        device.sync_directory()?;
    }
    Ok(())
}
