//! Reads a stream of frames from its files, and distinguishes its end from damage.

use std::ops::Range;
use std::sync::Arc;

use strandline_base::{Error, Result};
use strandline_device::File;

use crate::frame::{
    FRAME_ALIGN, FRAME_HEADER_BYTES, FrameHeader, PAYLOAD_BYTES_MAX, StreamId, frame_bytes,
};

/// Bytes read from a file at a time.
const WINDOW_BYTES: u64 = 1 << 20;
/// The offset of a frame's own position in its header.
const POSITION_AT: u64 = 8;
/// The byte that fills an erased position field.
const ERASED: u8 = 0xff;

/// A piece of a stream: `bytes` bytes from position `start` on, at `file_offset` in `file`.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    pub file: Arc<dyn File>,
    pub file_offset: u64,
    pub start: u64,
    pub bytes: u64,
}

impl Extent {
    /// The position after the last byte.
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// A whole frame that was read.
pub(crate) struct Frame<'a> {
    pub payload: &'a [u8],
    /// The position after the frame.
    pub end: u64,
    /// Everything before this was durable when the frame was made.
    pub durable: u64,
}

/// A reader over contiguous extents.
pub(crate) struct Stream {
    id: StreamId,
    extents: Vec<Extent>,
    window: Vec<u8>,
    window_start: u64,
}

impl Stream {
    /// A reader of the frames of `id`. `extents` must not be empty; each starts at the end of the
    /// previous one.
    pub fn new(id: StreamId, extents: Vec<Extent>) -> Self {
        debug_assert!(extents.windows(2).all(|w| w[0].end() == w[1].start));
        Self {
            id,
            extents,
            window: Vec::new(),
            window_start: 0,
        }
    }

    /// The position after the last extent.
    pub fn limit(&self) -> u64 {
        self.extents.last().map_or(0, Extent::end)
    }

    fn extent_at(&self, position: u64) -> &Extent {
        let after = self.extents.partition_point(|e| e.start <= position);
        &self.extents[after.saturating_sub(1)]
    }

    /// File and offset of a position, for messages.
    pub fn place(&self, position: u64) -> String {
        let extent = self.extent_at(position);
        let offset = extent.file_offset + (position - extent.start);
        format!(
            "\"{}\" at offset {offset} (position {position})",
            extent.file.name()
        )
    }

    /// The `n` bytes at `position`, which must be inside the stream.
    fn bytes(&mut self, position: u64, n: usize) -> Result<&[u8]> {
        let end = position + n as u64;
        if position < self.window_start || end > self.window_start + self.window.len() as u64 {
            let wanted = (n as u64).max(WINDOW_BYTES).min(self.limit() - position);
            self.window.resize(wanted as usize, 0);
            self.window_start = position;
            let mut done = 0;
            while done < wanted {
                let extent = self.extent_at(position + done);
                let within = position + done - extent.start;
                let piece = (extent.bytes - within).min(wanted - done);
                let (file, offset) = (Arc::clone(&extent.file), extent.file_offset + within);
                let target = &mut self.window[done as usize..(done + piece) as usize];
                file.read_exact_at(target, offset)?;
                done += piece;
            }
        }
        let at = (position - self.window_start) as usize;
        Ok(&self.window[at..at + n])
    }

    /// The frame at `position`, or `None` if there is no whole, intact one.
    pub fn read(&mut self, position: u64) -> Result<Option<Frame<'_>>> {
        let id = self.id;
        let room = self.limit().saturating_sub(position);
        if room < FRAME_HEADER_BYTES as u64 {
            return Ok(None);
        }
        let bytes = self.bytes(position, FRAME_HEADER_BYTES)?;
        let header = FrameHeader::decode(bytes.try_into().expect("that many bytes were read"));
        let whole = frame_bytes(header.payload_bytes);
        if header.position != position || header.payload_bytes > PAYLOAD_BYTES_MAX || whole > room {
            return Ok(None);
        }
        let bytes = self.bytes(position, whole as usize)?;
        let payload = &bytes[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + header.payload_bytes];
        let intact = header.matches(id, payload);
        Ok(intact.then_some(Frame {
            payload,
            end: position + whole,
            durable: header.durable,
        }))
    }

    /// Finds intact frames from `from` on, at any aligned start, with the durable position of each,
    /// and places that may have been [erased](Stream::erase). It is for the range after the
    /// stream's end, which normally has no frames.
    pub fn find_frames(&mut self, from: u64) -> Result<Behind> {
        let mut behind = Behind::default();
        let mut position = from;
        while position + FRAME_HEADER_BYTES as u64 <= self.limit() {
            let n = WINDOW_BYTES.min(self.limit() - position) as usize;
            let candidates = candidates(self.bytes(position, n)?, position, &mut behind.erased);
            for &candidate in &candidates {
                if let Some(frame) = self.read(candidate)? {
                    behind.strays.push(StrayFrame {
                        position: candidate,
                        durable: frame.durable,
                    });
                }
            }
            // The last header of this window may cross its end.
            position += n as u64 - FRAME_ALIGN;
        }
        Ok(behind)
    }

    /// Erases the frame at `position`, permanently once the file is synced: a frame without its own
    /// position is not a frame.
    pub fn erase(&self, position: u64) -> Result<()> {
        self.put_erased(position + POSITION_AT, FRAME_ALIGN)
    }

    /// Rewrites the erased places of [`Stream::find_frames`], because an earlier erasure may be
    /// lost although it is readable. Other places that look erased are rewritten unchanged.
    pub fn erase_again(&self, erased: &[Range<u64>]) -> Result<()> {
        erased
            .iter()
            .try_for_each(|place| self.put_erased(place.start, place.end - place.start))
    }

    fn put_erased(&self, position: u64, bytes: u64) -> Result<()> {
        self.write(position, &vec![ERASED; bytes as usize])
    }

    /// Rewrites the frames in `[from, to)` in place. Readable frames need not be on the device:
    /// after a failed sync, possibly of an earlier process, the operating system may show pages
    /// that it has given up writing, and later syncs succeed. A sync after this call covers the
    /// rewritten frames.
    ///
    /// # Errors
    /// XX001 if they are no longer readable.
    pub fn rewrite(&mut self, from: u64, to: u64) -> Result<()> {
        let mut position = from;
        while position < to {
            let Some(end) = self.read(position)?.map(|frame| frame.end) else {
                return Err(Error::corrupt(
                    self.place(position),
                    "the record was read a moment ago and is not there any more",
                ));
            };
            let bytes = self.bytes(position, (end - position) as usize)?.to_vec();
            self.write(position, &bytes)?;
            position = end;
        }
        Ok(())
    }

    /// Writes `bytes` at `position`, within the stream.
    fn write(&self, position: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = position + done as u64;
            let extent = self.extent_at(at);
            let n = ((extent.end() - at) as usize).min(bytes.len() - done);
            let offset = extent.file_offset + (at - extent.start);
            extent.file.write_all_at(&bytes[done..done + n], offset)?;
            done += n;
        }
        Ok(())
    }

    /// Refuses a stream that ends at `end` if a later frame proves that more was durable.
    pub fn refuse_damage(&self, end: u64, strays: &[StrayFrame]) -> Result<()> {
        match strays.iter().find(|stray| stray.durable > end) {
            None => Ok(()),
            Some(stray) => Err(Error::corrupt(
                self.place(end),
                format!(
                    "the record is damaged: an intact later record at position {} shows that \
                     everything before position {} had been stored",
                    stray.position, stray.durable
                ),
            )),
        }
    }
}

