//! Blocks of a level [FD+ §2.1].
//!
//! ```text
//! 0   u32  CRC-32C over tree, number, and the bytes from 4 up to the used bytes
//! 4   u16  version of the format
//! 6   u16  entries
//! 8   u32  used bytes, this header included
//! 12  u64  run: the level's identity, never used twice in a tree
//! 20  u64  ordinal of the block in its run
//! 28  ...  entries: u8 kind (0 insert, 1 delete, 2 fence), varint bytes shared with the entry
//!          before, varint length of the rest and the rest, for a fence varint ordinal
//! ```

use std::cmp::Ordering;
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Error, Result, checksum};

const VERSION: u16 = 1;
/// Bytes before the entries.
pub(super) const HEADER_BYTES: usize = 28;
const CHECKSUM_BYTES: usize = 4;
/// The most bytes of an entry in a block besides its own: kind, two lengths, ordinal.
pub(super) const ENTRY_OVERHEAD_MAX: usize = 1 + 2 + 2 + 10;

/// The kind of an entry. Of equal entries a fence comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Delete,
    /// the ordinal of a block in the next level
    Fence(u64),
}

impl Kind {
    pub fn is_data(self) -> bool {
        !matches!(self, Self::Fence(_))
    }
}

/// An entry with its own bytes.
pub(super) type Item = (Box<[u8]>, Kind);

/// Where a block belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub tree: u64,
    pub number: u64,
    pub run: u64,
    pub ordinal: u64,
}

/// The name of an index in messages: its identity is the number of its level file.
pub(super) fn index_name(tree: u64) -> String {
    format!("index levels-{tree:08x}")
}

/// The entries of a block, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    keys: Vec<u8>,
    /// end of each entry in `keys`, and its kind
    ends: Vec<End>,
    /// position of each fence among the entries, and the block that it leads to
    fences: Vec<(u32, u64)>,
    /// bytes of the encoded entries
    encoded: usize,
    /// bytes with which all entries begin
    common: usize,
    /// bytes of each entry; None: they differ
    width: Option<usize>,
}

/// Where an entry ends among the keys, and in the two lowest bits its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End(u32);

impl End {
    fn new(end: usize, kind: Kind) -> Self {
        let kind = match kind {
            Kind::Insert => 0,
            Kind::Delete => 1,
            Kind::Fence(_) => 2,
        };
        Self((end as u32) << 2 | kind)
    }

    fn at(self) -> usize {
        (self.0 >> 2) as usize
    }

    /// Whether a data entry inserts; None: it is a fence.
    fn is_insert(self) -> Option<bool> {
        match self.0 & 3 {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        }
    }
}

impl Block {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    fn key(&self, at: usize) -> Option<&[u8]> {
        if at >= self.ends.len() {
            return None;
        }
        if let Some(width) = self.width {
            return self.keys.get(at * width..(at + 1) * width);
        }
        let end = self.ends.get(at)?.at();
        let start = match at {
            0 => 0,
            _ => self.ends.get(at - 1)?.at(),
        };
        self.keys.get(start..end)
    }

    pub fn get(&self, at: usize) -> Option<(&[u8], Kind)> {
        let kind = match self.ends.get(at)?.is_insert() {
            Some(true) => Kind::Insert,
            Some(false) => Kind::Delete,
            None => Kind::Fence(self.fence(at)?),
        };
        Some((self.key(at)?, kind))
    }

