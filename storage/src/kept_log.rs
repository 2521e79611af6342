//! Kept logs: records of the log that only one table needs, in a file of their own. The log can
//! then be cut although the table cannot be restored at present.
//!
//! A file is written once, synced, and then immutable. Its frames are those of a stream of its own,
//! so the log's checksums protect them. The caller knows the file's length: a shorter file, or one
//! whose frames end elsewhere, is damaged. The byte layout is in docs/format.md.

use std::sync::Arc;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Error, Result, checksum};
use strandline_device::{Device, File};

use crate::frame::{StreamId, put_frame};
use crate::stream::{Extent, Stream};
use crate::version::refuse_unknown;

const MAGIC: &[u8; 8] = b"STRDKEPT";
const VERSION: u32 = 1;
/// Bytes before the first frame.
const HEADER_BYTES: u64 = 64;
/// Bytes of the header's fields, checksum included.
const HEADER_USED_BYTES: usize = 40;
/// The number of a kept log's stream, beside its own; manifests count from 1.
const STREAM: u64 = 1 << 63;
/// Bytes that are written together.
const PIECE_BYTES: usize = 256 << 10;

/// The name of kept log `id`.
pub fn kept_log_name(id: u64) -> String {
    format!("kept-{id:016x}")
}

/// The number in a kept log's name; None for other names.
pub fn kept_log_id(name: &str) -> Option<u64> {
    let id = u64::from_str_radix(name.strip_prefix("kept-")?, 16).ok()?;
    (kept_log_name(id) == name).then_some(id)
}

fn stream_of(database_id: u128, id: u64) -> StreamId {
    StreamId {
        database_id,
        number: STREAM | id,
    }
}

fn header(database_id: u128, id: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES as usize);
    out.extend_from_slice(MAGIC);
    out.put_u32(VERSION);
    out.put_u128(database_id);
    out.put_u64(id);
    let sum = checksum(&[], &out);
    out.put_u32(sum);
    debug_assert_eq!(out.len(), HEADER_USED_BYTES);
    out.resize(HEADER_BYTES as usize, 0);
    out
}

/// Writes a kept log; [`PIECE_BYTES`] and one record are in memory. The caller removes an
/// unfinished file.
pub struct KeptLogWriter {
    file: Arc<dyn File>,
    stream: StreamId,
    /// bytes written
    written: u64,
    /// the bytes after the written ones
    bytes: Vec<u8>,
}

