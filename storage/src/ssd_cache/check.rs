//! The inspector: what a cache that nobody has open contains, and whether it is intact.

use strandline_base::Result;
use strandline_device::Device;

use super::directory::Directory;
use super::marker::Marker;
use super::settings::BlockKey;
use super::slots::SlotFile;

/// The content of a cache on its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// the epoch of the directory in force
    pub epoch: u64,
    /// cached blocks, by slot, and whether each may be fresher than the capacity tier
    pub blocks: Vec<(BlockKey, bool)>,
    /// files of which the marker says that the cache may have fresher blocks
    pub fresh_files: Vec<u64>,
    /// damage, one message each
    pub problems: Vec<String>,
}

/// Reads everything of the cache on `device`, and checks every checksum. None if there is no cache:
/// one that was emptied may have left its marker.
///
/// # Errors
/// 0A000 for files of another version; those of the device. Damage is part of the result.
pub fn inspect(device: &dyn Device) -> Result<Option<Inspection>> {
    let mut inspection = Inspection::default();
    let marker = match Marker::read(device) {
        Err(error) if error.kind() == strandline_base::ErrorKind::Corrupt => {
            inspection.problems.push(error.message().to_owned());
            None
        }
        marker => marker?,
    };
    let epoch = marker.as_ref().map(|marker| marker.epoch);
    let Some(found) = Directory::find(device, epoch)? else {
        let had_fresh = marker.filter(|marker| !marker.fresh_files.is_empty());
        return Ok(had_fresh.map(|_| Inspection {
            problems: vec!["the directory is missing".to_owned()],
            ..inspection
        }));
    };
    if let Some(marker) = &marker {
        inspection.fresh_files = marker.fresh_files.iter().copied().collect();
    }
    if let Some(damage) = found.damage {
        inspection.problems.push(damage.message().to_owned());
    }
    let Some(head) = found.head else {
        return Ok(Some(inspection));
    };
    inspection.epoch = head.epoch;
    if epoch.is_some_and(|epoch| epoch != head.epoch) {
        let epoch = head.epoch;
        let what = format!("the directory is an old copy, of epoch {epoch}");
        inspection.problems.push(what);
    }
    let slots = SlotFile::existing(device, head.identity, head.slot_bytes)?;
    for listed in found.entries.into_values() {
        inspection.blocks.push((listed.block, listed.is_fresh));
        let read = slots
            .as_ref()
            .map(|slots| slots.read(listed.slot, listed.block));
        match read {
            None => inspection.problems.push("the slots are missing".to_owned()),
            Some(Err(error)) => inspection.problems.push(error.message().to_owned()),
            Some(Ok(_)) => {}
        }
    }
    Ok(Some(inspection))
}
