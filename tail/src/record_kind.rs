//! The kinds of tail records.

/// What a tail record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// new values of the columns in its bits
    Update,
    /// the values before the first update; says nothing about existence
    OldValue,
    /// the row ends here
    Delete,
    /// nobody else may write or lock the row until the transaction ends; no values, never committed
    Lock,
    /// nobody else may write the row or lock it for itself; likewise
    ShareLock,
}

impl RecordKind {
    /// Whether it only keeps others away.
    pub fn is_lock(self) -> bool {
        matches!(self, Self::Lock | Self::ShareLock)
    }
    #[inline]
    pub(crate) fn of(number: u8) -> Self {
        match number {
            0 => Self::Update,
            1 => Self::OldValue,
            2 => Self::Delete,
            3 => Self::Lock,
            _ => Self::ShareLock,
        }
    }
}
