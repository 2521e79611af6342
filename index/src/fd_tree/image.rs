//! The image of a tree: all but the blocks' contents and pending entries (docs/rfcs/3-fd-tree.md).
//!
//! ```text
//! u16 version, varint inserts, deletes, next run; head; levels;
//! u8 whether a compaction is under way; then its old head, old levels, varint new levels,
//! wavefront, pointer and last fence (u8 whether there is one, then its value)
//! head: varint entries, each bytes key and u8 kind; varint fences, each bytes key, varint ordinal
//! levels: varint count, each varint number, varint runs, each varint ordinal of its first block
//! and run, u8 only fences, varint first ordinal, blocks and their numbers; varint bits of its
//! filters for an entry, u8 what they are of (0 keys, 1 entries), varint filters, each bytes first
//! entry, varint run, first ordinal, blocks and their numbers (`partition`)
//! ```
//! The last run of a level is its own. In version 2 all filters are of keys, and nothing says so.
//! In version 1, besides, a level has one run: it stands in place of the runs, and filters name
//! none.

use super::block::index_name;
use super::filter::{FilterForm, FilterOf};
use super::head::{Change, Data, Head};
use super::level::Level;
use super::partition::Partition;
use super::progress::Work;
use super::state::{Mode, Old, Shared, Slot, State};
use std::sync::Arc;
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Error, Result};

const VERSION: u16 = 3;
/// Images of levels with one run each.
const VERSION_ONE_RUN: u16 = 1;

/// Writes the image, then frees the blocks that were reclaimed before it. The caller has the turn:
/// no level changes meanwhile.
pub(super) fn save(shared: &Shared) -> Result<()> {
    shared.blocks.begin_image();
    let (content, released, changes) = {
        let mut state = shared.state.lock();
        if shared.settings.mode == Mode::Ds && state.old.is_some() {
            return Ok(());
        }
        (Content::of(&state), state.take_released(), state.changes)
    };
    if let Err(error) = shared.blocks.put_image(&content.encode()) {
        shared.state.lock().put_released(released);
        return Err(error);
    }
    shared.state.lock().saved = Some(changes);
    shared.blocks.free(&released);
    Ok(())
}

/// What an image has of the state. Only the heads are encoded under the state's lock.
struct Content {
    inserts: u64,
    deletes: u64,
    next_run: u64,
    head: Vec<u8>,
    slots: Arc<Vec<Slot>>,
    old: Option<OldContent>,
}

/// What an image has of the old part.
struct OldContent {
    head: Vec<u8>,
    slots: Arc<Vec<Slot>>,
    new_levels: usize,
    wavefront: Option<Box<[u8]>>,
    /// where the wavefront fence points, and the last fence that has been moved
    pointers: [Option<u64>; 2],
}

impl Content {
    fn of(state: &State) -> Self {
        let mut pending = Change::default();
        let mut encoded = |head: &Head| {
            let mut bytes = Vec::new();
            put_head(&mut bytes, head, &mut pending);
            bytes
        };
        let head = encoded(&state.head);
        let old = state.old.as_ref().map(|old| OldContent {
            head: encoded(&old.head),
            slots: old.slots.clone(),
            new_levels: old.new_levels,
            wavefront: old.wavefront.clone(),
            pointers: [old.pointer, old.last_fence],
        });
        Self {
            inserts: state.inserts.saturating_sub_signed(pending.inserts),
            deletes: state.deletes.saturating_sub_signed(pending.deletes),
            next_run: state.next_run,
            head,
            slots: state.slots.clone(),
            old,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.head.len());
        out.put_u16(VERSION);
        out.put_varint(self.inserts);
        out.put_varint(self.deletes);
        out.put_varint(self.next_run);
        out.extend_from_slice(&self.head);
        put_slots(&mut out, &self.slots);
        out.put_u8(u8::from(self.old.is_some()));
        if let Some(old) = &self.old {
            out.extend_from_slice(&old.head);
            put_slots(&mut out, &old.slots);
            out.put_varint(old.new_levels as u64);
            out.put_u8(u8::from(old.wavefront.is_some()));
            out.put_bytes(old.wavefront.as_deref().unwrap_or_default());
            for pointer in old.pointers {
                out.put_u8(u8::from(pointer.is_some()));
                out.put_varint(pointer.unwrap_or_default());
            }
        }
        out
    }
}

/// Puts a head, without pending entries, which it counts.
fn put_head(out: &mut Vec<u8>, head: &Head, pending: &mut Change) {
    let mut entries = Vec::with_capacity(head.data_bytes());
    let mut count = 0;
    for (key, data) in &head.data {
        if data.is_pending {
            pending.add(Change::of(data.is_insert, 1));
            continue;
        }
        count += 1;
        entries.put_bytes(key);
        entries.put_u8(u8::from(data.is_insert));
    }
    out.put_varint(count);
    out.append(&mut entries);
    out.put_varint(head.fences.len() as u64);
    for (key, to) in &head.fences {
        out.put_bytes(key);
        out.put_varint(*to);
    }
}

