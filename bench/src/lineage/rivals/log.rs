//! The rivals' log: checksummed records, copied into one segment of memory that is used over and
//! over, as a log device recycles its segments.

use parking_lot::Mutex;

/// Bytes of the segment, as many as one of ours has.
const SEGMENT_BYTES: usize = 16 << 20;
/// Length and checksum in front of a record.
const HEADER_BYTES: usize = 8;

/// The log of one engine.
pub struct MemoryLog(Mutex<Segment>);

struct Segment {
    bytes: Box<[u8]>,
    at: usize,
}

impl MemoryLog {
    /// An empty log.
    pub fn new() -> Self {
        let bytes = vec![0; SEGMENT_BYTES].into_boxed_slice();
        Self(Mutex::new(Segment { bytes, at: 0 }))
    }

    /// Appends what `record` holds.
    pub fn append(&self, record: &mut Record) {
        record.seal();
        let bytes = record.0.as_slice();
        let mut segment = self.0.lock();
        if segment.at + bytes.len() > SEGMENT_BYTES {
            segment.at = 0;
        }
        let at = segment.at;
        segment.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        segment.at += bytes.len();
    }
}

/// The record of one transaction, kept by its session from one to the next.
pub struct Record(Vec<u8>);

impl Record {
    /// An empty record.
    pub fn new() -> Self {
        Self(vec![0; HEADER_BYTES])
    }

    /// Forgets what it holds.
    pub fn clear(&mut self) {
        self.0.truncate(HEADER_BYTES);
    }

    /// Adds numbers.
    pub fn push(&mut self, numbers: &[i64]) {
        for number in numbers {
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn seal(&mut self) {
        let length = self.0.len() as u32;
        let checksum = crc32c::crc32c(&self.0[HEADER_BYTES..]);
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0[4..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_segment_begins_again() {
        let (log, mut record) = (MemoryLog::new(), Record::new());
        record.push(&[7; 1_000]);
        let fit = SEGMENT_BYTES / record.0.len();
        for _ in 0..=fit {
            log.append(&mut record);
        }
        let segment = log.0.lock();
        assert_eq!(segment.at, record.0.len());
        assert_eq!(segment.bytes[..record.0.len()], record.0[..]);
    }
}
