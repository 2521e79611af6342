//! A node of a search tree on the body of a page: the layout, reads, and changes in place. Page
//! numbers and latches are the tree's business.
//!
//! | at | type | field |
//! |---|---|---|
//! | 0 | u8 | kind of the tree, from 1 on; 0: the page holds no node |
//! | 1 | u8 | version of the layout, 1 |
//! | 2 | u8 | level; 0: a leaf |
//! | 3 | u8 | 1: there is a high fence, 0: the node is the last one of its level |
//! | 4 | u32 | page of the right neighbour; 0: none |
//! | 8 | u16 | number of entries |
//! | 10 | u16 | length of the prefix that all entries have in common |
//! | 12 | u16 | length of the low fence |
//! | 14 | u16 | length of the high fence without the prefix |
//! | 16 | u16 | offset of the first cell |
//! | 18 | u16 | bytes of removed cells |
//! | 20 | u32 | zero |
//! | 24 | | low fence, which begins with the prefix; the rest of the high fence |
//! | | | offsets of the entries' cells, u16 each, in the entries' order |
//! | | | free space, then the cells up to the end of the node |
//!
//! A cell: u16 length of the entry without the prefix, of which the highest bit says that the entry
//! is retired; these bytes; in an inner node the child's page (u32); of a retired entry the
//! timestamp (u64).
//!
//! Invariants:
//! 1. Entries are in ascending order, each once; each is at or behind the low fence and before the
//!    high fence.
//! 2. The prefix is the common prefix of the two fences; by (1) every entry begins with it. It
//!    changes only when the node is written anew.
//! 3. Cells do not overlap. The bytes from the first cell to the node's end are those of the
//!    entries' cells and the bytes of removed cells.
//!
//! Reads verify what they rely on, so that a damaged body gives [`Damage`]; [`Node::verify`]
//! verifies everything.

use super::entries::{Entries, Tail, common_len};
pub(super) use crate::tree_pages::Damage;
use std::cmp::Ordering;
use std::ops::Range;
use strandline_base::CommitTs;
use strandline_storage::pages::PageNumber;

/// Bytes before the fences.
pub(super) const HEADER_BYTES: usize = 24;
/// The version of the layout.
const VERSION: u8 = 1;
/// Bytes of an entry beside its own and its tail: its offset and its length.
pub(super) const ENTRY_OVERHEAD: usize = 4;
/// The bit of a cell's length that marks a retired entry.
const RETIRED: u16 = 1 << 15;

/// The result of reading a node.
pub(super) type Read<T> = Result<T, Damage>;

/// The position that a descent looks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Probe<'a> {
    /// the node that covers these bytes
    At(&'a [u8]),
    /// the node that covers the bytes right before these; None: the last node
    Before(Option<&'a [u8]>),
}

/// A node that can be read; see the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    bytes: &'a [u8],
    pub level: u8,
    /// the right neighbour
    pub right: Option<PageNumber>,
    /// the least bytes that the node covers
    pub low: &'a [u8],
    prefix: &'a [u8],
    high_rest: Option<&'a [u8]>,
    slots: &'a [u8],
    cells: usize,
    removed: usize,
}

/// One entry of a node.
#[derive(Clone, Copy, Debug)]
struct Cell<'a> {
    /// the entry's bytes without the prefix
    rest: &'a [u8],
    tail: Tail,
}

/// What a node that is written anew consists of, except its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub kind: u8,
    pub level: u8,
    pub right: Option<PageNumber>,
    pub low: Box<[u8]>,
    pub high: Option<Box<[u8]>>,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(usize::from(u16::from_le_bytes(*bytes)))
}

fn put(bytes: &mut [u8], at: usize, part: &[u8]) -> Read<()> {
    let place = bytes.get_mut(at..).and_then(|b| b.get_mut(..part.len()));
    place
        .map(|place| place.copy_from_slice(part))
        .ok_or(Damage("a part lies behind the node's end"))
}

