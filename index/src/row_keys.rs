//! Entering and removing entries of rows that may change their keys.
//!
//! A row's entry is added once for an insertion, whose row nobody else writes. An update may come
//! back to a key that the row had before and find its entry there, while somebody is about to
//! remove it because no version needs it. So a change is written first and its key entered then;
//! and whoever removes entries looks at the row's versions and removes in one piece, with no key
//! entered meanwhile. Either the look comes after the change was written, and sees it, or the
//! entering comes after the removal, and adds the entry again.

use strandline_base::sync::RwLock;

/// Keeps the two apart, for one index. Nothing else is locked by [`RowKeys::enter`] but the index;
/// what is locked while entries are removed is the remover's business.
#[derive(Debug, Default)]
pub struct RowKeys(RwLock<()>);

impl RowKeys {
    /// Runs `enter`, which adds the entry of a row whose change has been written, while no entry
    /// is removed.
    #[inline]
    pub fn enter<R>(&self, enter: impl FnOnce() -> R) -> R {
        let _no_removal = self.0.read();
        enter()
    }

    /// Runs `remove`, which compares one row's entries with its versions and removes some, while
    /// no changed key is entered.
    pub fn remove<R>(&self, remove: impl FnOnce() -> R) -> R {
        let _nobody_enters = self.0.write();
        remove()
    }
}
