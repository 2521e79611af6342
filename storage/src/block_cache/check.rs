//! The inspector: the content of a cache, and whether it is intact.

use strandline_base::{ErrorKind, Result};
use strandline_device::Device;

use super::layout::{Found, Header, SegmentFile};
use crate::block_key::BlockKey;

/// The content of a cache on its device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// the identity of the database
    pub identity: u128,
    /// bytes of a segment
    pub segment_bytes: u32,
    /// segments that the file has room for
    pub slots: u32,
    /// the segments, in the order of their writing: slot, number and blocks
    pub segments: Vec<(u32, u64, Vec<BlockKey>)>,
    /// damage, one message each; a torn write after a crash is one
    pub problems: Vec<String>,
}

/// Reads everything of the cache on `device`, and checks every checksum. None if there is no cache.
///
/// # Errors
/// 0A000 for a file of another version; those of the device. Damage is part of the result.
pub fn inspect(device: &dyn Device) -> Result<Option<Inspection>> {
    let Some(file) = SegmentFile::find(device)? else {
        return Ok(None);
    };
    let mut inspection = Inspection::default();
    let header = match Header::read(&*file) {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            inspection.problems.push(error.message().to_owned());
            return Ok(Some(inspection));
        }
        header => header?,
    };
    let file = SegmentFile::new(file, header);
    inspection.identity = header.identity;
    inspection.segment_bytes = header.segment_bytes;
    inspection.slots = file.slots()?;
    for slot in 0..inspection.slots {
        match file.read_head(slot)? {
            Found::Nothing => {}
            Found::Damaged => {
                let what = format!("segment {slot}: the head is torn or damaged");
                inspection.problems.push(what);
            }
            Found::Segment(head) => {
                for place in &head.places {
                    let mut bytes = vec![0; place.block.len as usize];
                    if let Err(error) = file.read_block(slot, *place, &mut bytes) {
                        inspection.problems.push(error.message().to_owned());
                    }
                }
                let blocks = head.places.iter().map(|place| place.block).collect();
                inspection.segments.push((slot, head.number, blocks));
            }
        }
    }
    inspection
        .segments
        .sort_unstable_by_key(|segment| segment.1);
    Ok(Some(inspection))
}
