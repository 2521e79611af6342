//! The image of a tree: all but the blocks' contents and pending entries (docs/rfcs/3-fd-tree.md).
//!
//! ```text
//! u16 version, varint inserts, deletes, next run; head; levels;
//! u8 whether a compaction is under way; then its old head, old levels, varint new levels,
//! wavefront, pointer and last fence (u8 whether there is one, then its value)
//! head: varint entries, each bytes key and u8 kind; varint fences, each bytes key, varint ordinal
//! levels: varint count, each varint number, run, u8 only fences, varint first ordinal, blocks and
//! their numbers; varint bits of its filters for an entry, varint filters, each bytes first entry,
//! varint first ordinal, blocks and their numbers (`partition`)
//! ```

use super::block::index_name;
use super::head::{Change, Data, Head};
use super::level::Level;
use super::partition::Partition;
use super::progress::Work;
use super::state::{Mode, Old, Shared, Slot, State};
use std::sync::Arc;
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Error, Result};

const VERSION: u16 = 1;

/// Writes the image, then frees the blocks that were reclaimed before it.
pub(super) fn save(shared: &Shared) -> Result<()> {
    shared.blocks.begin_image();
    let (image, released, changes) = {
        let mut state = shared.state.lock();
        if shared.settings.mode == Mode::Ds && state.old.is_some() {
            return Ok(());
        }
        (encode(&state), state.take_released(), state.changes)
    };
    if let Err(error) = shared.blocks.put_image(&image) {
        shared.state.lock().put_released(released);
        return Err(error);
    }
    shared.state.lock().saved = Some(changes);
    shared.blocks.free(&released);
    Ok(())
}

fn encode(state: &State) -> Vec<u8> {
    let mut pending = Change::default();
    let old_head = state.old.as_ref().map(|old| &old.head);
    for head in std::iter::once(&state.head).chain(old_head) {
        for data in head.data.values().filter(|data| data.is_pending) {
            pending.add(Change::of(data.is_insert, -1));
        }
    }
    let mut out = Vec::new();
    out.put_u16(VERSION);
    out.put_varint(state.inserts.saturating_add_signed(pending.inserts));
    out.put_varint(state.deletes.saturating_add_signed(pending.deletes));
    out.put_varint(state.next_run);
    put_head(&mut out, &state.head);
    put_slots(&mut out, &state.slots);
    out.put_u8(u8::from(state.old.is_some()));
    if let Some(old) = &state.old {
        put_head(&mut out, &old.head);
        put_slots(&mut out, &old.slots);
        out.put_varint(old.new_levels as u64);
        out.put_u8(u8::from(old.wavefront.is_some()));
        out.put_bytes(old.wavefront.as_deref().unwrap_or_default());
        for pointer in [old.pointer, old.last_fence] {
            out.put_u8(u8::from(pointer.is_some()));
            out.put_varint(pointer.unwrap_or_default());
        }
    }
    out
}

fn put_head(out: &mut Vec<u8>, head: &Head) {
    let durable = || head.data.iter().filter(|(_, data)| !data.is_pending);
    out.put_varint(durable().count() as u64);
    for (key, data) in durable() {
        out.put_bytes(key);
        out.put_u8(u8::from(data.is_insert));
    }
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
        out.put_varint(slot.level.run);
        out.put_u8(u8::from(slot.level.only_fences));
        out.put_varint(slot.live_from);
        out.put_varint(slot.blocks());
        for ordinal in slot.live_from..slot.level.end() {
            let number = slot.level.number(ordinal);
            debug_assert!(number.is_some(), "an image names only written blocks");
            out.put_varint(number.unwrap_or(u64::MAX));
        }
        let partitions = slot.level.partitions();
        out.put_varint(slot.level.filter_bits as u64);
        out.put_varint(partitions.len() as u64);
        for partition in partitions {
            debug_assert!(
                !partition.numbers.is_empty(),
                "an image names only written filters"
            );
            out.put_bytes(&partition.first);
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
    if reader.u16()? != VERSION {
        return None;
    }
    let mut state = State {
        inserts: reader.varint()?,
        deletes: reader.varint()?,
        next_run: reader.varint()?,
        head: take_head(reader)?,
        slots: take_slots(reader, used)?,
        ..State::default()
    };
    if reader.u8()? == 1 {
        state.old = Some(Old {
            head: take_head(reader)?,
            loaded: None,
            slots: take_slots(reader, used)?,
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

fn take_slots(reader: &mut ByteReader<'_>, used: &mut Vec<u64>) -> Option<Vec<Slot>> {
    let mut slots = Vec::new();
    for _ in 0..reader.varint()? {
        let number = u32::try_from(reader.varint()?).ok()?;
        let run = reader.varint()?;
        let only_fences = reader.u8()? == 1;
        let first = reader.varint()?;
        let numbers = take_numbers(reader, used)?;
        first.checked_add(numbers.len() as u64)?;
        let filter_bits = usize::try_from(reader.varint()?).ok()?;
        let mut partitions = Vec::new();
        for _ in 0..reader.varint()? {
            let (first, ordinal) = (reader.bytes()?, reader.varint()?);
            let numbers = take_numbers(reader, used)?;
            partitions.push(Arc::new(Partition::stored(first.into(), ordinal, numbers)));
        }
        let end = |one: &Partition| one.ordinal.checked_add(one.numbers.len() as u64);
        let is_before = |a: &Arc<Partition>, b: &Arc<Partition>| {
            a.first < b.first && end(a).is_some_and(|end| end <= b.ordinal)
        };
        if !partitions.is_sorted_by(is_before) || partitions.iter().any(|one| end(one).is_none()) {
            return None;
        }
        let level = Level::opened(run, only_fences, first, numbers);
        slots.push(Slot {
            number,
            level: Arc::new(level.with_filters(filter_bits, partitions)),
            live_from: first,
        });
    }
    Some(slots)
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
    fn with_level(first: u64, filters: [u64; 2]) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u16(VERSION);
        // inserts, deletes, next run; the head has neither entries nor fences
        for number in [0, 0, 9, 0, 0] {
            out.put_varint(number);
        }
        // one level: number, run
        for number in [1, 0, 3] {
            out.put_varint(number);
        }
        out.put_u8(0);
        out.put_varint(first);
        put_numbers(&mut out, &[5]);
        out.put_varint(10);
        out.put_varint(filters.len() as u64);
        for (ordinal, key) in filters.into_iter().zip([b"a", b"b"]) {
            out.put_bytes(key);
            out.put_varint(ordinal);
            put_numbers(&mut out, &[7]);
        }
        out.put_u8(0);
        out
    }

    /// Ordinals behind a right checksum that no writer makes.
    #[test]
    fn ordinals_beyond_all_numbers_are_damage() {
        assert!(decode(&with_level(4, [0, 1]), 1).is_ok());
        for (first, filters) in [(4, [1, 1]), (4, [u64::MAX, 1]), (u64::MAX, [0, 1])] {
            let error = decode(&with_level(first, filters), 1).err();
            let error = error.expect("damage").to_string();
            assert!(error.contains("levels-00000001"), "{error}");
        }
    }
}
