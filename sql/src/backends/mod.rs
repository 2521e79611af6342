//! The sessions' data for each other: the registry of sessions and their statements, a session's
//! user and privileges, the cancellation of its statement.

pub(crate) mod acting;
pub(crate) mod activity;
pub(crate) mod cancel;
pub(crate) mod identity;
pub(crate) mod random;
