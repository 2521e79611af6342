//! Reads through the block cache.

use super::super::data_file::{DataFile, DataFileWriter};
use super::*;
use crate::block_cache::{BlockCache, KnownFiles, Settings, Stats};
use strandline_base::SqlState;
use strandline_device::TieredDevice;
use strandline_sim::SimDisk;

/// Two disks, and files with a block cache between them.
struct Rig {
    fast: SimDisk,
    capacity: SimDisk,
    files: Arc<DataFiles>,
}

impl Rig {
    fn new() -> Self {
        let fast = SimDisk::new(1);
        let capacity = fast.beside(2);
        let files = Self::files(&fast, &capacity);
        Self {
            fast,
            capacity,
            files,
        }
    }

    fn files(fast: &SimDisk, capacity: &SimDisk) -> Arc<DataFiles> {
        let device = TieredDevice::new(fast.device(), capacity.device(), "").expect("tiers");
        let settings = Settings {
            segment_bytes: 4096,
            ..Settings::new(7, 64 << 10)
        };
        let known = KnownFiles {
            end: 100,
            is_live: &|_| true,
        };
        let cache = BlockCache::open(&device, settings, known, &Arc::default()).expect("a cache");
        DataFiles::with_cache(Arc::new(device), Some(Arc::new(cache)))
    }

    /// The same, with the capacity disk in the place of an object store.
    fn object_store() -> Self {
        let mut rig = Self::new();
        let files = Arc::get_mut(&mut rig.files).expect("not shared yet");
        files.is_object_store = true;
        rig
    }

    /// The same disks after an orderly end.
    fn reopen(&self) -> Arc<DataFiles> {
        self.files
            .block_cache()
            .expect("a cache")
            .flush()
            .expect("flush");
        Self::files(&self.fast, &self.capacity)
    }
}

/// File `id` with one blob of `len` bytes, each of which is `id`.
fn write(files: &Arc<DataFiles>, id: u64, len: usize) -> (Arc<DataFile>, Extent) {
    let mut writer = DataFileWriter::new(files, id);
    let put = |_, out: &mut Vec<u8>| {
        out.resize(out.len() + len, id as u8);
        Ok(())
    };
    let (extent, ()) = writer.blob(put).expect("blob");
    (writer.finish().expect("finish").0, extent)
}

/// A random read that checks the first byte.
fn read(file: &DataFile, extent: Extent) -> Result<Vec<u8>> {
    let is_right = |bytes: &[u8]| match bytes.first() {
        Some(&byte) if u64::from(byte) == file.id() => Ok(bytes.to_vec()),
        _ => Err(Error::corrupt("a blob", "other bytes")),
    };
    file.read_block(extent, Access::Random, is_right)
}

fn stats(files: &DataFiles) -> Stats {
    files.block_cache().expect("a cache").stats()
}

#[test]
fn a_random_read_of_the_capacity_tier_is_cached() {
    let rig = Rig::new();
    let (file, extent) = write(&rig.files, 3, 100);
    assert_eq!(read(&file, extent).expect("read"), vec![3; 100]);
    assert_eq!((stats(&rig.files).misses, stats(&rig.files).hits), (1, 0));
    assert_eq!(read(&file, extent).expect("read"), vec![3; 100]);
    assert_eq!(stats(&rig.files).hits, 1);
    assert_eq!(
        rig.files.reads(Access::Random),
        1,
        "the hit is no read of a file"
    );
    let files = rig.reopen();
    let file = DataFile::existing(&files, 3);
    rig.capacity.fail_reads(file.name());
    assert_eq!(read(&file, extent).expect("read"), vec![3; 100]);
    assert_eq!(files.open_files(), 0, "a hit does not open the file");
}

#[test]
fn a_header_is_cached_when_its_file_is_opened() {
    let rig = Rig::new();
    let (_, extent) = write(&rig.files, 3, 100);
    let second = Extent { len: 50, ..extent };
    for (round, wanted) in [extent, second].into_iter().enumerate() {
        let files = rig.reopen();
        let file = DataFile::existing(&files, 3);
        read(&file, wanted).expect("read");
        // Header and block; the second time the header is a hit.
        assert_eq!(stats(&files).hits, round as u64);
        assert_eq!(stats(&files).misses, 2 - round as u64);
        files
            .block_cache()
            .expect("a cache")
            .flush()
            .expect("flush");
    }
    // It is damaged on the device, which only a check of the device finds.
    let (file, files) = (DataFile::existing(&rig.files, 3), rig.reopen());
    rig.capacity.flip_bits(file.name(), 20, 1);
    let file = DataFile::existing(&files, 3);
    let third = Extent { len: 20, ..extent };
    read(&file, third).expect("the cache has the header");
    let error = file.verify_header().expect_err("damaged");
    assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
}

