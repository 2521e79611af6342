//! Windows of files that are read in order, so that neighbouring reads share one request.
//!
//! A read that begins where an earlier read of the file ended, or shortly after, belongs to a
//! *stream*. The first read of a stream fetches what it asks for; each further one that is in no
//! window fetches a window, twice as long as the stream's last one. Other reads fetch what they ask
//! for, except the first bytes of a file: its header and what follows are read next.
//!
//! Invariants:
//! 1. A window has bytes of an object, which never change. A removed name has no window.
//! 2. There are at most [`WINDOWS`] windows of at most [`WINDOW_BYTES_MAX`] bytes, and at most
//!    [`STREAMS`] streams; the one used longest ago gives way.
//!
//! Lock order: `state` is held while bytes are copied, never during a request.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use strandline_base::sync::{Arc, Mutex};

/// Windows of all files of a device.
pub(crate) const WINDOWS: usize = 16;
/// The longest window.
pub(crate) const WINDOW_BYTES_MAX: u64 = 2 << 20;
/// The shortest window of a stream, and the bytes fetched at the begin of a file.
pub(crate) const WINDOW_BYTES_MIN: u64 = 128 << 10;
/// Streams that are followed.
const STREAMS: usize = 64;
/// Bytes that a stream may leave out.
const GAP_BYTES: u64 = 64 << 10;

#[derive(Debug)]
struct Window {
    file: Arc<str>,
    start: u64,
    bytes: Bytes,
}

#[derive(Debug)]
struct Stream {
    file: Arc<str>,
    /// the byte after the last read
    end: u64,
    /// bytes of the stream's last window; 0 before the first
    window: u64,
}

#[derive(Debug, Default)]
struct State {
    /// the one used last is last
    windows: VecDeque<Window>,
    streams: VecDeque<Stream>,
}

/// The windows of one device.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    state: Mutex<State>,
}

impl ReadAhead {
    /// Fills `buf` from `offset` of `file`, which has `len` bytes and the bytes asked for, if a
    /// window has them. Otherwise returns the range to fetch, which includes them.
    pub fn read(
        &self,
        file: &Arc<str>,
        len: u64,
        buf: &mut [u8],
        offset: u64,
    ) -> Option<Range<u64>> {
        let end = offset + buf.len() as u64;
        let mut state = self.state.lock();
        let stream = state.follow(file, offset, end);
        if state.copy_kept(file, buf, offset) {
            return None;
        }
        let wanted = match stream {
            Some(last) => (last * 2).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX),
            None if offset < WINDOW_BYTES_MIN => WINDOW_BYTES_MIN - offset,
            None => 0,
        };
        let fetched = (offset + wanted).min(len).max(end);
        if let Some(stream) = state.streams.back_mut()
            && stream.window <= wanted
        {
            stream.window = wanted;
        }
        Some(offset..fetched)
    }

    /// Fills `buf` if a window has the bytes. The read belongs to no stream.
    pub fn read_kept(&self, file: &str, buf: &mut [u8], offset: u64) -> bool {
        self.state.lock().copy_kept(file, buf, offset)
    }

    /// Keeps the bytes of a file from `start` on that a read has fetched beyond its own.
    pub fn keep(&self, file: &Arc<str>, start: u64, bytes: Bytes) {
        let mut state = self.state.lock();
        if state.windows.len() == WINDOWS {
            state.windows.pop_front();
        }
        let file = file.clone();
        state.windows.push_back(Window { file, start, bytes });
    }

    /// Drops the windows and streams of a removed file.
    pub fn forget(&self, file: &str) {
        let mut state = self.state.lock();
        state.windows.retain(|window| *window.file != *file);
        state.streams.retain(|stream| *stream.file != *file);
    }
}

impl State {
    /// Fills `buf` from the window that has all of its bytes, which becomes the last of the list.
    fn copy_kept(&mut self, file: &str, buf: &mut [u8], offset: u64) -> bool {
        let end = offset + buf.len() as u64;
        let has = |w: &Window| {
            *w.file == *file && w.start <= offset && end <= w.start + w.bytes.len() as u64
        };
        let at = self.windows.iter().position(has);
        let Some(window) = at.and_then(|at| self.windows.remove(at)) else {
            return false;
        };
        let within = (offset - window.start) as usize;
        buf.copy_from_slice(&window.bytes[within..within + buf.len()]);
        self.windows.push_back(window);
        true
    }

    /// Notes a read. The bytes of its stream's last window, or None if it begins a stream. The
    /// stream is the last of the list then.
    fn follow(&mut self, file: &Arc<str>, offset: u64, end: u64) -> Option<u64> {
        let continues = |stream: &Stream| {
            *stream.file == **file && (stream.end..=stream.end + GAP_BYTES).contains(&offset)
        };
        let at = self.streams.iter().position(continues);
        let (stream, last) = match at.and_then(|at| self.streams.remove(at)) {
            Some(stream) => {
                let last = stream.window;
                (Stream { end, ..stream }, Some(last))
            }
            None => {
                let file = file.clone();
                let window = 0;
                (Stream { file, end, window }, None)
            }
        };
        if self.streams.len() == STREAMS {
            self.streams.pop_front();
        }
        self.streams.push_back(stream);
        last
    }
}