fn put_u16(bytes: &mut [u8], at: usize, value: usize) -> Read<()> {
    put(bytes, at, &(value as u16).to_le_bytes())
}

impl<'a> Node<'a> {
    /// The node in a body; None: the page holds none.
    pub fn read(bytes: &'a [u8], kind: u8) -> Read<Option<Self>> {
        let short = Damage("the node is shorter than its header");
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
        let [found, version, level, has_high, rest @ ..] = header;
        if *found == 0 {
            return Ok(None);
        }
        if *found != kind {
            return Err(Damage("the node is one of another kind of tree"));
        }
        if *version != VERSION {
            return Err(Damage("the node's layout is of an unknown version"));
        }
        let (right, _) = rest.split_first_chunk().ok_or(short)?;
        let right = u32::from_le_bytes(*right);
        let field = |at| u16_at(header, at).ok_or(short);
        let (count, prefix_len, low_len) = (field(8)?, field(10)?, field(12)?);
        let (high_len, cells, removed) = (field(14)?, field(16)?, field(18)?);
        let outside = Damage("the fences and offsets reach into the cells");
        let low_end = HEADER_BYTES + low_len;
        let high_end = low_end + high_len;
        let slots_end = high_end + 2 * count;
        if slots_end > cells || cells > bytes.len() || removed > bytes.len() - cells {
            return Err(outside);
        }
        let part = |range: Range<usize>| bytes.get(range).ok_or(outside);
        let low = part(HEADER_BYTES..low_end)?;
        let high = part(low_end..high_end)?;
        Ok(Some(Self {
            bytes,
            level: *level,
            right: (right != 0).then_some(PageNumber(right)),
            low,
            prefix: low.get(..prefix_len).ok_or(outside)?,
            high_rest: (*has_high != 0).then_some(high),
            slots: part(high_end..slots_end)?,
            cells,
            removed,
        }))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.slots.len() / 2
    }

    /// Whether the node is the last one of its level.
    pub fn is_last(&self) -> bool {
        self.high_rest.is_none()
    }

    /// The end of what the node covers, exclusive.
    pub fn high(&self) -> Option<Box<[u8]>> {
        self.high_rest
            .map(|rest| [self.prefix, rest].concat().into())
    }

