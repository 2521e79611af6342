//! Kinds of search trees \[GiST §3\]: the four methods by which a tree decides where an entry
//! belongs and where a search goes on. The one kind is the B-tree; kinds without an order, such as
//! the R-tree (`r_tree`), need another tree.
//!
//! A node's *predicate* holds for all entries below it. A node stores it as its two fences.
//!
//! Differences from the paper: keys are byte strings that the caller has compressed already
//! (`ordered_key`), so that Compress and Decompress are no methods of a kind. An ordered kind's
//! nodes are kept in order and their predicates do not overlap, so that the tree finds the child
//! without any penalty by binary search (the paper's `IsOrdered`, §3.4.2).

use super::entries::{Entries, common_len};
use std::fmt::Debug;

/// The predicate of a node, or the range of a search: bytes from `low` on and before `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Predicate<'a> {
    pub low: &'a [u8],
    /// None: no end
    pub high: Option<&'a [u8]>,
}

/// How a full node is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// the first entry of the right node
    pub at: usize,
    /// the end of the left predicate and the begin of the right one
    pub separator: Box<[u8]>,
}

/// The share of a full node's bytes that stay in the left node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    Half,
    /// nine tenths: for entries that arrive in ascending order
    Most,
}

/// A kind of search tree; see the module's documentation.
pub(super) trait Kind: Debug + Send + Sync + 'static {
    /// The number of the kind in its nodes, from 1 on.
    const ID: u8;

    /// Whether entries under a predicate may be what a search wants.
    fn consistent(predicate: Predicate<'_>, wanted: Predicate<'_>) -> bool;

    /// The predicate of two neighbours that become one node.
    fn union<'a>(left: Predicate<'a>, right: Predicate<'a>) -> Predicate<'a>;

    /// How much a predicate would have to grow to hold for an entry; 0: it holds.
    fn penalty(predicate: Predicate<'_>, entry: &[u8]) -> usize;

    /// The fence between two neighbouring entries.
    fn separator(left: &[u8], right: &[u8]) -> Box<[u8]>;

    /// Divides two or more entries so that both parts fit; `size` gives the bytes of one on a page.
    /// None if there is no such division.
    fn pick_split(
        entries: &Entries,
        share: Share,
        size: &dyn Fn(usize) -> usize,
        fits: &dyn Fn(&Split) -> bool,
    ) -> Option<Split>;
}

/// The B-tree over byte strings in ascending order.
#[derive(Debug)]
pub(super) struct BTree;

impl Kind for BTree {
    const ID: u8 = 1;

    fn consistent(predicate: Predicate<'_>, wanted: Predicate<'_>) -> bool {
        predicate.high.is_none_or(|high| wanted.low < high)
            && wanted.high.is_none_or(|high| predicate.low < high)
    }

    fn union<'a>(left: Predicate<'a>, right: Predicate<'a>) -> Predicate<'a> {
        Predicate {
            low: left.low,
            high: right.high,
        }
    }

    /// The number of bytes of the entry from which on it lies outside, plus one.
    fn penalty(predicate: Predicate<'_>, entry: &[u8]) -> usize {
        let distance = |fence: &[u8]| entry.len().max(fence.len()) - common_len(fence, entry) + 1;
        match predicate.high {
            _ if entry < predicate.low => distance(predicate.low),
            Some(high) if high <= entry => distance(high),
            _ => 0,
        }
    }

    /// The shortest bytes behind `left` and not behind `right`.
    fn separator(left: &[u8], right: &[u8]) -> Box<[u8]> {
        let len = (common_len(left, right) + 1).min(right.len());
        right.get(..len).unwrap_or(right).into()
    }

    /// Divides at the position with the shortest separator, among those whose left part differs
    /// from the share by at most a 32nd of all bytes; otherwise as near to the share as possible.
    fn pick_split(
        entries: &Entries,
        share: Share,
        size: &dyn Fn(usize) -> usize,
        fits: &dyn Fn(&Split) -> bool,
    ) -> Option<Split> {
        let total: usize = (0..entries.len()).map(size).sum();
        let target = match share {
            Share::Half => total / 2,
            Share::Most => total / 10 * 9,
        };
        let (mut ranked, mut left) = (Vec::with_capacity(entries.len()), 0);
        for at in 1..entries.len() {
            left += size(at - 1);
            let distance = left.abs_diff(target);
            let common = common_len(entries.get(at - 1), entries.get(at));
            let is_far = distance > total / 32;
            ranked.push((is_far, if is_far { 0 } else { common }, distance, at));
        }
        ranked.sort_unstable();
        let mut splits = ranked.into_iter().map(|(_, _, _, at)| Split {
            at,
            separator: Self::separator(entries.get(at - 1), entries.get(at)),
        });
        splits.find(|split| fits(split))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::search_tree::entries::Tail;

    fn split_of(keys: &[&str], share: Share) -> Split {
        let mut entries = Entries::default();
        for key in keys {
            entries.push(key.as_bytes(), Tail::Live);
        }
        let size = |at: usize| entries.get(at).len() + 4;
        BTree::pick_split(&entries, share, &size, &|_| true).expect("everything fits")
    }

    #[test]
    fn a_split_halves_the_bytes_and_shortens_the_separator() {
        let split = split_of(&["aaaa", "aaab", "bbbb", "bbbc"], Share::Half);
        assert_eq!((split.at, &*split.separator), (2, &b"b"[..]));
        let split = split_of(&["a", "ab"], Share::Most);
        assert_eq!((split.at, &*split.separator), (1, &b"ab"[..]));
        let keys: Vec<String> = (0..100).map(|no| format!("{no:03}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        assert_eq!(split_of(&keys, Share::Half).at, 50);
        assert_eq!(split_of(&keys, Share::Most).at, 90);
    }

    #[test]
    fn predicates_hold_from_the_low_fence_up_to_the_high_one() {
        let all = Predicate {
            low: b"",
            high: None,
        };
        let middle = Predicate {
            low: b"b",
            high: Some(b"d"),
        };
        for (entry, is_within) in [("a", false), ("b", true), ("cz", true), ("d", false)] {
            let penalty = BTree::penalty(middle, entry.as_bytes());
            assert_eq!(penalty == 0, is_within, "{entry}");
            assert_eq!(BTree::penalty(all, entry.as_bytes()), 0);
        }
        let wanted = |low, high| Predicate { low, high };
        assert!(BTree::consistent(middle, all) && BTree::consistent(all, middle));
        assert!(!BTree::consistent(middle, wanted(b"d", None)));
        assert!(!BTree::consistent(middle, wanted(b"", Some(b"b"))));
        assert!(BTree::consistent(middle, wanted(b"", Some(b"ba"))));
        let left = wanted(b"", Some(b"b"));
        assert_eq!(BTree::union(left, middle), wanted(b"", Some(b"d")));
    }
}
