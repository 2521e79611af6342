//! The entries of one node: byte strings in ascending order, each once, in one buffer.
//!
//! The buffer begins with the common prefix of all entries. The remainders of the entries follow
//! without gaps. An insertion moves the bytes behind it, at most a node's; splitting, joining and
//! copying a node are copies of slices.
//!
//! A leaf's entry is a key's bytes and the row's number in six bytes, big-endian. These byte
//! strings are therefore ordered like (key, row) pairs, and unique like them. No key's bytes begin
//! with another key's bytes (see `ordered_key`), so the entries of a key are all entries that begin
//! with its bytes.

use crate::access_method::KeyBytes;
use std::cmp::Ordering;
use std::ops::Range;
use strandline_base::{Error, Result, RowId};

/// Bytes of a row's number: 32 bits for the range's number and 16 for the slot.
pub(super) const ROW_BYTES: usize = 6;

/// Spare bytes of a buffer after it grows.
const BYTES_STEP: usize = 512;
/// Spare places of a list of ends after it grows.
const ENDS_STEP: usize = 64;

/// A node's entries; see the module's documentation.
#[derive(Clone, Default)]
pub(super) struct Entries {
    /// the prefix, then the entries' remainders
    bytes: Vec<u8>,
    /// the end of each entry's remainder
    ends: Vec<u16>,
    prefix_len: u16,
}

/// The bytes of one entry, on the stack unless it is long.
pub(super) struct EntryBytes {
    short: [u8; 64],
    long: Vec<u8>,
    len: usize,
}

impl EntryBytes {
    /// The entry of `row` with the key `key`.
    ///
    /// # Errors
    /// XX000 if the row's number has more than 48 bits.
    pub fn new(key: &[u8], row: RowId) -> Result<Self> {
        let row = row_bytes(row)?;
        let len = key.len() + ROW_BYTES;
        let (mut short, mut long) = ([0; 64], Vec::new());
        if let Some((of_key, rest)) = short.split_at_mut_checked(key.len())
            && let Some(of_row) = rest.first_chunk_mut()
        {
            of_key.copy_from_slice(key);
            *of_row = row;
        } else {
            long.reserve_exact(len);
            long.extend_from_slice(key);
            long.extend(row);
        }
        Ok(Self { short, long, len })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        if self.long.is_empty() {
            &self.short[..self.len]
        } else {
            &self.long
        }
    }

    /// The key's bytes.
    pub fn key(&self) -> &[u8] {
        &self.as_slice()[..self.len - ROW_BYTES]
    }
}

/// A row's number in the form that ends an entry.
///
/// # Errors
/// XX000 if it has more than 48 bits.
pub(super) fn row_bytes(row: RowId) -> Result<[u8; ROW_BYTES]> {
    match row.0.to_be_bytes() {
        [0, 0, bytes @ ..] => Ok(bytes),
        _ => Err(Error::internal(format!("{row:?} has more than 48 bits"))),
    }
}

