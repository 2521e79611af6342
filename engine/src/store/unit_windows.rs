//! Windows of ranges that are read one after the other, by a scan or by the build of an index: the
//! next ranges' bytes are requested from an object store while the present ones are read.
//!
//! A *unit* is a range by its position in the order of reading. Its windows are hints
//! (`strandline_storage::file`): reads find their bytes by file and offset, and read by themselves
//! what no window has.

use super::StoreRequest;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_storage::file::data_file::DataFile;
use strandline_storage::file::{Extent, Window};
use strandline_storage::pool::Pool;

/// Windows of one reader, beyond which it starts none for further units.
const WINDOWS_MAX: usize = 32;

/// The windows of the units that are being read, or are read next.
#[derive(Default)]
pub(crate) struct UnitWindows(BTreeMap<usize, Vec<Arc<Window>>>);

impl UnitWindows {
    /// Starts windows of `unit` for `requests`, in memory of `pool`. Whether there was room for
    /// all.
    pub fn start(&mut self, unit: usize, requests: Vec<StoreRequest>, pool: &Arc<Pool>) -> bool {
        let (has_room, windows) = self.start_loose(requests, pool);
        if !windows.is_empty() {
            self.0.entry(unit).or_default().extend(windows);
        }
        has_room
    }

    /// Starts windows that belong to no unit: the caller drops them. Whether there was room for
    /// all.
    pub fn start_loose(
        &self,
        requests: Vec<StoreRequest>,
        pool: &Arc<Pool>,
    ) -> (bool, Vec<Arc<Window>>) {
        let mut files: BTreeMap<u64, (Arc<DataFile>, Vec<Extent>)> = BTreeMap::new();
        for (file, extent) in requests {
            let (_, extents) = files.entry(file.id()).or_insert((file, Vec::new()));
            extents.push(extent);
        }
        let mut windows: Vec<Arc<Window>> = Vec::new();
        let has_room = files.into_values().all(|(file, extents)| {
            let new: usize = windows.iter().map(|window| window.memory_bytes()).sum();
            file.start_windows(extents, self.bytes() + new, pool, &mut windows)
        });
        (has_room, windows)
    }

    /// Whether the unit has a window.
    pub fn has(&self, unit: usize) -> bool {
        self.0.contains_key(&unit)
    }

    /// Whether no windows are to be started for further units.
    pub fn is_full(&self) -> bool {
        self.windows().count() >= WINDOWS_MAX
    }

    /// Bytes of all windows of units.
    pub fn bytes(&self) -> usize {
        self.windows().map(|window| window.memory_bytes()).sum()
    }

    /// Takes out the windows of a unit that was read.
    pub fn end(&mut self, unit: usize) -> Vec<Arc<Window>> {
        self.0.remove(&unit).unwrap_or_default()
    }

    fn windows(&self) -> impl Iterator<Item = &Arc<Window>> {
        self.0.values().flatten()
    }
}
