//! The last step of a checkpoint: the log is cut behind the position that the manifest names.
//!
//! Invariant: every commit that is cut is in files that the manifest names. A storage whose records
//! could not be written stays behind the others, and keeps the log from its own last checkpoint on.

use crate::db::Db;
use crate::manifest_state::ManifestState;
use strandline_base::Result;
use strandline_storage::wal::Lsn;

impl Db {
    /// Removes or recycles the log's segments that no replay needs. `state` is the manifest's
    /// state.
    pub(super) fn cut_log(&self, state: &ManifestState) -> Result<()> {
        self.wal.cut_before(Lsn(state.replay_from()))
    }
}