    fn cell(&self, at: usize) -> Read<Cell<'a>> {
        let damage = Damage("an entry's cell lies outside the node");
        let cell = || {
            let begin = u16_at(self.slots, 2 * at)?;
            let head = u16_at(self.bytes, begin).filter(|_| begin >= self.cells)?;
            let len = head & usize::from(!RETIRED);
            let (rest, tail) = self.bytes.get(begin + 2..)?.split_at_checked(len)?;
            let tail = match (self.level, head & usize::from(RETIRED)) {
                (0, 0) => Tail::Live,
                (0, _) => Tail::Retired(CommitTs(u64::from_le_bytes(*tail.first_chunk()?))),
                _ => Tail::Child(PageNumber(u32::from_le_bytes(*tail.first_chunk()?))),
            };
            Some(Cell { rest, tail })
        };
        cell().ok_or(damage)
    }

    /// The prefix of all entries, and the rest of one of them.
    pub fn parts(&self, at: usize) -> Read<[&'a [u8]; 2]> {
        Ok([self.prefix, self.cell(at)?.rest])
    }

    /// The tail of an entry.
    pub fn tail(&self, at: usize) -> Read<Tail> {
        Ok(self.cell(at)?.tail)
    }

    /// Whether an entry begins with `key`.
    pub fn begins_with(&self, at: usize, key: &[u8]) -> Read<bool> {
        let rest = self.cell(at)?.rest;
        Ok(match key.split_at_checked(self.prefix.len()) {
            Some((prefix, key)) => prefix == self.prefix && rest.starts_with(key),
            None => self.prefix.starts_with(key),
        })
    }

    /// The number of entries before `bytes`.
    pub fn lower_bound(&self, bytes: &[u8]) -> Read<usize> {
        Ok(self.search(bytes)?.unwrap_or_else(|at| at))
    }

    /// The position of an entry, or the one where it belongs.
    pub fn search(&self, bytes: &[u8]) -> Read<Result<usize, usize>> {
        let rest = match bytes.split_at_checked(self.prefix.len()) {
            Some((prefix, rest)) if prefix == self.prefix => rest,
            _ if bytes < self.prefix => return Ok(Err(0)),
            _ => return Ok(Err(self.len())),
        };
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            match self.cell(middle)?.rest.cmp(rest) {
                Ordering::Equal => return Ok(Ok(middle)),
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
            }
        }
        Ok(Err(from))
    }

    /// The position of the child that leads to the probe.
    pub fn child_at(&self, probe: Probe<'_>) -> Read<usize> {
        let at = match probe {
            Probe::At(bytes) => match self.search(bytes)? {
                Ok(at) => Some(at),
                Err(at) => at.checked_sub(1),
            },
            Probe::Before(Some(bytes)) => self.lower_bound(bytes)?.checked_sub(1),
            Probe::Before(None) => self.len().checked_sub(1),
        };
        at.ok_or(Damage("no child of an inner node leads to bytes within it"))
    }

    /// The page of a child.
    pub fn child(&self, at: usize) -> Read<PageNumber> {
        match self.tail(at)? {
            Tail::Child(number) => Ok(number),
            Tail::Live | Tail::Retired(_) => Err(Damage("a leaf's entry has no child")),
        }
    }

    /// Whether the node begins at or before the probe.
    pub fn begins_by(&self, probe: Probe<'_>) -> bool {
        match probe {
            Probe::At(bytes) => self.low <= bytes,
            Probe::Before(Some(bytes)) => self.low < bytes || bytes.is_empty(),
            Probe::Before(None) => true,
        }
    }

    /// Whether the node ends behind the probe.
    pub fn ends_behind(&self, probe: Probe<'_>) -> bool {
        let Some(rest) = self.high_rest else {
            return true;
        };
        let compared = |bytes: &[u8]| match bytes.split_at_checked(self.prefix.len()) {
            Some((prefix, tail)) => prefix.cmp(self.prefix).then_with(|| tail.cmp(rest)),
            None => bytes.cmp(self.prefix),
        };
        match probe {
            Probe::At(bytes) => compared(bytes).is_lt(),
            Probe::Before(Some(bytes)) => compared(bytes).is_le(),
            Probe::Before(None) => false,
        }
    }

    /// Whether all entries that begin with `key` are in this node and the nodes to its left.
    pub fn ends_after(&self, key: &[u8]) -> bool {
        self.high()
            .is_none_or(|high| *high > *key && !high.starts_with(key))
    }

    /// The bytes in use, those of removed cells not counted.
    pub fn size(&self) -> usize {
        let fences = self.low.len() + self.high_rest.map_or(0, <[u8]>::len);
        HEADER_BYTES + fences + self.slots.len() + self.bytes.len() - self.cells - self.removed
    }

    /// The node without its entries.
    pub fn frame(&self, kind: u8) -> Frame {
        Frame {
            kind,
            level: self.level,
            right: self.right,
            low: self.low.into(),
            high: self.high(),
        }
    }

    /// Appends entries to `out`.
    pub fn copy_onto(&self, places: Range<usize>, out: &mut Entries) -> Read<()> {
        for at in places {
            let cell = self.cell(at)?;
            out.push_parts([self.prefix, cell.rest], cell.tail);
        }
        Ok(())
    }

    /// All entries.
    pub fn entries(&self) -> Read<Entries> {
        let mut entries = Entries::default();
        self.copy_onto(0..self.len(), &mut entries)?;
        Ok(entries)
    }

    /// Verifies the invariants.
    pub fn verify(&self) -> Read<()> {
        let high = self.high();
        if high.as_ref().is_some_and(|high| **high <= *self.low) {
            return Err(Damage("the high fence is not behind the low fence"));
        }
        let common = high.as_ref().map_or(0, |high| common_len(self.low, high));
        if common != self.prefix.len() {
            return Err(Damage("the prefix is not the fences' common prefix"));
        }
        if high.is_none() != self.right.is_none() {
            return Err(Damage("a right neighbour and a high fence go together"));
        }
        let (mut used, mut previous): (Vec<Range<usize>>, Option<&[u8]>) = (Vec::new(), None);
        let fence = self.low.get(self.prefix.len()..).unwrap_or_default();
        for at in 0..self.len() {
            let cell = self.cell(at)?;
            if previous.is_some_and(|previous| previous >= cell.rest) {
                return Err(Damage("an entry is not behind the one before it"));
            }
            if cell.rest < fence || self.high_rest.is_some_and(|high| high <= cell.rest) {
                return Err(Damage("an entry is not between the fences"));
            }
            previous = Some(cell.rest);
            let begin = u16_at(self.slots, 2 * at).unwrap_or_default();
            used.push(begin..begin + 2 + cell.rest.len() + cell.tail.size());
        }
        used.sort_unstable_by_key(|cell| cell.start);
        let overlap = used.iter().zip(used.iter().skip(1));
        if overlap.into_iter().any(|(a, b)| a.end > b.start) {
            return Err(Damage("two entries' cells overlap"));
        }
        let sum: usize = used.iter().map(|cell| cell.len()).sum();
        if sum + self.removed != self.bytes.len() - self.cells {
            return Err(Damage("the cells' bytes do not add up"));
        }
        if self.level > 0 && (self.len() == 0 || self.parts(0)?.concat() != self.low) {
            return Err(Damage(
                "an inner node's first child is not at its low fence",
            ));
        }
        Ok(())
    }
}

