//! The marker on the capacity tier: the epoch of the directory that is in force, and the files of
//! which the cache may hold blocks that are fresher than the capacity tier.
//!
//! It is written under another name, synced and renamed, so that a crash never tears it. Layout:
//! docs/format.md, "SSD cache".

use std::collections::BTreeSet;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Error, Result, checksum};
use strandline_device::{Device, Tier};

use crate::version::refuse_unknown;

/// The name of the file.
pub const MARKER_FILE: &str = "ssd-cache-marker";
const STAGED: &str = "ssd-cache-marker.tmp";
const MAGIC: &[u8; 8] = b"STRDSSDM";
const VERSION: u32 = 1;
/// Bytes before the files.
const HEADER_BYTES: usize = 40;

/// The content of a marker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marker {
    pub identity: u128,
    /// the epoch of the directory in force
    pub epoch: u64,
    /// files with blocks that may be fresher in the cache
    pub fresh_files: BTreeSet<u64>,
}

impl Marker {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 8 * self.fresh_files.len() + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.put_u32(VERSION);
        bytes.put_u32(self.fresh_files.len() as u32);
        bytes.put_u128(self.identity);
        bytes.put_u64(self.epoch);
        self.fresh_files
            .iter()
            .for_each(|&file| bytes.put_u64(file));
        let sum = checksum(&[], &bytes);
        bytes.put_u32(sum);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &str| Error::corrupt(format!("\"{MARKER_FILE}\""), what);
        let fields = bytes.strip_prefix(MAGIC);
        let mut r = ByteReader::new(fields.ok_or_else(|| damaged("bad magic"))?);
        let version = r.u32().ok_or_else(|| damaged("too short"))?;
        let content = bytes.len().checked_sub(4);
        let (content, sum) = content
            .and_then(|at| bytes.split_at_checked(at))
            .ok_or_else(|| damaged("too short"))?;
        let expected = ByteReader::new(sum).u32().unwrap_or_default();
        let got = checksum(&[], content);
        if expected != got {
            let place = format!("\"{MARKER_FILE}\"");
            return Err(Error::checksum_mismatch(place, expected, got));
        }
        refuse_unknown(MARKER_FILE, version, VERSION..=VERSION)?;
        let mut marker = || {
            let count = r.u32()?;
            let (identity, epoch) = (r.u128()?, r.u64()?);
            let fresh_files = (0..count).map(|_| r.u64()).collect::<Option<_>>()?;
            (r.remaining() == 4).then_some(Self {
                identity,
                epoch,
                fresh_files,
            })
        };
        marker().ok_or_else(|| damaged("malformed"))
    }

    /// The marker on `device`; None without one.
    ///
    /// # Errors
    /// XX001 for a damaged one, 0A000 for one of another version, those of the device.
    pub fn read(device: &dyn Device) -> Result<Option<Self>> {
        if !device.list()?.iter().any(|name| name == MARKER_FILE) {
            return Ok(None);
        }
        let file = device.open(MARKER_FILE)?;
        let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0)?;
        Self::decode(&bytes).map(Some)
    }

    /// Writes this marker beside the one in force; durable on return, up to its name.
    pub fn stage(&self, device: &dyn Device) -> Result<()> {
        if device.list()?.iter().any(|name| name == STAGED) {
            device.remove(STAGED)?;
        }
        let file = device.create_on(Tier::Capacity, STAGED)?;
        file.write_all_at(&self.encode(), 0)?;
        file.sync()
    }

    /// Puts the staged marker in force; durable on return. After an error either may be in force.
    pub fn publish(device: &dyn Device) -> Result<()> {
        device.rename(STAGED, MARKER_FILE)?;
        device.sync_directory()
    }

    /// Removes marker and unfinished marker.
    pub fn remove(device: &dyn Device) -> Result<()> {
        for name in device.list()? {
            if name == MARKER_FILE || name == STAGED {
                device.remove(&name)?;
            }
        }
        Ok(())
    }
}
