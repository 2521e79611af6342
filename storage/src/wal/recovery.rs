//! Opens the log: finds its segments, replays its records, and distinguishes a torn tail (cut) from
//! damage (refused).
//!
//! 1. The *chain* is the segments with a good header whose log positions follow each other without
//!    a gap, from the one with the replay position on. All other segment files are *leftovers*: cut
//!    before the crash, or unfinished preparations.
//! 2. Records are read up to the first that is not whole and intact: the log's end.
//! 3. After the end, in the chain and in leftovers, no intact record may prove that a position past
//!    the end was durable. Nor may the end be before the position that the caller knows to be
//!    durable.
//! 4. Other intact records after the end were in flight at the crash, after a lost one. They are
//!    erased before anything is appended, because new records that fill the gap would revive them.
//! 5. Readable bytes need not be on the device, and a sync need not write them: after a failed
//!    sync, or a failed write-back of the operating system, lost pages stay readable and count as
//!    clean. So records past the known durable position, and erasures, are rewritten before the
//!    sync, which then covers them.
//! 6. A segment without a record is not trusted for the same reason: its header or name may be
//!    lost. It is a leftover. A segment with a record, or with the replay position, was durable
//!    with its name before the log reached it.

use std::collections::BTreeMap;
use std::sync::Arc;

use strandline_base::{Error, Result};
use strandline_device::Device;

use super::segment::{FoundSegment, Segment, find_segments};
use super::{Lsn, WAL_STREAM};
use crate::frame::StreamId;
use crate::stream::Stream;

/// The result of recovery.
pub(super) struct Recovered {
    /// From the replay position's segment on, in order; never empty.
    pub segments: Vec<Segment>,
    /// The log's end.
    pub end: u64,
    /// A segment number that no file has used.
    pub next_number: u64,
}

pub(super) fn recover(
    device: &Arc<dyn Device>,
    database_id: u128,
    from: Lsn,
    known_durable: Lsn,
    replay: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
) -> Result<Recovered> {
    let found = find_segments(&**device, database_id)?;
    let next_number = found.last().map_or(1, |last| last.number + 1);
    let (mut segments, leftovers) = find_chain(found, from.0);
    if segments.is_empty() {
        return Err(missing_start(&**device, &leftovers, from));
    }
    let id = StreamId {
        database_id,
        number: WAL_STREAM,
    };
    let mut stream = Stream::new(id, segments.iter().map(Segment::extent).collect());

    let (mut end, mut durable) = (from.0, from.max(known_durable).0);
    while let Some(frame) = stream.read(end)? {
        end = frame.end;
        durable = durable.max(frame.durable);
        replay(Lsn(end), frame.payload)?;
    }
    let behind = stream.find_frames(end)?;
    stream.refuse_damage(end, &behind.strays)?;
    refuse_damaged_leftovers(&stream, id, end, &leftovers)?;
    let known = from.max(known_durable);
    if end < known.0 {
        return Err(Error::corrupt(
            stream.place(end),
            format!(
                "the log ends here, but it was durable up to position {}",
                known.0
            ),
        ));
    }
    stream.rewrite(durable, end)?;
    stream.erase_again(&behind.erased)?;
    for stray in &behind.strays {
        stream.erase(stray.position)?;
    }
    for segment in &segments {
        segment.file.sync()?;
    }
    let names = unused(&mut segments, end)
        .map(|segment| segment.file.name().to_owned())
        .chain(leftovers.iter().map(|file| file.file.name().to_owned()));
    remove_for_good(&**device, names.collect())?;
    Ok(Recovered {
        segments,
        end,
        next_number,
    })
}

/// Splits the files into the chain that contains `from` and the rest. If two good headers have the
/// same base, the higher number wins: a number is skipped only when its preparation failed.
fn find_chain(found: Vec<FoundSegment>, from: u64) -> (Vec<Segment>, Vec<FoundSegment>) {
    // `found` is ordered by number, so later entries replace earlier ones.
    let by_base: BTreeMap<u64, Segment> = found
        .iter()
        .filter_map(FoundSegment::segment)
        .map(|s| (s.base, s))
        .collect();
    // At the border of two segments it is the earlier one, if it exists: the later one may be an
    // unfinished preparation.
    let before = by_base.range(..from).next_back().map(|(_, s)| s);
    let first = before
        .filter(|s| from <= s.end())
        .or_else(|| by_base.get(&from));
    let chain: Vec<Segment> = std::iter::successors(first, |last| by_base.get(&last.end()))
        .cloned()
        .collect();
    let leftovers = found
        .into_iter()
        .filter(|f| chain.iter().all(|s| s.number != f.number))
        .collect();
    (chain, leftovers)
}

fn missing_start(device: &dyn Device, files: &[FoundSegment], from: Lsn) -> Error {
    let place = format!("{}: the log", device.location());
    if let Some(damaged) = files.iter().find(|f| f.header.is_none()) {
        return Error::corrupt(
            format!("\"{}\" at offset 0", damaged.file.name()),
            format!(
                "the segment header is damaged, and no other holds log position {}",
                from.0
            ),
        );
    }
    Error::corrupt(
        place,
        format!("no segment holds position {}, where replay starts", from.0),
    )
}

/// Leftovers after the log's end must not prove a longer log.
fn refuse_damaged_leftovers(
    stream: &Stream,
    id: StreamId,
    end: u64,
    leftovers: &[FoundSegment],
) -> Result<()> {
    for file in leftovers {
        let base = file.header.map_or(stream.limit(), |h| h.base);
        let Some(extent) = file.extent_at(base).filter(|e| e.end() > end) else {
            continue;
        };
        let start = extent.start;
        let strays = Stream::new(id, vec![extent]).find_frames(start)?.strays;
        if let Some(stray) = strays.iter().find(|s| s.durable > end) {
            let what = if file.header.is_none() {
                format!(
                    "the header of log segment \"{}\" is damaged",
                    file.file.name()
                )
            } else {
                format!(
                    "a log segment before \"{}\" is missing or damaged",
                    file.file.name()
                )
            };
            return Err(Error::corrupt(
                stream.place(end),
                format!(
                    "the log ends here, but {what}: an intact record at position {} shows that \
                     everything before position {} had been stored",
                    stray.position, stray.durable
                ),
            ));
        }
    }
    Ok(())
}

/// Removes the segments without records from the chain; the first segment stays.
fn unused(segments: &mut Vec<Segment>, end: u64) -> impl Iterator<Item = Segment> {
    let used = segments.partition_point(|s| s.base < end).max(1);
    segments.split_off(used).into_iter()
}

/// Removes files durably, so that none of them can join the chain later.
fn remove_for_good(device: &dyn Device, names: Vec<String>) -> Result<()> {
    for name in &names {
        device.remove(name)?;
    }
    if names.is_empty() {
        Ok(())
    } else {
        device.sync_directory()
    }
}
