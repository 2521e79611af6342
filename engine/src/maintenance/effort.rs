//! How much work a checkpoint is asked for.

/// How much a checkpoint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// merges what is due
    Due,
    /// merges everything that has pending records, and tries again what has failed
    All,
    /// on a full disk: merges only where that removes deleted rows
    Freeing,
    /// on a full disk: removes dropped storages; all others stay as of their last checkpoint
    DropsOnly,
}
