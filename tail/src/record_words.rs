//! Arrays of words that threads share, and the words of a tail page's records, from the beginning
//! of a cache line on.

use strandline_base::sync::AtomicU64;
#[cfg(test)]
use strandline_base::sync::Ordering;

/// Words in a cache line: a record of four values fills just one.
pub(crate) const LINE_WORDS: usize = 8;

const LINE_BYTES: usize = LINE_WORDS * size_of::<u64>();

/// `n` words.
pub(crate) fn zeros(n: usize) -> Box<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

/// The words of a page's records.
#[derive(Debug, Default)]
pub(crate) struct RecordWords {
    /// a line less a word more than there are records' words
    words: Box<[AtomicU64]>,
    /// the first word of a line
    from: u8,
}

impl RecordWords {
    /// `lines` lines of zeros.
    pub fn zeros(lines: usize) -> Self {
        let words = zeros(lines * LINE_WORDS + LINE_WORDS - 1);
        // Atomics of a model are larger; they stand where they stand.
        let from = match words.as_ptr().align_offset(LINE_BYTES) {
            from if from < LINE_WORDS => from as u8,
            _ => 0,
        };
        Self { words, from }
    }
    /// Makes all words 0.
    pub fn clear(&mut self) {
        self.words.iter_mut().for_each(|word| *word.get_mut() = 0);
    }
    /// How many lines it has.
    pub fn lines(&self) -> usize {
        self.words.len() / LINE_WORDS
    }
    /// The bytes of so many lines.
    pub fn bytes(lines: usize) -> usize {
        lines * LINE_BYTES
    }
    /// `n` words from `at` on.
    #[inline]
    pub fn at(&self, at: usize, n: usize) -> &[AtomicU64] {
        let from = usize::from(self.from) + at;
        &self.words[from..from + n]
    }
    /// What word `at` is.
    #[cfg(test)]
    pub fn load(&self, at: usize) -> u64 {
        self.at(at, 1)[0].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_begin_with_a_line() {
        for lines in [0, 1, 2, 9, 64, 512] {
            let mut words = RecordWords::zeros(lines);
            assert_eq!(words.lines(), lines);
            if lines == 0 {
                continue;
            }
            let all = words.at(0, lines * LINE_WORDS);
            assert_eq!(all.as_ptr().addr() % LINE_BYTES, 0);
            all[lines * LINE_WORDS - 1].store(7, Ordering::Relaxed);
            assert_eq!(words.load(lines * LINE_WORDS - 1), 7);
            words.clear();
            assert_eq!(words.load(lines * LINE_WORDS - 1), 0);
        }
    }
}
