//! Keeps segments ready ahead of the log's end: prepares new ones, and recycles or removes those
//! before a checkpoint.
//!
//! Everything here runs under the `maintenance` lock, which appenders and leaders take only when
//! the log has run out of room. A segment joins the list, and `limit` moves, after it is durable.

use strandline_base::{Error, Result};

use super::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, segment_name};
use super::{Lsn, SegmentInfo, Wal};

/// The most segments kept ready after the log's end when old ones are cut; further ones are
/// removed.
pub(super) const SPARE_SEGMENTS_MAX: usize = 2;

impl Wal {
    /// Ensures that a whole unused segment follows the log's end, so that appends need not wait for
    /// one. Cheap if one exists.
    pub fn prepare_next_segment(&self) -> Result<()> {
        self.ensure_room(self.settings.segment_bytes - SEGMENT_HEADER_BYTES)
    }

    /// Adds a segment if the log has no room for `needed` more bytes.
    pub(super) fn ensure_room(&self, needed: u64) -> Result<()> {
        let mut next_number = self.maintenance.lock();
        let (end, limit) = {
            let mut state = self.state.lock();
            state.check_usable()?;
            (state.end, state.limit)
        };
        if end + needed <= limit {
            return Ok(());
        }
        let least = SEGMENT_HEADER_BYTES + (end + needed - limit).next_multiple_of(4096);
        let file_bytes = least.max(self.settings.segment_bytes);
        let header = self.header(&mut next_number, limit, file_bytes);
        // A segment for one huge record is not recycled, so zeros would be wasted.
        let zeroed_bytes = if least > self.settings.segment_bytes {
            0
        } else {
            file_bytes
        };
        let segment = Segment::create(&*self.device, header, zeroed_bytes)?;
        self.add(segment);
        Ok(())
    }

    fn header(&self, next_number: &mut u64, base: u64, file_bytes: u64) -> SegmentHeader {
        let number = *next_number;
        *next_number += 1;
        SegmentHeader {
            database_id: self.stream.database_id,
            number,
            base,
            file_bytes,
        }
    }

    fn add(&self, segment: Segment) {
        let limit = segment.end();
        self.segments.lock().push_back(segment);
        self.state.lock().limit = limit;
    }

    /// Drops everything before `lsn`: whole segments before it are recycled, or removed if enough
    /// are ready.
    ///
    /// # Errors
    /// An internal error if `lsn` is not durable; I/O errors, after which the log stays usable.
    pub fn cut_before(&self, lsn: Lsn) -> Result<()> {
        let mut next_number = self.maintenance.lock();
        let (end, mut limit) = {
            let mut state = self.state.lock();
            state.check_usable()?;
            (state.end, state.limit)
        };
        if lsn > self.durable_lsn() {
            return Err(Error::internal(format!(
                "cutting the log before position {}, which is not durable",
                lsn.0
            )));
        }
        while let Some(old) = self.take_segment_before(lsn) {
            let spares = self
                .segments
                .lock()
                .iter()
                .filter(|s| s.base >= end)
                .count();
            if spares < SPARE_SEGMENTS_MAX && old.file_bytes == self.settings.segment_bytes {
                let header = self.header(&mut next_number, limit, old.file_bytes);
                let segment = old.recycle(&*self.device, header)?;
                limit = segment.end();
                self.add(segment);
            } else {
                self.device.remove(&segment_name(old.number))?;
            }
        }
        Ok(())
    }

    /// Removes the oldest segment from the list if it ends at or before `lsn`. The last one stays,
    /// because it shows the next open where the log continues.
    fn take_segment_before(&self, lsn: Lsn) -> Option<Segment> {
        let mut segments = self.segments.lock();
        if segments.len() > 1 && segments.front().is_some_and(|s| s.end() <= lsn.0) {
            return segments.pop_front();
        }
        None
    }

    /// The log's files in order: used ones, then ready ones.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let info = |s: &Segment| SegmentInfo {
            name: segment_name(s.number),
            base: Lsn(s.base),
            bytes: s.file_bytes,
        };
        self.segments.lock().iter().map(info).collect()
    }
}
