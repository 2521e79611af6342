//! Adding and removing entries that may be there before their row gets the key.
//!
//! An update may set a key that the row had before and find its entry there, while a sweep is about
//! to remove that entry because no version needs it. So may an insertion into an index that
//! outlives a crash: the index has entries of rows that the crash has ended, whose places new rows
//! take. In an index that is built at each opening an inserted row has no entries before.
//!
//! So a writer writes the record first and adds the entry then. A sweep reads the row's versions
//! without a lock. Under a lock that excludes the adding of entries it verifies that the row has no
//! change since, and then removes entries. Either the record was written before the verification,
//! which finds it, or before the versions were read; the entry stays. Or the writer adds its entry
//! after the removal, which creates it again.

use strandline_base::sync::RwLock;

/// The mutual exclusion of adding and removing entries, for one index. [`RowKeys::enter`] takes no
/// other locks than the index's; the remover's closure may take further locks.
#[derive(Debug, Default)]
pub struct RowKeys(RwLock<()>);

impl RowKeys {
    /// Runs `enter`, which adds the entries of rows whose changes have been written. No entry is
    /// removed in the meantime.
    #[inline]
    pub fn enter<R>(&self, enter: impl FnOnce() -> R) -> R {
        let _no_removal = self.0.read();
        enter()
    }

    /// Runs `remove`, which verifies that one row has not changed since its versions were read, and
    /// removes some of its entries. No key is entered in the meantime.
    pub fn remove<R>(&self, remove: impl FnOnce() -> R) -> R {
        let _nobody_enters = self.0.write();
        remove()
    }
}
