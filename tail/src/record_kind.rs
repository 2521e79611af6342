//! The kinds of tail records.

/// The kind of a tail record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// new values of the columns in its bits
    Update,
    /// the values before the first update; does not imply that the row exists
    OldValue,
    /// the row ends here
    Delete,
    /// no other transaction may write or lock the row until this one ends; no values, never
    /// committed
    Lock,
    /// no other transaction may write the row or lock it exclusively; otherwise as `Lock`
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