    /// The block to which the fence at this position leads.
    fn fence(&self, at: usize) -> Option<u64> {
        let found = match self.fences.len() == self.ends.len() {
            true => at,
            false => {
                let of = |(position, _): &(u32, u64)| *position as usize;
                self.fences.binary_search_by_key(&at, of).ok()?
            }
        };
        Some(self.fences.get(found)?.1)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], Kind)> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// Bytes used on the device, the header included.
    pub fn used_bytes(&self) -> usize {
        HEADER_BYTES + self.encoded
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let ends = self.ends.capacity() * size_of::<End>();
        let fences = self.fences.capacity() * size_of::<(u32, u64)>();
        size_of::<Self>() + self.keys.capacity() + ends + fences
    }

    pub fn first_key(&self) -> Option<&[u8]> {
        self.key(0)
    }

    pub fn last_key(&self) -> Option<&[u8]> {
        self.key(self.len().checked_sub(1)?)
    }

    /// The number of entries with keys below `key`. Entries are compared by the word behind the
    /// bytes with which all of them begin, and as a whole if the words are equal.
    pub fn below(&self, key: &[u8]) -> usize {
        let first = self.key(0).unwrap_or_default();
        let common = first.get(..self.common).unwrap_or_default();
        match key.get(..self.common).unwrap_or(key).cmp(common) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.len(),
            Ordering::Equal => {}
        }
        let wanted = word_at(key, self.common);
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let found = self.key(middle).unwrap_or_default();
            let word = word_at(found, self.common);
            let is_below = match word == wanted {
                true => found < key,
                false => word < wanted,
            };
            match is_below {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// The number of entries with keys up to `key`.
    pub fn up_to(&self, key: &[u8]) -> usize {
        let below = self.below(key);
        let equal = (below..self.len()).take_while(|at| self.key(*at) == Some(key));
        below + equal.count()
    }

    /// The data entry with exactly this key, if there is one: whether it inserts. And, as
    /// [`Block::floor_fence`], the way down.
    pub fn find(&self, key: &[u8]) -> (Option<bool>, Option<u64>) {
        let mut found = None;
        let mut end = self.below(key);
        while self.key(end) == Some(key) {
            found = found.or(self.ends.get(end).and_then(|end| end.is_insert()));
            end += 1;
        }
        (found, self.last_fence(end))
    }

    /// The last fence that is not greater than `key`.
    pub fn floor_fence(&self, key: &[u8]) -> Option<u64> {
        self.last_fence(self.up_to(key))
    }

    /// The last fence of the first `end` entries.
    fn last_fence(&self, end: usize) -> Option<u64> {
        let is_within = |(at, _): &(u32, u64)| (*at as usize) < end;
        let within = match self.fences.len() == self.ends.len() {
            true => end,
            false => self.fences.partition_point(is_within),
        };
        Some(self.fences.get(within.checked_sub(1)?)?.1)
    }

    fn shared_with_last(&self, key: &[u8]) -> usize {
        common_bytes(self.last_key().unwrap_or_default(), key)
    }

    /// Appends entries with one key, which is not less than the last one, if they fit into a block
    /// of `bytes` with `entries_max`. Returns whether they do.
    pub fn push_if_room(
        &mut self,
        key: &[u8],
        kinds: &[Kind],
        bytes: usize,
        entries_max: usize,
    ) -> bool {
        let shared = self.shared_with_last(key);
        let cost: usize = kinds.iter().map(|kind| cost(key, shared, *kind)).sum();
        let has_room =
            HEADER_BYTES + self.encoded + cost <= bytes && self.len() + kinds.len() <= entries_max;
        match kinds {
            _ if !has_room => {}
            [kind] => self.append(key, *kind, shared),
            kinds => kinds.iter().for_each(|kind| self.push(key, *kind)),
        }
        has_room
    }

    /// Appends an entry, whose key is not less than the last one.
    pub fn push(&mut self, key: &[u8], kind: Kind) {
        self.append(key, kind, self.shared_with_last(key));
    }

    /// Appends an entry, whose key begins with `shared` bytes of the last one.
    fn append(&mut self, key: &[u8], kind: Kind, shared: usize) {
        debug_assert!(self.last_key().is_none_or(|last| last <= key), "in order");
        self.encoded += cost(key, shared, kind);
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.end_entry((start, shared), kind);
    }

    /// The key's bytes are there, from `start` on: the entry is whole. It shares `shared` bytes
    /// with the one before.
    fn end_entry(&mut self, (start, shared): (usize, usize), kind: Kind) {
        if let Kind::Fence(to) = kind {
            self.fences.push((self.ends.len() as u32, to));
        }
        let bytes = self.keys.len() - start;
        (self.common, self.width) = match self.ends.is_empty() {
            true => (bytes, Some(bytes)),
            false => {
                let width = self.width.filter(|width| *width == bytes);
                (self.common.min(shared), width)
            }
        };
        self.ends.push(End::new(self.keys.len(), kind));
    }

    /// The bytes on the device, filled up to `block_bytes`.
    pub fn encode(&self, at: Identity, block_bytes: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(block_bytes);
        bytes.put_u32(0);
        bytes.put_u16(VERSION);
        bytes.put_u16(self.len() as u16);
        bytes.put_u32((HEADER_BYTES + self.encoded) as u32);
        bytes.put_u64(at.run);
        bytes.put_u64(at.ordinal);
        let mut before: &[u8] = &[];
        for (key, kind) in self.iter() {
            bytes.put_u8(match kind {
                Kind::Insert => 0,
                Kind::Delete => 1,
                Kind::Fence(_) => 2,
            });
            let shared = common_bytes(before, key);
            bytes.put_varint(shared as u64);
            bytes.put_bytes(key.get(shared..).unwrap_or_default());
            if let Kind::Fence(to) = kind {
                bytes.put_varint(to);
            }
            before = key;
        }
        debug_assert_eq!(bytes.len(), HEADER_BYTES + self.encoded);
        let sum = checksum(
            &[at.tree, at.number],
            bytes.get(CHECKSUM_BYTES..).unwrap_or_default(),
        );
        if let Some(place) = bytes.get_mut(..CHECKSUM_BYTES) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
        bytes.resize(block_bytes, 0);
        bytes
    }

    /// The entries of the block that belongs at `at`.
    ///
    /// # Errors
    /// XX001 if the bytes are damaged or another block's.
    pub fn decode(bytes: &[u8], at: Identity) -> Result<Self> {
        let place = || {
            let Identity { tree, number, .. } = at;
            format!("block {number} of {}", index_name(tree))
        };
        let damaged = || Error::corrupt(place(), "its bytes are damaged: build the index anew");
        let mut header = ByteReader::new(bytes);
        let parts = (|| {
            let sum = header.u32()?;
            let version = header.u16()?;
            let (entries, used) = (header.u16()?, header.u32()? as usize);
            let rest = bytes.get(CHECKSUM_BYTES..used)?;
            let is_whole = checksum(&[at.tree, at.number], rest) == sum;
            Some((
                is_whole,
                version,
                entries,
                used,
                header.u64()?,
                header.u64()?,
            ))
        })();
        let Some((true, version, entries, used, run, ordinal)) = parts else {
            return Err(damaged());
        };
        if version != VERSION {
            let what = format!("version {version}; this program reads version {VERSION}");
            return Err(Error::corrupt(place(), what));
        }
        if (run, ordinal) != (at.run, at.ordinal) {
            let what = format!(
                "block {ordinal} of run {run}, expected block {} of run {}",
                at.ordinal, at.run
            );
            return Err(Error::corrupt(place(), what));
        }
        let body = bytes.get(HEADER_BYTES..used).ok_or_else(damaged)?;
        Self::decode_entries(body, entries).ok_or_else(damaged)
    }

    fn decode_entries(body: &[u8], entries: u16) -> Option<Self> {
        let mut reader = ByteReader::new(body);
        let mut block = Self {
            keys: Vec::with_capacity(body.len()),
            ends: Vec::with_capacity(entries.into()),
            ..Self::default()
        };
        let mut start = 0_usize;
        for _ in 0..entries {
            let kind = reader.u8()?;
            let shared = usize::try_from(reader.varint()?).ok()?;
            let rest = reader.bytes()?;
            let end = block.keys.len();
            let before_end = start.checked_add(shared).filter(|at| *at <= end)?;
            block.keys.extend_from_within(start..before_end);
            block.keys.extend_from_slice(rest);
            start = end;
            let kind = match kind {
                0 => Kind::Insert,
                1 => Kind::Delete,
                2 => Kind::Fence(reader.varint()?),
                _ => return None,
            };
            block.end_entry((end, shared), kind);
        }
        block.encoded = body.len();
        (reader.remaining() == 0).then_some(block)
    }
}

