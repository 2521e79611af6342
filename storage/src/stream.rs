//! Reading a stream of frames back from the files it lies in, and telling its end from damage.

use std::sync::Arc;

use strandline_base::{Error, Result};
use strandline_device::File;

use crate::frame::{
    FRAME_ALIGN, FRAME_HEADER_BYTES, FrameHeader, PAYLOAD_BYTES_MAX, StreamId, frame_bytes,
};

/// Bytes read from a file at a time.
const WINDOW_BYTES: u64 = 1 << 20;

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
    /// Reads frames of `id`. `extents` must not be empty; each starts where the one before ends.
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

    /// The file that holds `position` and the offset in it.
    pub fn locate(&self, position: u64) -> (&Arc<dyn File>, u64) {
        let extent = self.extent_at(position);
        (&extent.file, extent.file_offset + (position - extent.start))
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

    /// The positions of all intact frames from `from` on, at any aligned start, with what each
    /// knew to be durable. Meant for the stretch behind the stream's end, where normally there
    /// are none.
    pub fn find_frames(&mut self, from: u64) -> Result<Vec<StrayFrame>> {
        let mut found = Vec::new();
        let mut position = from;
        while position + FRAME_HEADER_BYTES as u64 <= self.limit() {
            let n = WINDOW_BYTES.min(self.limit() - position) as usize;
            let candidates = candidates(self.bytes(position, n)?, position);
            for &candidate in &candidates {
                if let Some(frame) = self.read(candidate)? {
                    found.push(StrayFrame {
                        position: candidate,
                        durable: frame.durable,
                    });
                }
            }
            // The last header of this window may lie across its end.
            position += n as u64 - FRAME_ALIGN;
        }
        Ok(found)
    }

    /// Refuses a stream that ends at `end` although a later frame says that more was durable.
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

/// An intact frame found behind the end of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StrayFrame {
    pub position: u64,
    pub durable: u64,
}

/// The aligned positions in `bytes` (which start at `start`) whose header names its own position.
fn candidates(bytes: &[u8], start: u64) -> Vec<u64> {
    let step = FRAME_ALIGN as usize;
    let mut found = Vec::new();
    for (i, word) in bytes.chunks_exact(step).enumerate().skip(1) {
        let position = start + ((i - 1) * step) as u64;
        if word == position.to_le_bytes() {
            found.push(position);
        }
    }
    found
}
