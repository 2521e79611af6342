//! The filters of a level in order, which a search finds by the first word of their first entries:
//! it follows a pointer only where words are equal.

use super::block::word_of;
use super::partition::Partition;
use std::sync::Arc;

/// Filters in the order of their first entries.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    list: Vec<Arc<Partition>>,
    /// the first word of the first entry of each
    words: Vec<u64>,
}

impl Partitions {
    pub fn of(list: Vec<Arc<Partition>>) -> Self {
        let words = list.iter().map(|one| word_of(&one.first)).collect();
        Self { list, words }
    }

    pub fn list(&self) -> &[Arc<Partition>] {
        &self.list
    }

    /// Adds the next one.
    pub fn push(&mut self, partition: Arc<Partition>) {
        self.words.push(word_of(&partition.first));
        self.list.push(partition);
    }

    /// Puts a filter in the place of the one with the same first entry.
    pub fn replace(&mut self, partition: &Arc<Partition>) {
        let at = self.before(&partition.first);
        if let Some(known) = self.list.get_mut(at) {
            debug_assert_eq!(known.first, partition.first);
            *known = partition.clone();
        }
    }

    /// Takes the first ones.
    pub fn take_first(&mut self, count: usize) -> Vec<Arc<Partition>> {
        self.words.drain(..count);
        self.list.drain(..count).collect()
    }

    /// Puts filters before the others.
    pub fn put_first(&mut self, first: Vec<Arc<Partition>>) {
        let words = first.iter().map(|one| word_of(&one.first));
        self.words.splice(0..0, words);
        self.list.splice(0..0, first);
    }

    /// Bytes of the list and the words, without the filters.
    pub fn list_bytes(&self) -> usize {
        let words = self.words.capacity() * size_of::<u64>();
        self.list.capacity() * size_of::<Arc<Partition>>() + words
    }

    /// The number of those that begin before an entry.
    pub fn before(&self, entry: &[u8]) -> usize {
        self.count(entry, |first| first < entry)
    }

    /// The number of those that begin before an entry or with it.
    pub fn up_to(&self, entry: &[u8]) -> usize {
        self.count(entry, |first| first <= entry)
    }

    /// The number of those whose first entries `is_begun` holds for: all that are below an entry,
    /// none that is above it.
    fn count(&self, entry: &[u8], is_begun: impl Fn(&[u8]) -> bool) -> usize {
        let word = word_of(entry);
        let below = self.words.partition_point(|own| *own < word);
        let up_to = self.words.partition_point(|own| *own <= word);
        let same = self.list.get(below..up_to).unwrap_or_default();
        below + same.partition_point(|one| is_begun(&one.first))
    }
}