impl Frame {
    /// The two nodes that meet at a separator; the left one's neighbour is still the old one.
    pub fn divided(&self, separator: &[u8]) -> (Self, Self) {
        let (mut left, mut right) = (self.clone(), self.clone());
        left.high = Some(separator.into());
        right.low = separator.into();
        (left, right)
    }

    /// The length of the fences' common prefix.
    pub fn prefix_len(&self) -> usize {
        let high = self.high.as_ref();
        high.map_or(0, |high| common_len(&self.low, high))
    }

    /// Bytes of a node with these entries.
    pub fn size(&self, entries: &Entries, places: Range<usize>) -> usize {
        let prefix_len = self.prefix_len();
        let high = self.high.as_ref().map_or(0, |high| high.len() - prefix_len);
        let cell = |at: usize| {
            let rest = entries.get(at).len().saturating_sub(prefix_len);
            ENTRY_OVERHEAD + rest + entries.tail(at).size()
        };
        HEADER_BYTES + self.low.len() + high + places.map(cell).sum::<usize>()
    }

    /// Writes a node with some of these entries into a body, and zeros into its free space.
    pub fn write(&self, entries: &Entries, places: Range<usize>, body: &mut [u8]) -> Read<()> {
        let prefix_len = self.prefix_len();
        let high = self.high.as_ref().and_then(|high| high.get(prefix_len..));
        body.fill(0);
        let right = self.right.map_or(0, |right| right.0);
        let flags = u8::from(self.high.is_some());
        put(body, 0, &[self.kind, VERSION, self.level, flags])?;
        put(body, 4, &right.to_le_bytes())?;
        put_u16(body, 8, places.len())?;
        put_u16(body, 10, prefix_len)?;
        put_u16(body, 12, self.low.len())?;
        put_u16(body, 14, high.map_or(0, <[u8]>::len))?;
        put(body, HEADER_BYTES, &self.low)?;
        let mut slot = HEADER_BYTES + self.low.len();
        put(body, slot, high.unwrap_or_default())?;
        slot += high.map_or(0, <[u8]>::len);
        let mut cells = body.len();
        for at in places {
            let rest = entries.get(at).get(prefix_len..);
            let rest = rest.ok_or(Damage("an entry does not begin with the prefix"))?;
            cells = put_cell(body, cells, rest, entries.tail(at))?;
            put_u16(body, slot, cells)?;
            slot += 2;
        }
        if slot > cells {
            return Err(Damage("the entries do not fit into a node"));
        }
        put_u16(body, 16, cells)
    }
}

