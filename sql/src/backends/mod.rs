//! Sessions as others see them: the registry of who is connected and what they run, a session's
//! user, the cancellation of its statement, and what its user may do.

pub(crate) mod acting;
pub(crate) mod activity;
pub(crate) mod cancel;
pub(crate) mod identity;
pub(crate) mod random;
