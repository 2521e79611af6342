//! Loss: a cache that cannot be used, although it had blocks fresher than the capacity tier.

use std::collections::BTreeSet;

use strandline_base::{Error, Result};
use strandline_device::Device;

use super::core::SsdCache;
use super::directory::DIRECTORY_FILE;
use super::marker::MARKER_FILE;
use super::open::Remains;
use super::settings::{BlockKey, OnLoss, Settings};
use super::slots::SLOTS_FILE;
use super::slots::SlotFile;

/// Blocks that an error names.
const NAMED_MAX: usize = 16;

/// What is lost with a cache.
#[derive(Clone, Debug)]
pub struct Loss {
    /// why the cache cannot be used
    pub cause: Error,
    /// The files of which it had, or may have had, blocks that are fresher than the capacity tier
    /// and that the log does not have any more; None if nothing tells which.
    pub files: Option<BTreeSet<u64>>,
}

impl SsdCache {
    /// Looks whether an opening would lose blocks; only reads. `was_used`: the caller knows of a
    /// checkpoint through a cache, so that the marker must be there.
    ///
    /// # Errors
    /// 0A000 for files of another version; those of the device.
    pub fn find_loss(
        device: &dyn Device,
        settings: &Settings,
        was_used: bool,
    ) -> Result<Option<Loss>> {
        let remains = Remains::find(device)?;
        let is_own = |identity: u128| identity == settings.identity;
        let marker = remains.marker.as_ref();
        let has_own_marker = marker.is_some_and(|marker| is_own(marker.identity));
        let is_missing = was_used && !has_own_marker && remains.marker_damage.is_none();
        let cause = match remains.fault(device, settings)? {
            Some(fault) if remains.may_have_fresh() || is_missing => fault,
            None if is_missing => {
                Error::corrupt(format!("\"{MARKER_FILE}\""), "the file is missing")
            }
            _ => return Ok(None),
        };
        let files = remains.stale_files(settings.identity);
        Ok(Some(Loss { cause, files }))
    }
}

impl Remains {
    fn has_fresh(&self) -> bool {
        let found = self.directory.as_ref();
        found.is_some_and(|found| found.entries.values().any(|listed| listed.is_fresh))
    }

    /// Whether the cache had, or may have had, blocks fresher than the capacity tier.
    fn may_have_fresh(&self) -> bool {
        let files = self.marker.as_ref().map(|marker| &marker.fresh_files);
        let is_directory_whole = self
            .directory
            .as_ref()
            .is_some_and(|found| found.damage.is_none());
        let is_unknown = self.marker.is_none() && !is_directory_whole;
        is_unknown || self.has_fresh() || files.is_some_and(|files| !files.is_empty())
    }

    /// The files with versions on the capacity tier that are too old for the log; None: any may be.
    /// Blocks of other files became fresh after the last checkpoint. An old marker tells nothing.
    fn stale_files(&self, identity: u128) -> Option<BTreeSet<u64>> {
        let marker = self.marker.as_ref();
        let marker = marker.filter(|marker| marker.identity == identity)?;
        let head = self.directory.as_ref().and_then(|found| found.head);
        let is_old =
            head.is_some_and(|head| head.identity == identity && head.epoch > marker.epoch);
        if is_old {
            return None;
        }
        Some(marker.fresh_files.clone())
    }

    /// Refuses to go on without the cache if it had, or may have had, fresh blocks.
    pub fn refuse_loss(
        &self,
        device: &dyn Device,
        settings: &Settings,
        fault: &Error,
    ) -> Result<()> {
        if !self.may_have_fresh() || settings.on_loss == OnLoss::Discard {
            return Ok(());
        }
        let names = self.names_of_lost(device, settings);
        let location = device.location();
        Err(Error::corrupt(
            format!("the SSD cache in \"{location}\" is lost"),
            format!("it had newer versions than the capacity tier of {names}"),
        )
        .with_detail(fault.message().to_owned())
        .with_hint(format!(
            "Put \"{SLOTS_FILE}\" and \"{DIRECTORY_FILE}\" back as they were, or restore a backup. \
             To go on with the older versions, open once with the loss accepted \
             (OnLoss::Discard).",
        )))
    }

    /// The files and blocks that are lost, as far as anything tells them.
    fn names_of_lost(&self, device: &dyn Device, settings: &Settings) -> String {
        let marker = self.marker.as_ref();
        let mut files = marker.map_or_else(BTreeSet::new, |marker| marker.fresh_files.clone());
        let mut blocks: BTreeSet<BlockKey> = BTreeSet::new();
        if let Some(found) = &self.directory {
            let fresh = found.entries.values().filter(|listed| listed.is_fresh);
            blocks.extend(fresh.map(|listed| listed.block));
        }
        let is_whole = self
            .directory
            .as_ref()
            .is_some_and(|found| found.damage.is_none());
        if !is_whole {
            let in_slots = self.blocks_in_slots(device, settings);
            blocks.extend(in_slots.filter(|block| files.is_empty() || files.contains(&block.file)));
        }
        files.extend(blocks.iter().map(|block| block.file));
        let numbers: Vec<_> = files.iter().map(u64::to_string).collect();
        let files = match files.is_empty() {
            true => "unknown files".to_owned(),
            false => format!("files {}", numbers.join(", ")),
        };
        let named = blocks.iter().take(NAMED_MAX).map(BlockKey::to_string);
        let named: Vec<_> = named.collect();
        let more = match blocks.len() - named.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        match named.is_empty() {
            true => files,
            false => format!("{files} (blocks: {}{more})", named.join("; ")),
        }
    }

    /// The intact blocks in the file of slots, whatever lists them.
    fn blocks_in_slots(
        &self,
        device: &dyn Device,
        settings: &Settings,
    ) -> impl Iterator<Item = BlockKey> {
        let head = self.directory.as_ref().and_then(|found| found.head);
        let slot_bytes = head.map_or(settings.slot_bytes, |head| head.slot_bytes);
        let file = SlotFile::existing(device, settings.identity, slot_bytes);
        let file = file.ok().flatten();
        let count = file.as_ref().and_then(|file| file.slots().ok());
        (0..count.unwrap_or_default())
            .filter_map(move |slot| file.as_ref().and_then(|file| file.identify(slot)))
    }
}
