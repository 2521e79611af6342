//! Whether the objects of the capacity tier are still this database's.

use crate::db::Db;
use strandline_base::Result;
use strandline_storage::tiers::owner::Owner;

impl Db {
    /// Ends all writes if `check` finds that another directory has taken the objects over. A store
    /// that cannot be reached does not stop a checkpoint: removals of objects ask by themselves.
    ///
    /// # Errors
    /// 55000 if they were taken over.
    pub(super) fn check_owner(&self, check: impl FnOnce(&Owner) -> Result<()>) -> Result<()> {
        let Some(owner) = &self.owner else {
            return Ok(());
        };
        // Its other errors are the store's.
        let _ = check(owner);
        let Some(lost) = owner.lost() else {
            return Ok(());
        };
        // An error of the log itself is what its users get instead.
        let _ = self.wal.close(lost.clone());
        Err(lost)
    }
}