#[test]
fn sequential_reads_and_the_fast_tier_pass_the_cache_by() {
    let rig = Rig::new();
    let (file, extent) = write(&rig.files, 3, 100);
    let sequential = file.read_block(extent, Access::Sequential, |bytes| Ok(bytes.len()));
    assert_eq!(sequential.expect("read"), 100);
    file.read(extent, Access::Random).expect("read");
    let before = stats(&rig.files);
    assert_eq!((before.misses, before.admissions), (0, 0));
    // A file that an older database has on the fast tier.
    let name = file.name().to_owned();
    let content = rig.capacity.content(&name).expect("a file");
    drop(file);
    rig.capacity.device().remove(&name).expect("removed");
    let moved = rig.fast.device().create(&name).expect("create");
    moved.write_all_at(&content, 0).expect("write");
    let files = Rig::files(&rig.fast, &rig.capacity);
    let file = DataFile::existing(&files, 3);
    read(&file, extent).expect("read");
    assert_eq!((stats(&files).misses, stats(&files).admissions), (0, 0));
}

#[test]
fn a_block_that_fails_its_check_is_not_admitted() {
    let rig = Rig::new();
    let (file, extent) = write(&rig.files, 3, 100);
    rig.capacity.flip_bits(file.name(), extent.offset, 1);
    for _ in 0..2 {
        let error = read(&file, extent).expect_err("damaged");
        assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
    }
    assert_eq!(stats(&rig.files).admissions, 0);
    rig.capacity.flip_bits(file.name(), extent.offset, 1);
    read(&file, extent).expect("repaired");
    assert_eq!(stats(&rig.files).admissions, 1);
}

#[test]
fn blocks_of_a_removed_file_are_forgotten() {
    let rig = Rig::new();
    let files = [3, 4].map(|id| write(&rig.files, id, 100));
    for (file, extent) in &files {
        read(file, *extent).expect("read");
    }
    assert_eq!(stats(&rig.files).blocks, 2);
    files[0].0.remove_when_unused();
    drop(files);
    let after = stats(&rig.files);
    assert_eq!(
        (after.blocks, after.forgotten),
        (1, 1),
        "the other one stays"
    );
}

/// Blocks of one value take no bytes.
#[test]
fn an_empty_block_needs_no_file() {
    let rig = Rig::new();
    let missing = DataFile::existing(&rig.files, 9);
    let extent = Extent { offset: 64, len: 0 };
    let len = missing.read_block(extent, Access::Random, |bytes| Ok(bytes.len()));
    assert_eq!(len.expect("nothing is read"), 0);
    assert_eq!(stats(&rig.files).misses, 0);
}

/// A scan's read that checks all bytes.
fn scan(file: &DataFile, extent: Extent) -> Result<usize> {
    let check = |bytes: &[u8]| match bytes.iter().all(|byte| u64::from(*byte) == file.id()) {
        true => Ok(bytes.len()),
        false => Err(Error::corrupt("a blob", "other bytes")),
    };
    let (bytes, checked) = file.read_scanned(extent, check)?;
    assert_eq!(bytes.len(), checked);
    Ok(checked)
}

/// Pieces have a quarter of a segment.
#[test]
fn scans_of_an_object_store_are_cached_in_pieces() {
    let rig = Rig::object_store();
    let (file, extent) = write(&rig.files, 3, 2500);
    let reads = || rig.files.reads(Access::Sequential);
    assert_eq!(scan(&file, extent).expect("read"), 2500);
    assert_eq!((reads(), stats(&rig.files).admissions), (1, 3));
    assert_eq!(scan(&file, extent).expect("read"), 2500);
    assert_eq!((reads(), stats(&rig.files).hits), (1, 3));
    // One piece is missing: one request for all.
    let other = Extent {
        len: 2100,
        ..extent
    };
    assert_eq!(scan(&file, other).expect("read"), 2100);
    assert_eq!((reads(), stats(&rig.files).admissions), (2, 4));
    let empty = Extent { len: 0, ..extent };
    assert_eq!(scan(&file, empty).expect("read"), 0);
}

#[test]
fn scans_of_a_directory_pass_the_cache_by() {
    let rig = Rig::new();
    let (file, extent) = write(&rig.files, 3, 2500);
    for _ in 0..2 {
        assert_eq!(scan(&file, extent).expect("read"), 2500);
    }
    let after = stats(&rig.files);
    assert_eq!((after.misses, after.admissions), (0, 0));
    assert_eq!(rig.files.reads(Access::Sequential), 2);
}

#[test]
fn what_a_scan_finds_damaged_is_not_cached() {
    let rig = Rig::object_store();
    let (file, extent) = write(&rig.files, 3, 2500);
    rig.capacity.flip_bits(file.name(), extent.offset + 2000, 1);
    let error = scan(&file, extent).expect_err("damaged");
    assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
    assert_eq!(stats(&rig.files).admissions, 0);
    rig.capacity.flip_bits(file.name(), extent.offset + 2000, 1);
    assert_eq!(scan(&file, extent).expect("repaired"), 2500);
    assert_eq!(stats(&rig.files).admissions, 3);
}
