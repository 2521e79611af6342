//! Entries outside a page: whole byte strings with their tails in one buffer, in the order in which
//! they were pushed. Splits, joins and loads take a node's entries out, and write them back.

pub(super) use crate::tree_pages::Tail;

impl Tail {
    /// Its bytes on a page.
    pub fn size(self) -> usize {
        match self {
            Tail::Live => 0,
            Tail::Retired(_) => 8,
            Tail::Child(_) => 4,
        }
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    /// the end of each entry's bytes, and its tail
    ends: Vec<(u32, Tail)>,
}

impl Entries {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Appends an entry.
    pub fn push(&mut self, bytes: &[u8], tail: Tail) {
        self.push_parts([bytes, &[]], tail);
    }

    /// Appends an entry whose bytes come in two parts.
    pub fn push_parts(&mut self, parts: [&[u8]; 2], tail: Tail) {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.ends.push((self.bytes.len() as u32, tail));
    }

    /// The bytes of an entry; nothing if there is no such entry.
    pub fn get(&self, at: usize) -> &[u8] {
        let begin = at.checked_sub(1).and_then(|before| self.ends.get(before));
        let begin = begin.map_or(0, |(end, _)| *end as usize);
        let end = self.ends.get(at).map_or(begin, |(end, _)| *end as usize);
        self.bytes.get(begin..end).unwrap_or_default()
    }

    /// The tail of an entry.
    pub fn tail(&self, at: usize) -> Tail {
        self.ends.get(at).map_or(Tail::Live, |(_, tail)| *tail)
    }

    /// All entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], Tail)> {
        (0..self.len()).map(|at| (self.get(at), self.tail(at)))
    }
}

/// The length of the longest common prefix.
pub(super) fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
