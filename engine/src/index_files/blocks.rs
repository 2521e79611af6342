//! The LIDBlocks of an index: their form by its definition, and what they have, in words.

use crate::catalog::index::{LidBlockKind, LidBlocks};
use strandline_base::Result;
use strandline_index::{BlockKind, LidForm, LidIndex};

/// The longest key that goes into blocks, in bytes: [`LidBlocks::ENTRIES_MAX`] entries with such
/// keys fit into a page.
const KEY_BYTES: usize = 40;

/// The form of the blocks.
pub(super) fn form(blocks: LidBlocks) -> LidForm {
    LidForm {
        kind: match blocks.kind {
            LidBlockKind::Dense => BlockKind::Dense,
            LidBlockKind::Sparse => BlockKind::Sparse,
        },
        entries: usize::from(blocks.entries),
        key_bytes: KEY_BYTES,
    }
}

/// The number, the form and the entries of an index's blocks.
///
/// # Errors
/// Those of reading the blocks.
pub(super) fn in_words(index: &LidIndex) -> Result<String> {
    let (form, blocks, waiting) = (index.form(), index.blocks(), index.waiting()?);
    let kind = match form.kind {
        BlockKind::Dense => LidBlockKind::Dense,
        BlockKind::Sparse => LidBlockKind::Sparse,
    };
    let (kind, entries) = (kind.name(), form.entries);
    Ok(format!(
        "{blocks} {kind} blocks of {entries}, {waiting} entries"
    ))
}
