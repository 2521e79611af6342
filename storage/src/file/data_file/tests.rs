//! Data files: open files, writing, removal.

use super::super::OPEN_FILES_MAX;
use super::*;
use strandline_device::{Device, MemoryDevice};

#[test]
fn few_files_are_open_and_closed_ones_are_still_read() {
    let files = DataFiles::new(Arc::new(MemoryDevice::new()));
    let written: Vec<_> = (0..OPEN_FILES_MAX as u64 + 100)
        .map(|id| {
            let mut writer = DataFileWriter::new(&files, id);
            let put = |_, out: &mut Vec<u8>| {
                out.put_u64(id);
                Ok(())
            };
            let (extent, ()) = writer.blob(put).expect("blob");
            (writer.finish().expect("finish").0, extent)
        })
        .collect();
    for _ in 0..2 {
        for (file, extent) in &written {
            let bytes = file.read(*extent, Access::Random).expect("read");
            assert_eq!(bytes, file.id().to_le_bytes());
            assert!(files.open_files() <= OPEN_FILES_MAX);
        }
    }
    written[3].0.remove_when_unused();
    drop(written);
    assert_eq!(files.open_files(), 0);
    let left = files.device().list().expect("list");
    assert_eq!(left.len(), OPEN_FILES_MAX + 99);
    assert!(!left.contains(&data_file_name(3)));
}

/// Files of the versions before are read; one of a later version is refused by name.
#[test]
fn versions_that_are_not_known_are_refused() {
    let device = Arc::new(MemoryDevice::new());
    let files = DataFiles::new(device.clone());
    let writer = DataFileWriter::new(&files, 3);
    let (written, _) = writer.finish().expect("finish");
    let mut header = vec![0; HEADER_BYTES as usize];
    let file = device.open(&data_file_name(3)).expect("open");
    file.read_exact_at(&mut header, 0).expect("read");
    for version in 0..4_u32 {
        header[8..12].copy_from_slice(&version.to_le_bytes());
        let sum = checksum(&[], &header[..60]);
        header[60..].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&header, 0).expect("write");
        let verified = written.verify_header();
        match version {
            1 | 2 => verified.expect("known"),
            _ => {
                let error = verified.expect_err("unknown").to_string();
                let number = format!("version {version}");
                assert!(error.contains(&number), "{error}");
                assert!(error.contains("chunks-0000000000000003"), "{error}");
            }
        }
    }
    // The checksum comes first: damage is no other version.
    header[8] = 9;
    file.write_all_at(&header, 0).expect("write");
    let error = written.verify_header().expect_err("damaged");
    assert_eq!(error.kind(), strandline_base::ErrorKind::Corrupt);
}

/// Blobs of all sizes, some of many pieces, are at their extents. At most one piece is in memory
/// after a blob.
#[test]
fn a_file_is_written_in_pieces() {
    let files = DataFiles::new(Arc::new(MemoryDevice::new()));
    let mut writer = DataFileWriter::new(&files, 7);
    let sizes = [3, PIECE_BYTES * 3 + 1, 10, PIECE_BYTES - 100, 80, 0, 17];
    let mut extents = Vec::new();
    for (n, size) in sizes.into_iter().enumerate() {
        let put = |_, out: &mut Vec<u8>| {
            out.resize(out.len() + size, n as u8);
            Ok(())
        };
        extents.push(writer.blob(put).expect("blob").0);
        assert!(writer.bytes.capacity() <= PIECE_BYTES, "after {size}");
    }
    let (file, bytes) = writer.finish().expect("finish");
    let end = extents.last().map(|last| last.offset + last.len);
    assert_eq!(Some(bytes), end);
    for (n, (extent, size)) in extents.into_iter().zip(sizes).enumerate() {
        assert!(extent.offset.is_multiple_of(8));
        assert_eq!(
            file.read(extent, Access::Sequential).expect("read"),
            vec![n as u8; size]
        );
    }
}

#[test]
fn a_file_that_is_given_up_is_removed() {
    let files = DataFiles::new(Arc::new(MemoryDevice::new()));
    let mut writer = DataFileWriter::new(&files, 7);
    let put = |_, out: &mut Vec<u8>| {
        out.resize(out.len() + PIECE_BYTES, 1);
        Ok(())
    };
    writer.blob(put).expect("blob");
    assert_eq!(files.device().list().expect("list"), [data_file_name(7)]);
    drop(writer);
    assert!(files.device().list().expect("list").is_empty());
}

/// A sparse file without memory: `head`, zeros, `tail`.
#[derive(Debug)]
struct Sparse {
    head: Vec<u8>,
    tail_at: u64,
    tail: Vec<u8>,
}

impl File for Sparse {
    fn name(&self) -> &str {
        "sparse"
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let (from, stored) = match offset < self.tail_at {
            true => (offset, &self.head),
            false => (offset - self.tail_at, &self.tail),
        };
        let from = from as usize;
        buf.copy_from_slice(&stored[from..from + buf.len()]);
        Ok(())
    }
    fn write_all_at(&self, _: &[u8], _: u64) -> Result<()> {
        unreachable!("only read")
    }
    fn sync(&self) -> Result<()> {
        unreachable!("only read")
    }
    fn len(&self) -> Result<u64> {
        Ok(self.tail_at + self.tail.len() as u64)
    }
    fn set_len(&self, _: u64) -> Result<()> {
        unreachable!("only read")
    }
}

#[test]
fn a_blob_beyond_4_gib_is_read() {
    let files = DataFiles::new(Arc::new(MemoryDevice::new()));
    let (file, _) = DataFileWriter::new(&files, 7).finish().expect("finish");
    let mut head = vec![0; HEADER_BYTES as usize];
    let stored = files.device().open(file.name()).expect("open");
    stored.read_exact_at(&mut head, 0).expect("header");
    let (tail_at, tail) = (5 << 30, vec![1, 2, 3]);
    let offset = tail_at;
    file.0.put(Arc::new(Sparse {
        head,
        tail_at,
        tail,
    }));
    let extent = Extent { offset, len: 3 };
    assert_eq!(
        file.read(extent, Access::Sequential).expect("read"),
        [1, 2, 3]
    );
}

#[test]
fn blobs_of_a_file_have_identities_of_their_own() {
    let files = DataFiles::new(Arc::new(MemoryDevice::new()));
    let file = DataFile::existing(&files, 3);
    let far = 8 << 32;
    assert_ne!(file.identity(64), file.identity(64 + far));
    assert_ne!(file.identity(64 + far), file.identity(64 + 2 * far));
}
