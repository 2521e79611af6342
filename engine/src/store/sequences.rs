//! The sequences of serial keys ([`KeySequences`]) that an opening starts with.
//!
//! An index in a file has no sequences after an opening, unless the manifest names some. They are
//! hints: a row may have left its key since, and a crash may have ended rows.

use super::Store;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{ColumnId, RowId};
use strandline_index::KeySequence;

/// Sequences of a key that the manifest keeps, the longest ones.
const KEPT: usize = 16;

/// By the column of a key of one column: first key, first row and the number of rows.
pub type KnownSequences = BTreeMap<ColumnId, Vec<(i64, RowId, u64)>>;

impl Store {
    /// The sequences of keys whose indexes are in files.
    pub(crate) fn sequences(&self) -> KnownSequences {
        let mut known = KnownSequences::new();
        for index in self.keys().iter().filter(|index| !index.is_in_memory()) {
            let ([column], Some(sequences)) = (&*index.columns, index.index.sequences()) else {
                continue;
            };
            let kept = sequences.of_most_rows(KEPT);
            let kept: Vec<_> = kept.iter().map(KeySequence::parts).collect();
            if !kept.is_empty() {
                known.insert(*column, kept);
            }
        }
        known
    }

    /// Those of a checkpoint, for the indexes that are opened.
    pub(crate) fn set_sequences(&self, sequences: KnownSequences) {
        self.opened_sequences.store(Arc::new(sequences));
    }

    /// Those of a key over `columns` as of the checkpoint.
    pub(super) fn opened_sequences(&self, columns: &[ColumnId]) -> Vec<KeySequence> {
        let [column] = columns else {
            return Vec::new();
        };
        let known = self.opened_sequences.load();
        let known = known.get(column).into_iter().flatten();
        let sequence = |&(key, row, rows): &(i64, RowId, u64)| KeySequence::new(key, row, rows);
        known.map(sequence).collect()
    }
}
