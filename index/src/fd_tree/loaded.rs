//! The entries of a load.

/// Sorted, distinct entries in memory.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Loaded {
    pub fn of(entries: &[&[u8]]) -> Self {
        let mut loaded = Self {
            bytes: Vec::with_capacity(entries.iter().map(|entry| entry.len()).sum()),
            ends: Vec::with_capacity(entries.len()),
        };
        for entry in entries {
            loaded.bytes.extend_from_slice(entry);
            loaded.ends.push(loaded.bytes.len());
        }
        loaded
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all entries.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    pub fn get(&self, at: usize) -> Option<&[u8]> {
        let start = at
            .checked_sub(1)
            .map_or(Some(0), |at| self.ends.get(at).copied());
        self.bytes.get(start?..*self.ends.get(at)?)
    }

    /// The number of entries below `key`.
    pub fn below(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.get(middle) {
                Some(found) if found < key => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.get(self.below(key)) == Some(key)
    }
}