/// The row number in the last bytes of an entry.
pub(super) fn row_of(bytes: [u8; ROW_BYTES]) -> RowId {
    let [a, b, c, d, e, f] = bytes;
    RowId(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

/// The length of the common prefix of two strings.
#[inline]
pub(super) fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The shortest bytes that are greater than `left` and at most `right`. `right` must be greater.
pub(super) fn separator(left: &[u8], right: &[u8]) -> Box<[u8]> {
    let len = common_len(left, right) + 1;
    right[..len.min(right.len())].into()
}

impl Entries {
    /// These entries, in ascending order.
    pub fn of(all: &[&[u8]]) -> Self {
        let (Some(first), Some(last)) = (all.first(), all.last()) else {
            return Self::default();
        };
        let common = common_len(first, last);
        let len: usize = all.iter().map(|entry| entry.len() - common).sum();
        let mut entries = Self::with_prefix(&first[..common], len, all.len());
        for entry in all {
            entries.push_remainder(&[], &entry[common..]);
        }
        entries
    }

    fn with_prefix(prefix: &[u8], bytes: usize, len: usize) -> Self {
        let mut entries = Self {
            bytes: Vec::with_capacity(prefix.len() + bytes),
            ends: Vec::with_capacity(len),
            prefix_len: prefix.len() as u16,
        };
        entries.bytes.extend_from_slice(prefix);
        entries
    }

    /// Adds an entry behind the others; its remainder comes in two pieces.
    fn push_remainder(&mut self, head: &[u8], tail: &[u8]) {
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(tail);
        self.ends.push(self.bytes.len() as u16);
    }

    /// The number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes in use.
    pub fn size(&self) -> usize {
        self.bytes.len() + 2 * self.ends.len()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + 2 * self.ends.capacity()
    }

    #[inline]
    fn prefix(&self) -> &[u8] {
        &self.bytes[..usize::from(self.prefix_len)]
    }

    #[inline]
    fn start(&self, at: usize) -> usize {
        let before = at
            .checked_sub(1)
            .map_or(self.prefix_len, |at| self.ends[at]);
        usize::from(before)
    }

    /// The bytes of an entry behind the prefix.
    #[inline]
    fn remainder(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..usize::from(self.ends[at])]
    }

    /// Appends an entry's bytes.
    pub fn copy(&self, at: usize, to: &mut Vec<u8>) {
        to.extend_from_slice(self.prefix());
        to.extend_from_slice(self.remainder(at));
    }

    /// An entry's bytes.
    pub fn get(&self, at: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(usize::from(self.prefix_len) + 64);
        self.copy(at, &mut bytes);
        bytes
    }

    /// The row of an entry of a leaf.
    pub fn row(&self, at: usize) -> RowId {
        let remainder = self.remainder(at);
        if let Some(row) = remainder.last_chunk() {
            return row_of(*row);
        }
        let (mut row, missing) = ([0; ROW_BYTES], ROW_BYTES - remainder.len());
        let prefix = self.prefix();
        let from = prefix.len().saturating_sub(missing);
        row[..prefix.len() - from].copy_from_slice(&prefix[from..]);
        row[missing..].copy_from_slice(remainder);
        row_of(row)
    }

    /// The key and the row of an entry of a leaf.
    pub fn entry(&self, at: usize) -> (KeyBytes, RowId) {
        let len = usize::from(self.prefix_len) + self.remainder(at).len();
        let mut key = Vec::with_capacity(len.saturating_sub(ROW_BYTES));
        let (prefix, remainder) = (self.prefix(), self.remainder(at));
        let of_key = key.capacity();
        key.extend_from_slice(&prefix[..prefix.len().min(of_key)]);
        key.extend_from_slice(&remainder[..of_key - key.len()]);
        (KeyBytes::encoded(key), self.row(at))
    }

    /// Whether an entry begins with `bytes`.
    pub fn begins_with(&self, at: usize, bytes: &[u8]) -> bool {
        let common = bytes.len().min(usize::from(self.prefix_len));
        let (head, tail) = bytes.split_at(common);
        self.prefix()[..common] == *head && self.remainder(at).starts_with(tail)
    }

    /// The position of `probe`, or the position where it would be inserted.
    #[inline]
    pub fn search(&self, probe: &[u8]) -> std::result::Result<usize, usize> {
        let prefix = self.prefix();
        let common = prefix.len().min(probe.len());
        let (head, tail) = probe.split_at(common);
        match head.cmp(&prefix[..common]) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.len()),
            Ordering::Equal if common < prefix.len() => return Err(0),
            Ordering::Equal => {}
        }
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            match compare(self.remainder(middle), tail) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(from)
    }

    /// The first position whose entry is not less than `probe`.
    #[inline]
    pub fn lower_bound(&self, probe: &[u8]) -> usize {
        self.search(probe).unwrap_or_else(|at| at)
    }

    /// Bytes in use after the insertion of `entry`.
    pub fn size_with(&self, entry: &[u8]) -> usize {
        if self.is_empty() {
            return entry.len() + 2;
        }
        let common = common_len(self.prefix(), entry);
        let longer = usize::from(self.prefix_len) - common;
        self.size() + longer * (self.len() - 1) + entry.len() - common + 2
    }

    /// Whether `entry` begins with the prefix of the others.
    pub fn shares_prefix(&self, entry: &[u8]) -> bool {
        entry.starts_with(self.prefix())
    }

    /// Inserts an entry at a position.
    pub fn insert(&mut self, at: usize, entry: &[u8]) {
        if self.is_empty() {
            *self = Self::of(&[entry]);
            return;
        }
        let common = common_len(self.prefix(), entry);
        if common < usize::from(self.prefix_len) {
            self.shorten_prefix(common);
        }
        let remainder = &entry[usize::from(self.prefix_len)..];
        let (start, len) = (self.start(at), self.bytes.len());
        if self.bytes.capacity() - len < remainder.len() {
            self.bytes.reserve_exact(remainder.len().max(BYTES_STEP));
        }
        self.bytes.extend_from_slice(remainder);
        if start < len {
            self.bytes.copy_within(start..len, start + remainder.len());
            self.bytes[start..start + remainder.len()].copy_from_slice(remainder);
        }
        if self.ends.len() == self.ends.capacity() {
            self.ends.reserve_exact(ENDS_STEP);
        }
        let more = remainder.len() as u16;
        self.ends.insert(at, start as u16);
        self.ends[at..].iter_mut().for_each(|end| *end += more);
    }

    /// Shortens the prefix to `len` bytes; all remainders get the rest of the prefix.
    fn shorten_prefix(&mut self, len: usize) {
        let (kept, moved) = self.prefix().split_at(len);
        let bytes = self.bytes.len() + moved.len() * self.len() + BYTES_STEP;
        let mut shortened = Self::with_prefix(kept, bytes, self.len() + ENDS_STEP);
        for at in 0..self.len() {
            shortened.push_remainder(moved, self.remainder(at));
        }
        *self = shortened;
    }

    /// Removes the entry at a position.
    pub fn remove(&mut self, at: usize) {
        let (start, end) = (self.start(at), usize::from(self.ends[at]));
        self.bytes.drain(start..end);
        self.ends.remove(at);
        let less = (end - start) as u16;
        self.ends[at..].iter_mut().for_each(|end| *end -= less);
        if self.is_empty() {
            *self = Self::default();
        } else if self.bytes.capacity() > self.bytes.len() + 2 * BYTES_STEP {
            self.shrink();
        }
    }

    /// Gives back the memory beyond the next step's.
    fn shrink(&mut self) {
        self.bytes.shrink_to(self.bytes.len() + BYTES_STEP);
        self.ends.shrink_to(self.ends.len() + ENDS_STEP);
    }

    /// Removes the entries whose places `keep` does not want; returns how many. Unused memory goes
    /// back also if all stay.
    pub fn retain(&mut self, mut keep: impl FnMut(&Self, usize) -> bool) -> usize {
        let kept: Vec<bool> = (0..self.len()).map(|at| keep(self, at)).collect();
        let gone = kept.iter().filter(|kept| !**kept).count();
        if gone > 0 {
            let kept = (0..self.len()).filter(|at| kept[*at]);
            let mut entries = Self::with_prefix(self.prefix(), self.bytes.len(), self.len() - gone);
            kept.for_each(|at| entries.push_remainder(&[], self.remainder(at)));
            *self = entries;
        }
        if self.is_empty() {
            *self = Self::default();
        } else {
            self.shrink();
        }
        gone
    }

    /// A copy of the entries in a range of positions, with the same prefix.
    pub fn copy_of(&self, places: Range<usize>) -> Self {
        if places.is_empty() {
            return Self::default();
        }
        let start = self.start(places.start);
        let end = usize::from(self.ends[places.end - 1]);
        let mut entries = Self::with_prefix(self.prefix(), end - start, places.len());
        entries.bytes.extend_from_slice(&self.bytes[start..end]);
        let moved = (start - usize::from(self.prefix_len)) as u16;
        entries
            .ends
            .extend(self.ends[places].iter().map(|end| end - moved));
        entries
    }

    /// A copy of the entries in a range of positions, with their longest prefix.
    pub fn slice(&self, places: Range<usize>) -> Self {
        if places.is_empty() {
            return Self::default();
        }
        let (first, last) = (self.remainder(places.start), self.remainder(places.end - 1));
        let more = common_len(first, last);
        let bytes = usize::from(self.ends[places.end - 1]) - self.start(places.start) + more;
        let mut entries = Self::with_prefix(self.prefix(), bytes, places.len());
        entries.bytes.extend_from_slice(&first[..more]);
        entries.prefix_len += more as u16;
        for at in places {
            entries.push_remainder(&[], &self.remainder(at)[more..]);
        }
        entries
    }

    /// The length of the common prefix of these entries and of those `behind`.
    fn joint_prefix_len(&self, behind: &Self) -> usize {
        common_len(self.prefix(), behind.prefix())
    }

    /// Bytes in use if these entries and those `behind` were in one buffer.
    pub fn joint_size(&self, behind: &Self) -> usize {
        if self.is_empty() || behind.is_empty() {
            return self.size() + behind.size();
        }
        let prefix = self.joint_prefix_len(behind);
        let size = |entries: &Self| {
            let moved = usize::from(entries.prefix_len) - prefix;
            entries.size() - usize::from(entries.prefix_len) + moved * entries.len()
        };
        prefix + size(self) + size(behind)
    }

    /// Appends other entries, all of which are greater than these.
    pub fn append(&mut self, behind: Self) {
        if self.is_empty() {
            *self = behind;
        } else if !behind.is_empty() {
            let (prefix, bytes) = (self.joint_prefix_len(&behind), self.joint_size(&behind));
            let len = self.len() + behind.len();
            let mut joint = Self::with_prefix(&self.prefix()[..prefix], bytes, len);
            for entries in [&*self, &behind] {
                let moved = &entries.prefix()[prefix..];
                (0..entries.len())
                    .for_each(|at| joint.push_remainder(moved, entries.remainder(at)));
            }
            *self = joint;
        }
    }

    /// The position for a split into parts of about equal size. Among the positions near the middle
    /// it is one whose neighbours differ early. The separator is then short, and a key's entries
    /// stay together.
    pub fn split_place(&self) -> usize {
        let half = usize::midpoint(usize::from(self.prefix_len), self.bytes.len());
        let middle = self.ends.partition_point(|end| usize::from(*end) < half);
        let middle = middle.clamp(1, self.len() - 1);
        let reach = self.len() / 8;
        let places = middle.saturating_sub(reach).max(1)..(middle + reach + 1).min(self.len());
        let common = |at: usize| common_len(self.remainder(at - 1), self.remainder(at));
        places
            .min_by_key(|at| (common(*at), at.abs_diff(middle)))
            .unwrap_or(middle)
    }

    /// The separator between the entries before a position and the others.
    pub fn separator(&self, at: usize) -> Box<[u8]> {
        let (left, right) = (self.remainder(at - 1), self.remainder(at));
        let len = (common_len(left, right) + 1).min(right.len());
        [self.prefix(), &right[..len]].concat().into()
    }
}

/// Compares two remainders; mostly their first eight bytes decide.
#[inline]
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    if let (Some(x), Some(y)) = (a.first_chunk::<8>(), b.first_chunk::<8>()) {
        let (x, y) = (u64::from_be_bytes(*x), u64::from_be_bytes(*y));
        if x != y {
            return x.cmp(&y);
        }
    }
    a.cmp(b)
}

#[cfg(all(test, not(shuttle)))]
mod tests;
