//! Batches against the bytes of the file, and the reads that they take.

use super::super::data_file::{DataFile, DataFileWriter};
use super::super::{DataFiles, Extent};
use super::*;
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;

/// A file of blobs of these lengths; the blob at n has bytes of its number.
fn file_of(files: &Arc<DataFiles>, id: u64, lengths: &[usize]) -> (Arc<DataFile>, Vec<Extent>) {
    let mut writer = DataFileWriter::new(files, id);
    let mut extents = Vec::new();
    for (n, len) in lengths.iter().enumerate() {
        let put = |_, out: &mut Vec<u8>| {
            out.resize(out.len() + len, n as u8);
            Ok(())
        };
        extents.push(writer.blob(put).expect("blob").0);
    }
    (writer.finish().expect("finish").0, extents)
}

/// The reads that a batch takes; compares its bytes.
fn reads_of(
    files: &DataFiles,
    (file, extents): &(Arc<DataFile>, Vec<Extent>),
    numbers: &[usize],
) -> u64 {
    let before = files.reads(Access::Random);
    let wanted: Vec<_> = numbers
        .iter()
        .map(|n| (file.stored(), extents[*n]))
        .collect();
    let fetched = fetch(&wanted, Access::Random).expect("read");
    assert_eq!(fetched.len(), numbers.len());
    for (block, n) in fetched.iter().zip(numbers) {
        assert_eq!(block.bytes(), vec![*n as u8; extents[*n].len as usize]);
    }
    files.reads(Access::Random) - before
}

#[test]
fn near_blocks_are_one_read() {
    let files = DataFiles::new(Arc::new(MemoryDevice::new()));
    let kib = 1 << 10;
    let lengths = [
        8 * kib,
        4 * kib,
        8 * kib,
        0,
        70 * kib,
        8 * kib,
        5 * kib,
        60 * kib,
    ];
    let file = file_of(&files, 3, &lengths);
    let reads = |numbers: &[usize]| reads_of(&files, &file, numbers);
    assert_eq!(reads(&[]), 0);
    assert_eq!(reads(&[3]), 0, "a block without bytes");
    assert_eq!(reads(&[0]), 1);
    assert_eq!(reads(&[2, 0]), 1, "4 KiB between them, in any order");
    assert_eq!(reads(&[0, 1, 2, 3, 1]), 1, "a block twice");
    assert_eq!(reads(&[0, 4]), 2, "far apart");
    assert_eq!(reads(&[2, 4]), 2, "a long block is a read of its own");
    assert_eq!(reads(&[5, 7]), 2, "5 KiB between them");
    assert_eq!(reads(&[6, 7]), 2, "more than 64 KiB together");
}

#[test]
fn random_batches_of_several_files_have_the_files_bytes() {
    let rng = &mut Rng::new(11);
    let files = DataFiles::new(Arc::new(MemoryDevice::new()));
    let mut length = || match rng.below(4) {
        0 => 0,
        1 => rng.below(100) as usize,
        2 => rng.below(9_000) as usize,
        _ => rng.below(100_000) as usize,
    };
    let made: Vec<_> = (0..3)
        .map(|id| {
            let lengths: Vec<usize> = (0..20).map(|_| length()).collect();
            file_of(&files, id, &lengths)
        })
        .collect();
    for _ in 0..200 {
        let count = rng.below(30) as usize;
        let picks: Vec<_> = (0..count)
            .map(|_| (rng.below(3) as usize, rng.below(20) as usize))
            .collect();
        let wanted = picks
            .iter()
            .map(|&(f, n)| (made[f].0.stored(), made[f].1[n]));
        let fetched = fetch(&wanted.collect::<Vec<_>>(), Access::Random).expect("read");
        for (block, (f, n)) in fetched.iter().zip(picks) {
            let len = made[f].1[n].len as usize;
            assert_eq!(block.bytes(), vec![n as u8; len]);
        }
    }
}

#[test]
fn a_block_beyond_the_file_is_an_error() {
    let files = DataFiles::new(Arc::new(MemoryDevice::new()));
    let (file, extents) = file_of(&files, 3, &[100]);
    let beyond = Extent {
        offset: 4096,
        len: 10,
    };
    let wanted = [(file.stored(), extents[0]), (file.stored(), beyond)];
    let error = fetch(&wanted, Access::Random).expect_err("nothing is there");
    assert_eq!(error.sqlstate(), strandline_base::SqlState::DATA_CORRUPTED);
}
