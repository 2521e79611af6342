//! Events for `tracing`: background work has failed, or works again.
//!
//! A database inside a program has no subscriber, so nothing is printed and each event costs a load
//! and a branch. Events are rare, and none is on the path of a transaction.

use strandline_base::{Error, ErrorKind};
use tracing::{error, info};

/// Reports that background work has failed or works again. Only a change of the state is reported,
/// not every retry, since a retry's error may name another new file. `what` is a plural noun.
pub(crate) fn background_work(what: &str, before: Option<&Error>, now: Option<&Error>) {
    match (before, now) {
        (Some(before), Some(now)) if is_same_failure(before, now) => {}
        (_, Some(failure)) if failure.kind() == ErrorKind::Closed => {
            error!(sqlstate = failure.sqlstate().0, "{what} end: {failure}");
        }
        (_, Some(failure)) => error!(
            sqlstate = failure.sqlstate().0,
            "{what} fail, and are tried again: {failure}"
        ),
        (Some(_), None) => info!("{what} work again"),
        (None, None) => {}
    }
}

/// Whether two errors have the same cause.
pub(crate) fn is_same_failure(before: &Error, now: &Error) -> bool {
    (before.kind(), before.sqlstate()) == (now.kind(), now.sqlstate())
}