fn put_slots(out: &mut Vec<u8>, slots: &[Slot]) {
    out.put_varint(slots.len() as u64);
    for slot in slots {
        out.put_varint(u64::from(slot.number));
        let runs = slot.level.runs();
        out.put_varint(runs.len() as u64);
        for (from, run) in runs {
            out.put_varint(from);
            out.put_varint(run);
        }
        out.put_u8(u8::from(slot.level.only_fences));
        out.put_varint(slot.live_from);
        out.put_varint(slot.blocks());
        for number in slot.level.numbers(slot.live_from) {
            debug_assert!(number.is_some(), "an image names only written blocks");
            out.put_varint(number.unwrap_or(u64::MAX));
        }
        let mut partitions = slot.level.partitions();
        partitions.retain(|one| !one.is_lent);
        out.put_varint(slot.level.filters.bits as u64);
        out.put_u8(match slot.level.filters.of {
            FilterOf::Keys => 0,
            FilterOf::Entries => 1,
        });
        out.put_varint(partitions.len() as u64);
        for partition in partitions {
            debug_assert!(
                !partition.numbers.is_empty(),
                "an image names only written filters"
            );
            out.put_bytes(&partition.first);
            out.put_varint(partition.run);
            out.put_varint(partition.ordinal);
            put_numbers(out, &partition.numbers);
        }
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    out.put_varint(numbers.len() as u64);
    for number in numbers {
        out.put_varint(*number);
    }
}

/// The state of an image, and the blocks that it uses.
///
/// # Errors
/// XX001 if it is damaged or of another version.
pub(super) fn decode(image: &[u8], tree: u64) -> Result<(State, Vec<u64>)> {
    let mut used = Vec::new();
    let decoded = take_state(&mut ByteReader::new(image), &mut used);
    let state = decoded.ok_or_else(|| {
        let what = "damaged, or of a version that this program does not read";
        Error::corrupt(format!("image of {}", index_name(tree)), what)
    })?;
    Ok((state, used))
}

fn take_state(reader: &mut ByteReader<'_>, used: &mut Vec<u64>) -> Option<State> {
    let version = reader.u16()?;
    if !(VERSION_ONE_RUN..=VERSION).contains(&version) {
        return None;
    }
    let mut state = State {
        inserts: reader.varint()?,
        deletes: reader.varint()?,
        next_run: reader.varint()?,
        head: take_head(reader)?,
        slots: Arc::new(take_slots(reader, version, used)?),
        ..State::default()
    };
    if reader.u8()? == 1 {
        state.old = Some(Old {
            head: take_head(reader)?,
            loaded: None,
            slots: Arc::new(take_slots(reader, version, used)?),
            new_levels: usize::try_from(reader.varint()?).ok()?,
            wavefront: {
                let is_some = reader.u8()? == 1;
                Some(reader.bytes()?).filter(|_| is_some).map(Into::into)
            },
            pointer: take_pointer(reader)?,
            last_fence: take_pointer(reader)?,
            work: Work::default(),
        });
    }
    let old_levels = state.old.as_ref().map_or(0, |old| old.new_levels);
    (reader.remaining() == 0 && old_levels <= state.slots.len()).then_some(state)
}

fn take_pointer(reader: &mut ByteReader<'_>) -> Option<Option<u64>> {
    let is_some = reader.u8()? == 1;
    Some(Some(reader.varint()?).filter(|_| is_some))
}

fn take_head(reader: &mut ByteReader<'_>) -> Option<Head> {
    let mut head = Head::default();
    for _ in 0..reader.varint()? {
        let key = reader.bytes()?;
        let data = Data {
            is_insert: reader.u8()? == 1,
            is_pending: false,
        };
        head.put(key, data);
    }
    for _ in 0..reader.varint()? {
        head.add_fence(reader.bytes()?, reader.varint()?);
    }
    Some(head)
}

/// The runs of a level, each from an ordinal on.
fn take_runs(reader: &mut ByteReader<'_>, version: u16) -> Option<Vec<(u64, u64)>> {
    if version == VERSION_ONE_RUN {
        return Some(vec![(0, reader.varint()?)]);
    }
    let mut runs = Vec::new();
    for _ in 0..reader.varint()? {
        runs.push((reader.varint()?, reader.varint()?));
    }
    let is_whole = runs.first().is_some_and(|(from, _)| *from == 0);
    (is_whole && runs.is_sorted_by(|a, b| a.0 < b.0)).then_some(runs)
}

fn take_slots(reader: &mut ByteReader<'_>, version: u16, used: &mut Vec<u64>) -> Option<Vec<Slot>> {
    let mut slots = Vec::new();
    for _ in 0..reader.varint()? {
        let number = u32::try_from(reader.varint()?).ok()?;
        let runs = take_runs(reader, version)?;
        let own_run = runs.last()?.1;
        let only_fences = reader.u8()? == 1;
        let first = reader.varint()?;
        let numbers = take_numbers(reader, used)?;
        first.checked_add(numbers.len() as u64)?;
        let filters = FilterForm {
            bits: usize::try_from(reader.varint()?).ok()?,
            of: match version {
                VERSION => take_filter_of(reader)?,
                _ => FilterOf::Keys,
            },
        };
        let mut partitions = Vec::new();
        for _ in 0..reader.varint()? {
            let first = reader.bytes()?;
            let run = match version {
                VERSION_ONE_RUN => own_run,
                _ => reader.varint()?,
            };
            let ordinal = reader.varint()?;
            let numbers = take_numbers(reader, used)?;
            let stored = Partition::stored(first.into(), run, ordinal, numbers);
            partitions.push(Arc::new(stored));
        }
        let end = |one: &Partition| one.ordinal.checked_add(one.numbers.len() as u64);
        let is_before = |a: &Arc<Partition>, b: &Arc<Partition>| {
            let is_behind = a.run != b.run || end(a).is_some_and(|end| end <= b.ordinal);
            a.first < b.first && is_behind
        };
        if !partitions.is_sorted_by(is_before) || partitions.iter().any(|one| end(one).is_none()) {
            return None;
        }
        let level = Level::opened(runs, only_fences, first, numbers);
        slots.push(Slot {
            number,
            level: Arc::new(level.with_filters(filters, partitions)),
            live_from: first,
        });
    }
    Some(slots)
}

fn take_filter_of(reader: &mut ByteReader<'_>) -> Option<FilterOf> {
    match reader.u8()? {
        0 => Some(FilterOf::Keys),
        1 => Some(FilterOf::Entries),
        _ => None,
    }
}

fn take_numbers(reader: &mut ByteReader<'_>, used: &mut Vec<u64>) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    for _ in 0..reader.varint()? {
        numbers.push(reader.varint()?);
    }
    used.extend_from_slice(&numbers);
    Some(numbers)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// The image of a tree of one level with filters at these ordinals, of one block each.
    fn with_level(version: u16, first: u64, filters: [u64; 2]) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u16(version);
        // inserts, deletes, next run; the head has neither entries nor fences
        for number in [0, 0, 9, 0, 0] {
            out.put_varint(number);
        }
        // one level: number, run
        let runs: &[u64] = match version {
            VERSION_ONE_RUN => &[3],
            _ => &[1, 0, 3],
        };
        for number in [1, 0].iter().chain(runs) {
            out.put_varint(*number);
        }
        out.put_u8(0);
        out.put_varint(first);
        put_numbers(&mut out, &[5]);
        out.put_varint(10);
        if version == VERSION {
            out.put_u8(0);
        }
        out.put_varint(filters.len() as u64);
        for (ordinal, key) in filters.into_iter().zip([b"a", b"b"]) {
            out.put_bytes(key);
            if version != VERSION_ONE_RUN {
                out.put_varint(3);
            }
            out.put_varint(ordinal);
            put_numbers(&mut out, &[7]);
        }
        out.put_u8(0);
        out
    }

    /// Ordinals behind a right checksum that no writer makes.
    #[test]
    fn ordinals_beyond_all_numbers_are_damage() {
        for version in VERSION_ONE_RUN..=VERSION {
            assert!(decode(&with_level(version, 4, [0, 1]), 1).is_ok());
            for (first, filters) in [(4, [1, 1]), (4, [u64::MAX, 1]), (u64::MAX, [0, 1])] {
                let error = decode(&with_level(version, first, filters), 1).err();
                let error = error.expect("damage").to_string();
                assert!(error.contains("levels-00000001"), "{error}");
            }
        }
        assert!(decode(&with_level(VERSION + 1, 4, [0, 1]), 1).is_err());
    }

    /// All versions give the same level, and what is written is of the newest one.
    #[test]
    fn a_level_of_one_run_is_read_in_all_versions() {
        let versions = VERSION_ONE_RUN..=VERSION;
        let images: Vec<_> = versions
            .map(|version| with_level(version, 4, [0, 1]))
            .collect();
        for image in &images {
            let (state, _) = decode(image, 1).expect("whole");
            assert_eq!(Content::of(&state).encode(), images[2]);
        }
    }

    /// Runs that do not begin with the first block, or not in order, are damage.
    #[test]
    fn runs_out_of_order_are_damage() {
        let with_runs = |runs: &[(u64, u64)]| {
            let mut out = Vec::new();
            out.put_varint(runs.len() as u64);
            for (from, run) in runs {
                out.put_varint(*from);
                out.put_varint(*run);
            }
            take_runs(&mut ByteReader::new(&out), VERSION)
        };
        for whole in [&[(0, 5)][..], &[(0, 5), (3, 4)]] {
            assert_eq!(with_runs(whole).as_deref(), Some(whole));
        }
        for damaged in [
            &[][..],
            &[(1, 5)],
            &[(0, 5), (0, 6)],
            &[(0, 5), (4, 6), (3, 7)],
        ] {
            assert_eq!(with_runs(damaged), None, "{damaged:?}");
        }
    }
}
