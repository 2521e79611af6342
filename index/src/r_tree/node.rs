//! A node of an R-tree on the body of a page: the layout, decoding and encoding.
//!
//! | at | type | field |
//! |---|---|---|
//! | 0 | u8 | kind of the tree, 2; 0: the page holds no node |
//! | 1 | u8 | version of the layout, 1 |
//! | 2 | u8 | level; 0: a leaf |
//! | 3 | u8 | 1: the node has been taken away, 0: it has not |
//! | 4 | u32 | page of the right neighbour; 0: none |
//! | 8 | u16 | number of entries |
//! | 10 | 6 bytes | zero |
//! | 16 | u64 | split number |
//! | 24 | u64 | splits of children |
//! | 32 | | entries; zeros up to the end of the node |
//!
//! An entry begins with its box: least x, least y, greatest x, greatest y, f64 each. In a leaf its
//! row (u64) follows, and the timestamp from which on no snapshot needs it (u64; 0: not retired).
//! In an inner node the least and the greatest row below the child follow (u64 each), and the
//! child's page (u32). All numbers are little-endian.
//!
//! Decoding verifies all that one node shows, so that a damaged body gives [`Damage`].

use crate::rect::Rect;
pub(super) use crate::tree_pages::{Damage, Tail};
use strandline_base::{CommitTs, RowId};
use strandline_storage::pages::PageNumber;

/// The number of the kind of tree in its nodes.
const KIND: u8 = 2;
/// The version of the layout.
const VERSION: u8 = 1;
/// Bytes before the entries.
const HEADER_BYTES: usize = 32;
/// Bytes of a leaf's entry.
const LEAF_ENTRY_BYTES: usize = 48;
/// Bytes of an inner node's entry.
const INNER_ENTRY_BYTES: usize = 52;
/// Entries of the smallest node that can be divided well.
const ENTRIES_MIN: usize = 4;
/// The fewest bytes of a node.
pub(super) const NODE_BYTES_MIN: usize = HEADER_BYTES + ENTRIES_MIN * INNER_ENTRY_BYTES;

/// The predicate of an entry: all that is below it lies in the box and in the range of rows.
///
/// Rows are the third dimension. It divides entries of equal boxes, so that one of a million
/// entries at one point is found on few ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bound {
    pub rect: Rect,
    /// the least and the greatest row
    pub rows: [u64; 2],
}

impl Bound {
    /// The bound of one entry.
    pub fn of(rect: Rect, row: RowId) -> Self {
        let rows = [row.0, row.0];
        Self { rect, rows }
    }

    /// The smallest bound that contains both.
    pub fn union(&self, other: &Self) -> Self {
        let ([a, b], [c, d]) = (self.rows, other.rows);
        Self {
            rect: self.rect.union(&other.rect),
            rows: [a.min(c), b.max(d)],
        }
    }

    /// Whether `other` lies within this bound.
    pub fn contains(&self, other: &Self) -> bool {
        let ([a, b], [c, d]) = (self.rows, other.rows);
        a <= c && d <= b && self.rect.contains(&other.rect)
    }

    /// The row of a leaf's entry.
    pub fn row(&self) -> RowId {
        let [row, _] = self.rows;
        RowId(row)
    }
}

/// An entry of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub bound: Bound,
    pub tail: Tail,
}

/// A node outside its page; `tree` explains the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub level: u8,
    /// it is part of the tree no more
    pub is_gone: bool,
    /// the node that the last split of this one has made
    pub right: Option<PageNumber>,
    /// the parent's `child_splits` at the last split of this node
    pub split_no: u64,
    /// splits of children that have been noted in this node
    pub child_splits: u64,
    pub entries: Vec<Entry>,
}

/// The result of decoding a node.
pub(super) type Read<T> = Result<T, Damage>;

/// The number of entries that fit into a node.
pub(super) fn capacity(level: u8, node_bytes: usize) -> usize {
    node_bytes.saturating_sub(HEADER_BYTES) / entry_bytes(level)
}

fn entry_bytes(level: u8) -> usize {
    match level {
        0 => LEAF_ENTRY_BYTES,
        _ => INNER_ENTRY_BYTES,
    }
}

/// Takes the first bytes of a part.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(u64::from_le_bytes)
}