/// The eight bytes from `at` on, by which entries are compared; of a shorter entry zeros follow.
fn word_at(key: &[u8], at: usize) -> u64 {
    let rest = key.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(word) => u64::from_be_bytes(*word),
        None => {
            let mut word = [0; size_of::<u64>()];
            word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(word)
        }
    }
}

/// Bytes of an encoded entry, of which the entry before has `shared`.
fn cost(key: &[u8], shared: usize, kind: Kind) -> usize {
    let rest = key.len() - shared;
    let pointer = match kind {
        Kind::Fence(to) => varint_bytes(to),
        Kind::Insert | Kind::Delete => 0,
    };
    1 + varint_bytes(shared as u64) + varint_bytes(rest as u64) + rest + pointer
}

fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    let (words_a, words_b) = (a.as_chunks().0, b.as_chunks().0);
    let mut common = 0;
    for (a, b) in words_a.iter().zip(words_b) {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return common + differing.trailing_zeros() as usize / 8;
        }
        common += size_of::<u64>();
    }
    let rest = a.iter().skip(common).zip(b.iter().skip(common));
    common + rest.take_while(|(a, b)| a == b).count()
}

fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Identity = Identity {
        tree: 9,
        number: 3,
        run: 5,
        ordinal: 200,
    };

    fn block() -> Block {
        let mut block = Block::default();
        block.push(b"", Kind::Fence(4));
        block.push(b"abc", Kind::Insert);
        block.push(b"abd", Kind::Fence(5));
        block.push(b"abd", Kind::Delete);
        block.push(b"b", Kind::Fence(300));
        block
    }

    #[test]
    fn comes_back_and_is_searched() {
        let bytes = block().encode(AT, 256);
        let block = Block::decode(&bytes, AT).unwrap();
        assert_eq!(block, super::tests::block());
        assert_eq!(block.find(b"abd"), (Some(false), Some(5)));
        assert_eq!(block.find(b"abc"), (Some(true), Some(4)));
        assert_eq!(block.find(b"b"), (None, Some(300)));
        assert_eq!(block.find(b"ab"), (None, Some(4)));
        assert_eq!(block.floor_fence(b"abc"), Some(4));
        assert_eq!(block.floor_fence(b"abd"), Some(5));
        assert_eq!(block.floor_fence(b"zz"), Some(300));
    }

    #[test]
    fn bytes_in_common_are_counted() {
        let bytes: Vec<u8> = (0..40).collect();
        for length in 0..40 {
            for differs_at in 0..=length {
                let mut other = bytes[..length].to_vec();
                other.extend_from_slice(b"longer");
                other[differs_at] ^= 128;
                let common = common_bytes(&bytes[..length], &other);
                assert_eq!(common, differs_at, "of {length}");
                assert_eq!(common_bytes(&other, &bytes[..length]), common);
            }
        }
    }

    /// Searches against a naive one: entries of one length and of several, with bytes in common
    /// and without, and keys before, between, behind and within them.
    #[test]
    fn searches_find_what_a_naive_one_finds() {
        let mut rng = strandline_base::rng::Rng::new(7);
        for round in 0..300 {
            let prefix = vec![round as u8; rng.below(12) as usize];
            let key = |rng: &mut strandline_base::rng::Rng, length: u64| {
                let rest = (0..length).map(|_| [0, 1, 255][rng.below(3) as usize]);
                prefix.iter().copied().chain(rest).collect::<Vec<u8>>()
            };
            let width = (round % 2 == 0).then(|| rng.below(6) * 2);
            let count = rng.below(40);
            let mut keys: Vec<_> = (0..count)
                .map(|_| {
                    let length = width.unwrap_or_else(|| rng.below(12));
                    key(&mut rng, length)
                })
                .collect();
            keys.sort_unstable();
            let mut block = Block::default();
            for key in &keys {
                block.push(key, Kind::Insert);
            }
            let decoded = Block::decode(&block.encode(AT, 4096), AT).unwrap();
            assert_eq!(decoded, block);
            let mut wanted = keys.clone();
            wanted.extend((0..40).map(|_| {
                let length = rng.below(14);
                key(&mut rng, length)
            }));
            wanted.extend([vec![], vec![0], vec![round as u8], vec![255; 30]]);
            for wanted in &wanted {
                let below = keys.iter().filter(|key| *key < wanted).count();
                assert_eq!(block.below(wanted), below, "{wanted:?} in {keys:?}");
                let (found, _) = block.find(wanted);
                assert_eq!(found.is_some(), keys.contains(wanted));
            }
        }
    }

    /// Bytes with a right checksum that no writer makes.
    #[test]
    fn a_shared_length_beyond_the_entry_before_is_damage() {
        for shared in [1, 4, u64::MAX] {
            let mut body = Vec::new();
            for shared in [0, 0, shared] {
                body.put_u8(0);
                body.put_varint(shared);
                body.put_bytes(b"abc");
            }
            let decoded = Block::decode_entries(&body, 3);
            assert_eq!(decoded.is_some(), shared == 1, "{shared}");
        }
    }

    #[test]
    fn damage_of_every_byte_and_a_wrong_place_are_found() {
        let bytes = block().encode(AT, 128);
        let used = HEADER_BYTES + block().encoded;
        for at in 0..used {
            let mut damaged = bytes.clone();
            damaged[at] ^= 16;
            assert!(Block::decode(&damaged, AT).is_err(), "byte {at}");
        }
        for at in [
            Identity { number: 4, ..AT },
            Identity { tree: 1, ..AT },
            Identity { run: 6, ..AT },
            Identity { ordinal: 1, ..AT },
        ] {
            assert!(Block::decode(&bytes, at).is_err());
        }
        for length in 0..used {
            assert!(Block::decode(&bytes[..length], AT).is_err());
        }
    }
}
