//! The frame around one record of an append-only stream (the log, a manifest file).
//!
//! ```text
//! 0   u32  payload length in bytes
//! 4   u32  CRC-32C over identity, length, position, durable and payload
//! 8   u64  position: the stream position of this frame
//! 16  u64  durable: everything before this position was known durable when the frame was made
//! 24  ...  payload, then zeros up to a multiple of 8
//! ```
//!
//! Frames start at multiples of 8, so that recovery can try every possible start. The *identity* in
//! the checksum is the database's id and the stream's number. With the position it ensures that old
//! bytes of a reused file never look like a frame.
//!
//! `durable` distinguishes a torn tail from damage. The writes of one batch reach the device in any
//! order, so a crash may leave a whole frame after a missing one. But if a whole frame shows that
//! the missing frame's position was durable, the missing frame was lost later.

use strandline_base::Checksum;
use strandline_base::bytes::{ByteReader, PutBytes};

/// Bytes before the payload.
pub(crate) const FRAME_HEADER_BYTES: usize = 24;
/// Frames begin at multiples of this.
pub(crate) const FRAME_ALIGN: u64 = 8;
/// The longest payload.
pub(crate) const PAYLOAD_BYTES_MAX: usize = (u32::MAX as usize & !7) - FRAME_HEADER_BYTES;

/// The stream of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamId {
    /// The database's id.
    pub database_id: u128,
    /// 0 for the log, the generation for a manifest file.
    pub number: u64,
}

impl StreamId {
    fn words(self) -> [u64; 3] {
        [
            self.database_id as u64,
            (self.database_id >> 64) as u64,
            self.number,
        ]
    }
}

/// Bytes of the frame of a payload.
pub(crate) fn frame_bytes(payload_bytes: usize) -> u64 {
    (FRAME_HEADER_BYTES + payload_bytes).next_multiple_of(FRAME_ALIGN as usize) as u64
}

/// A decoded frame header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameHeader {
    pub payload_bytes: usize,
    checksum: u32,
    pub position: u64,
    pub durable: u64,
}

impl FrameHeader {
    /// Decodes without checks.
    pub fn decode(bytes: &[u8; FRAME_HEADER_BYTES]) -> Self {
        let mut r = ByteReader::new(bytes);
        let whole = "a frame header has a fixed length";
        Self {
            payload_bytes: r.u32().expect(whole) as usize,
            checksum: r.u32().expect(whole),
            position: r.u64().expect(whole),
            durable: r.u64().expect(whole),
        }
    }

    /// Whether `payload` is the payload written with this header.
    pub fn matches(&self, stream: StreamId, payload: &[u8]) -> bool {
        self.checksum == frame_checksum(stream, self.position, self.durable, payload)
    }
}

fn frame_checksum(stream: StreamId, position: u64, durable: u64, payload: &[u8]) -> u32 {
    let [low, high, number] = stream.words();
    let mut sum =
        Checksum::of_identity(&[low, high, number, payload.len() as u64, position, durable]);
    sum.update(payload);
    sum.finish()
}

/// Appends the frame of `payload` for `position` to `buffer`.
pub(crate) fn put_frame(
    buffer: &mut Vec<u8>,
    stream: StreamId,
    position: u64,
    durable: u64,
    payload: &[u8],
) {
    debug_assert!(position.is_multiple_of(FRAME_ALIGN) && payload.len() <= PAYLOAD_BYTES_MAX);
    let start = buffer.len();
    // Once for all: to grow for the padding would copy a large record.
    buffer.reserve(frame_bytes(payload.len()) as usize);
    buffer.put_u32(payload.len() as u32);
    buffer.put_u32(frame_checksum(stream, position, durable, payload));
    buffer.put_u64(position);
    buffer.put_u64(durable);
    buffer.extend_from_slice(payload);
    buffer.resize(start + frame_bytes(payload.len()) as usize, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_frame_grows_its_buffer_once() {
        let stream = StreamId {
            database_id: 1,
            number: 2,
        };
        let payload = vec![7; 1_000_001];
        let mut buffer = Vec::new();
        put_frame(&mut buffer, stream, 0, 0, &payload);
        assert_eq!(buffer.len() as u64, frame_bytes(payload.len()));
        assert!(
            buffer.capacity() < buffer.len() + 64,
            "{}",
            buffer.capacity()
        );
    }
}
