//! The rivals' primary index: a hash table with open addressing, read and filled without locks.
//!
//! A slot is one word: the key plus 1 in the upper half, the row in the lower; 0 is empty. At most
//! half of the slots are taken.

use std::sync::atomic::{AtomicU64, Ordering};

/// Rows by key, both below 2^32 - 1.
pub struct HashIndex {
    slots: Box<[AtomicU64]>,
    /// Bits of a slot's number.
    bits: u32,
}

impl HashIndex {
    /// Room for `keys` keys.
    pub fn new(keys: u64) -> Self {
        let slots = (keys * 2).next_power_of_two().max(2);
        Self {
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            bits: slots.trailing_zeros(),
        }
    }

    /// The row of `key`.
    pub fn get(&self, key: u64) -> Option<u64> {
        for slot in self.probe(key) {
            match self.slots[slot].load(Ordering::Acquire) {
                0 => return None,
                word if word >> 32 == key + 1 => return Some(word & u64::from(u32::MAX)),
                _ => {}
            }
        }
        None
    }

    /// Adds a key that is not there yet.
    pub fn insert(&self, key: u64, row: u64) {
        let word = (key + 1) << 32 | row;
        let taken = |slot: usize| {
            self.slots[slot]
                .compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
        };
        let full = self.probe(key).all(taken);
        assert!(!full, "the index has room");
    }

    /// The slots where `key` may be, best first.
    fn probe(&self, key: u64) -> impl Iterator<Item = usize> {
        let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.bits)) as usize;
        let mask = self.slots.len() - 1;
        (0..self.slots.len()).map(move |step| (first + step) & mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_and_only_those() {
        let index = HashIndex::new(1_000);
        for key in 0..1_000 {
            index.insert(key * 3, key);
        }
        for key in 0..3_000 {
            let expected = (key % 3 == 0).then_some(key / 3);
            assert_eq!(index.get(key), expected, "key {key}");
        }
    }
}