fn take_page(bytes: &mut &[u8]) -> Option<PageNumber> {
    take(bytes).map(|page| PageNumber(u32::from_le_bytes(page)))
}

impl Entry {
    /// An entry of an inner node.
    pub fn child(bound: Bound, child: PageNumber) -> Self {
        let tail = Tail::Child(child);
        Self { bound, tail }
    }

    fn decode(level: u8, bytes: &mut &[u8]) -> Option<Self> {
        let [low_x, low_y, high_x, high_y] = [(); 4].map(|()| take(bytes).map(f64::from_le_bytes));
        let rect = Rect::from_stored([low_x?, low_y?], [high_x?, high_y?])?;
        let row = take_u64(bytes)?;
        if level == 0 {
            let tail = match take_u64(bytes)? {
                0 => Tail::Live,
                since => Tail::Retired(CommitTs(since)),
            };
            let bound = Bound::of(rect, RowId(row));
            return Some(Self { bound, tail });
        }
        let rows = [row, take_u64(bytes)?];
        let child = take_page(bytes).filter(|child| child.0 > 1)?;
        let [least, greatest] = rows;
        (least <= greatest).then_some(Self::child(Bound { rect, rows }, child))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (low, high) = (self.bound.rect.low(), self.bound.rect.high());
        for coordinate in low.into_iter().chain(high) {
            out.extend(coordinate.to_le_bytes());
        }
        let [row, greatest] = self.bound.rows;
        out.extend(row.to_le_bytes());
        match self.tail {
            Tail::Live => out.extend([0; 8]),
            Tail::Retired(since) => out.extend(since.0.to_le_bytes()),
            Tail::Child(child) => {
                out.extend(greatest.to_le_bytes());
                out.extend(child.0.to_le_bytes());
            }
        }
    }
}

impl Node {
    /// A node of a level that nothing leads to yet.
    pub fn new(level: u8, entries: Vec<Entry>) -> Self {
        Self {
            level,
            is_gone: false,
            right: None,
            split_no: 0,
            child_splits: 0,
            entries,
        }
    }

    /// The node in a body.
    pub fn decode(bytes: &[u8]) -> Read<Self> {
        let rest = &mut &*bytes;
        let short = Damage("the node is shorter than its header");
        let [kind, version, level, gone] = take(rest).ok_or(short)?;
        match kind {
            0 => return Err(Damage("the page holds no node")),
            KIND => {}
            _ => return Err(Damage("the node is one of another kind of tree")),
        }
        if version != VERSION || gone > 1 {
            return Err(Damage("the node's layout is of an unknown version"));
        }
        let right = take_page(rest).ok_or(short)?;
        let count = usize::from(u16::from_le_bytes(take(rest).ok_or(short)?));
        if take::<6>(rest) != Some([0; 6]) {
            return Err(Damage("a part of the header that must be zero is not"));
        }
        let split_no = take_u64(rest).ok_or(short)?;
        let child_splits = take_u64(rest).ok_or(short)?;
        if count > capacity(level, bytes.len()) {
            return Err(Damage("the node has more entries than fit into it"));
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let entry = Entry::decode(level, rest);
            entries.push(entry.ok_or(Damage("an entry is no box with a row or a child"))?);
        }
        if rest.iter().any(|byte| *byte != 0) {
            return Err(Damage("the free space of the node is not zero"));
        }
        Ok(Self {
            level,
            is_gone: gone == 1,
            right: (right.0 != 0).then_some(right),
            split_no,
            child_splits,
            entries,
        })
    }

    /// Writes the node into a body.
    pub fn encode(&self, body: &mut [u8]) -> Read<()> {
        let mut bytes = Vec::with_capacity(body.len());
        bytes.extend([KIND, VERSION, self.level, u8::from(self.is_gone)]);
        bytes.extend(self.right.map_or(0, |right| right.0).to_le_bytes());
        bytes.extend((self.entries.len() as u16).to_le_bytes());
        bytes.extend([0; 6]);
        bytes.extend(self.split_no.to_le_bytes());
        bytes.extend(self.child_splits.to_le_bytes());
        for entry in &self.entries {
            entry.encode(&mut bytes);
        }
        if bytes.len() > body.len() {
            return Err(Damage("the entries do not fit into a node"));
        }
        bytes.resize(body.len(), 0);
        body.copy_from_slice(&bytes);
        Ok(())
    }