/// Writes a cell in front of the cell at `end`; returns its offset.
fn put_cell(body: &mut [u8], end: usize, rest: &[u8], tail: Tail) -> Read<usize> {
    let full = Damage("the entries do not fit into a node");
    let size = 2 + rest.len() + tail.size();
    let begin = end.checked_sub(size).ok_or(full)?;
    let mark = match tail {
        Tail::Retired(_) => usize::from(RETIRED),
        Tail::Live | Tail::Child(_) => 0,
    };
    put_u16(body, begin, rest.len() | mark)?;
    put(body, begin + 2, rest)?;
    match tail {
        Tail::Live => {}
        Tail::Retired(since) => put(body, begin + 2 + rest.len(), &since.0.to_le_bytes())?,
        Tail::Child(number) => put(body, begin + 2 + rest.len(), &number.0.to_le_bytes())?,
    }
    Ok(begin)
}

/// Adds an entry at a position of a body's node. Returns false, and changes nothing, if the free
/// space between offsets and cells is too small.
pub(super) fn insert(body: &mut [u8], kind: u8, at: usize, entry: &[u8], tail: Tail) -> Read<bool> {
    let node = Node::read(body, kind)?.ok_or(Damage("the page holds no node"))?;
    let rest = entry.get(node.prefix.len()..);
    let rest = rest.ok_or(Damage("an entry does not begin with the prefix"))?;
    let (count, cells) = (node.len(), node.cells);
    let slots_end = cells_floor(&node);
    if slots_end + ENTRY_OVERHEAD + rest.len() + tail.size() > cells {
        return Ok(false);
    }
    let behind = Damage("an entry's position is behind the last one");
    if at > count {
        return Err(behind);
    }
    let begin = put_cell(body, cells, rest, tail)?;
    let slot = slots_end - 2 * count + 2 * at;
    let moved = body.get_mut(slot..slots_end + 2).ok_or(behind)?;
    moved.rotate_right(2);
    put_u16(body, slot, begin)?;
    put_u16(body, 8, count + 1)?;
    put_u16(body, 16, begin)?;
    Ok(true)
}

/// The end of a node's offsets.
fn cells_floor(node: &Node<'_>) -> usize {
    let fences = node.low.len() + node.high_rest.map_or(0, <[u8]>::len);
    HEADER_BYTES + fences + node.slots.len()
}

/// Removes the entry at a position of a body's node.
pub(super) fn remove(body: &mut [u8], kind: u8, at: usize) -> Read<()> {
    let node = Node::read(body, kind)?.ok_or(Damage("the page holds no node"))?;
    let cell = node.cell(at)?;
    let (count, removed) = (node.len(), node.removed);
    let slots_end = cells_floor(&node);
    let size = 2 + cell.rest.len() + cell.tail.size();
    let slot = slots_end - 2 * count + 2 * at;
    let moved = body.get_mut(slot..slots_end);
    let moved = moved.ok_or(Damage("an entry's position is behind the last one"))?;
    moved.rotate_left(2.min(moved.len()));
    put_u16(body, slots_end - 2, 0)?;
    put_u16(body, 8, count - 1)?;
    put_u16(body, 18, removed + size)
}

/// Marks a body as holding no node.
pub(super) fn clear(body: &mut [u8]) {
    if let Some(kind) = body.first_mut() {
        *kind = 0;
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