impl KeptLogWriter {
    /// Creates file `id`, which must not exist.
    ///
    /// # Errors
    /// The device's.
    pub fn create(device: &dyn Device, database_id: u128, id: u64) -> Result<Self> {
        Ok(Self {
            file: device.create(&kept_log_name(id))?,
            stream: stream_of(database_id, id),
            written: 0,
            bytes: header(database_id, id),
        })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// 53100 if the disk is full; the device's.
    pub fn push(&mut self, record: &[u8]) -> Result<()> {
        let position = self.written + self.bytes.len() as u64;
        put_frame(&mut self.bytes, self.stream, position, position, record);
        match self.bytes.len() >= PIECE_BYTES {
            true => self.write_piece(),
            false => Ok(()),
        }
    }

    /// Makes the file durable, except for its name; returns its length in bytes.
    ///
    /// # Errors
    /// 53100 if the disk is full; the device's.
    pub fn finish(mut self) -> Result<u64> {
        self.write_piece()?;
        self.file.sync()?;
        Ok(self.written)
    }

    /// The space is allocated first, so that a full disk is distinguishable.
    fn write_piece(&mut self) -> Result<()> {
        let end = self.written + self.bytes.len() as u64;
        self.file.set_len(end)?;
        self.file.write_all_at(&self.bytes, self.written)?;
        self.written = end;
        self.bytes.clear();
        Ok(())
    }
}

/// Passes the records of kept log `id`, which has `bytes` bytes, to `visit` in order.
///
/// # Errors
/// XX001 with file and offset for damage; 58P01 if the file is missing; 0A000 for a newer format;
/// the errors of `visit`.
pub fn read_kept_log(
    device: &dyn Device,
    (database_id, id, bytes): (u128, u64, u64),
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let name = kept_log_name(id);
    let file = device.open(&name)?;
    let len = file.len()?;
    if len != bytes || bytes < HEADER_BYTES {
        return Err(Error::corrupt(
            format!("\"{name}\""),
            format!("the file has {len} bytes, not {bytes}"),
        ));
    }
    check_header(&*file, (database_id, id))?;
    let extent = Extent {
        file,
        file_offset: HEADER_BYTES,
        start: HEADER_BYTES,
        bytes: bytes - HEADER_BYTES,
    };
    let mut stream = Stream::new(stream_of(database_id, id), vec![extent]);
    let mut position = HEADER_BYTES;
    while position < bytes {
        let Some(frame) = stream.read(position)? else {
            return Err(Error::corrupt(stream.place(position), "damaged record"));
        };
        position = frame.end;
        visit(frame.payload)?;
    }
    Ok(())
}

fn check_header(file: &dyn File, (database_id, id): (u128, u64)) -> Result<()> {
    let mut bytes = [0; HEADER_BYTES as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let place = || format!("\"{}\" at offset 0", file.name());
    let fields = bytes.strip_prefix(MAGIC).map(ByteReader::new);
    let Some(mut fields) = fields else {
        return Err(Error::corrupt(place(), "not a kept log (bad magic)"));
    };
    refuse_unknown(file.name(), fields.u32().unwrap_or(0), 1..=VERSION)?;
    match bytes == *header(database_id, id) {
        true => Ok(()),
        false => Err(Error::corrupt(
            place(),
            "the header is damaged, or another database's or file's",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::SqlState;
    use strandline_device::MemoryDevice;

    const ID: (u128, u64) = (7 << 70, 0x1f);

    fn records(device: &dyn Device, bytes: u64) -> Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        read_kept_log(device, (ID.0, ID.1, bytes), &mut |record| {
            found.push(record.to_vec());
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn records_come_back_and_every_flipped_bit_is_found() {
        let device = MemoryDevice::new();
        let written: Vec<Vec<u8>> = (0..50u8).map(|i| vec![i; usize::from(i) * 7]).collect();
        let mut writer = KeptLogWriter::create(&device, ID.0, ID.1).expect("created");
        for record in &written {
            writer.push(record).expect("written");
        }
        let bytes = writer.finish().expect("finished");
        let file = device.open(&kept_log_name(ID.1)).expect("opened");
        assert_eq!(file.len().expect("length"), bytes);
        assert_eq!(records(&device, bytes).expect("read"), written);
        let mut whole = vec![0; bytes as usize];
        file.read_exact_at(&mut whole, 0).expect("read");
        for at in 0..bytes {
            let byte = [whole[at as usize] ^ 4];
            file.write_all_at(&byte, at).expect("written");
            match records(&device, bytes) {
                Err(error) => assert!(error.message().contains("kept-"), "{error}"),
                // The zeros behind a payload mean nothing.
                Ok(found) => assert!(found == written && at % 8 != 0, "byte {at}"),
            }
            file.write_all_at(&whole[at as usize..=at as usize], at)
                .expect("written");
        }
        file.set_len(bytes - 8).expect("cut");
        let error = records(&device, bytes).expect_err("cut");
        assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
    }

    #[test]
    fn only_names_of_kept_logs_have_a_number() {
        assert_eq!(kept_log_id(&kept_log_name(u64::MAX)), Some(u64::MAX));
        for other in [
            "kept-",
            "kept-1",
            "kept-000000000000000G",
            "wal-0000000000000001",
        ] {
            assert_eq!(kept_log_id(other), None, "{other}");
        }
    }
}