    /// The bound of all entries; None if there are none.
    pub fn bound(&self) -> Option<Bound> {
        let bounds = self.entries.iter().map(|entry| entry.bound);
        bounds.reduce(|all, bound| all.union(&bound))
    }

    /// The children and their bounds.
    pub fn children(&self) -> impl Iterator<Item = (Bound, PageNumber)> {
        self.entries.iter().filter_map(|entry| match entry.tail {
            Tail::Child(child) => Some((entry.bound, child)),
            Tail::Live | Tail::Retired(_) => None,
        })
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn leaf() -> Node {
        let entry = |at: f64, row, tail| Entry {
            bound: Bound::of(Rect::new([at, at], [at + 1.0, f64::NAN]), RowId(row)),
            tail,
        };
        let mut node = Node::new(
            0,
            vec![
                entry(1.0, u64::MAX, Tail::Live),
                entry(f64::NEG_INFINITY, 0, Tail::Retired(CommitTs(7))),
            ],
        );
        (node.right, node.split_no) = (Some(PageNumber(9)), 3);
        node
    }

    #[test]
    fn a_node_is_decoded_as_it_was_encoded() {
        let mut body = [0xee; NODE_BYTES_MIN];
        leaf().encode(&mut body).expect("it fits");
        assert_eq!(Node::decode(&body), Ok(leaf()));
        let bound = leaf().bound().expect("two entries");
        assert_eq!(bound.rows, [0, u64::MAX]);
        let children = [2, 5, u32::MAX].map(|page| Entry::child(bound, PageNumber(page)));
        let mut inner = Node::new(3, children.to_vec());
        (inner.is_gone, inner.child_splits) = (true, 1 << 40);
        inner.encode(&mut body).expect("it fits");
        assert_eq!(Node::decode(&body), Ok(inner));
    }

    #[test]
    fn a_node_holds_as_many_entries_as_its_capacity() {
        for (level, node_bytes) in [(0, NODE_BYTES_MIN), (1, NODE_BYTES_MIN), (0, 8168)] {
            let count = capacity(level, node_bytes);
            let entry = match level {
                0 => leaf().entries[0],
                _ => Entry::child(leaf().entries[0].bound, PageNumber(2)),
            };
            let mut body = vec![0; node_bytes];
            let full = Node::new(level, vec![entry; count]);
            full.encode(&mut body).expect("it fits");
            assert_eq!(Node::decode(&body), Ok(full));
            let over = Node::new(level, vec![entry; count + 1]);
            assert!(over.encode(&mut body).is_err());
        }
        assert_eq!(capacity(1, NODE_BYTES_MIN), ENTRIES_MIN);
    }

    #[test]
    fn entries_that_no_writer_makes_are_damage() {
        let rect = Rect::point([1.0, 2.0]);
        let rows = [5, 4];
        let child = |bound, page| Node::new(1, vec![Entry::child(bound, PageNumber(page))]);
        for (node, is_whole) in [
            (child(Bound::of(rect, RowId(4)), 2), true),
            (child(Bound { rect, rows }, 2), false),
            (child(Bound::of(rect, RowId(4)), 1), false),
            (child(Bound::of(rect, RowId(4)), 0), false),
        ] {
            let mut body = [0; NODE_BYTES_MIN];
            node.encode(&mut body).expect("it fits");
            assert_eq!(Node::decode(&body).is_ok(), is_whole, "{node:?}");
        }
    }

    /// Every changed byte is damage, or one that the node says otherwise: a box, a row, a number.
    #[test]
    fn a_flipped_byte_is_damage_or_another_node() {
        let mut body = [0; NODE_BYTES_MIN];
        leaf().encode(&mut body).expect("it fits");
        let mut found = 0;
        for at in 0..body.len() {
            let mut flipped = body;
            flipped[at] ^= 0x55;
            match Node::decode(&flipped) {
                Ok(node) => assert_ne!(node, leaf(), "byte {at}"),
                Err(_) => found += 1,
            }
        }
        assert!(found > 110, "{found}");
        for len in 0..body.len() {
            let _ = Node::decode(&body[..len]);
        }
    }
}
