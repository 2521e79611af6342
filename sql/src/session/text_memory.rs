//! The share of the queries' memory that a long text takes as long as its parsed form is kept.

use crate::parse::text_memory;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, Result, SqlState};

/// Reserves the memory for parsing and planning `sql`; `None` for a short text.
///
/// # Errors
/// 53200.
pub(crate) fn reserve(
    sql: &str,
    pool: &Arc<dyn MemoryPool>,
) -> Result<Option<Arc<MemoryReservation>>> {
    let bytes = text_memory::estimate(sql);
    if bytes == 0 {
        return Ok(None);
    }
    let reservation = MemoryConsumer::new("StatementText").register(pool);
    match reservation.try_grow(bytes) {
        Ok(()) => Ok(Some(Arc::new(reservation))),
        Err(_) => Err(Error::new(
            ErrorKind::Unavailable,
            SqlState::OUT_OF_MEMORY,
            "the statement's text needs more memory than memory_bytes leaves to queries",
        )
        .with_detail(format!(
            "Parsing and planning these {} of text may need {}.",
            shown(sql.len()),
            shown(bytes)
        ))
        .with_hint(
            "Load rows with COPY, pass a list as one parameter (= ANY ($1)), or raise \
             memory_bytes when opening the database.",
        )),
    }
}

fn shown(bytes: usize) -> String {
    match bytes >> 20 {
        0 => format!("{} kB", bytes >> 10),
        megabytes => format!("{megabytes} MB"),
    }
}