/// An intact frame after the end of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StrayFrame {
    pub position: u64,
    pub durable: u64,
}

/// The data found after the end of a stream.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    /// Intact frames.
    pub strays: Vec<StrayFrame>,
    /// Positions with only [`ERASED`] bytes.
    pub erased: Vec<Range<u64>>,
}

/// The aligned positions in `bytes` (which start at `start`) whose header has its own position.
/// Erased words are added to `erased`.
fn candidates(bytes: &[u8], start: u64, erased: &mut Vec<Range<u64>>) -> Vec<u64> {
    let step = FRAME_ALIGN as usize;
    let mut found = Vec::new();
    for (i, word) in bytes.chunks_exact(step).enumerate().skip(1) {
        let position = start + ((i - 1) * step) as u64;
        if word == position.to_le_bytes() {
            found.push(position);
        } else if word == [ERASED; FRAME_ALIGN as usize] {
            let at = position + POSITION_AT;
            match erased.last_mut() {
                Some(last) if last.end == at => last.end += FRAME_ALIGN,
                _ => erased.push(at..at + FRAME_ALIGN),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::put_frame;
    use strandline_device::{Device, MemoryDevice};

    const ID: StreamId = StreamId {
        database_id: 9,
        number: 0,
    };

    /// A stream of `bytes` zeros with an intact frame at each of `positions`.
    fn stream_with(positions: &[u64], bytes: u64) -> Stream {
        let file = MemoryDevice::new().create("a").unwrap();
        file.set_len(bytes).unwrap();
        for &position in positions {
            let mut frame = Vec::new();
            put_frame(&mut frame, ID, position, 0, b"payload");
            file.write_all_at(&frame, position).unwrap();
        }
        let extent = Extent {
            file,
            file_offset: 0,
            start: 0,
            bytes,
        };
        Stream::new(ID, vec![extent])
    }

    /// A window begins one word before the end of the previous one, because a header may cross the
    /// border.
    #[test]
    fn frames_are_found_wherever_they_lie_between_two_windows() {
        for border in [WINDOW_BYTES, 2 * WINDOW_BYTES - FRAME_ALIGN] {
            for words in -6i64..=6 {
                let position = border.strict_add_signed(words * FRAME_ALIGN as i64);
                let mut stream = stream_with(&[position], 3 * WINDOW_BYTES);
                let found = stream.find_frames(0).unwrap().strays;
                let found: Vec<_> = found.iter().map(|stray| stray.position).collect();
                assert_eq!(found, [position]);
            }
        }
    }

    #[test]
    fn frames_are_found_up_to_the_last_byte_and_from_any_start() {
        for bytes in [
            FRAME_HEADER_BYTES as u64,
            32,
            64,
            WINDOW_BYTES,
            WINDOW_BYTES + 40,
        ] {
            let last = bytes - 32.min(bytes);
            let mut stream = stream_with(&[last], bytes.max(32));
            let strays = stream.find_frames(0).unwrap().strays;
            assert_eq!(
                strays.first().map(|stray| stray.position),
                Some(last),
                "{bytes}"
            );
            let strays = stream.find_frames(last).unwrap().strays;
            assert_eq!(
                strays.first().map(|stray| stray.position),
                Some(last),
                "{bytes}"
            );
            assert!(stream.find_frames(last + 8).unwrap().strays.is_empty());
        }
    }

    #[test]
    fn erased_frames_are_no_frames_and_are_seen_as_erased() {
        let positions = [0, 32, WINDOW_BYTES - 16, WINDOW_BYTES + 64];
        let mut stream = stream_with(&positions, 2 * WINDOW_BYTES);
        for position in positions {
            stream.erase(position).unwrap();
        }
        stream.window.clear();
        let behind = stream.find_frames(0).unwrap();
        assert!(behind.strays.is_empty());
        let erased: Vec<_> = positions.map(|at| at + 8..at + 16).to_vec();
        assert_eq!(behind.erased, erased);
    }
}
