//! CREATE INDEX, ALTER INDEX, DROP INDEX, REINDEX, COMMENT ON INDEX, and constraints made from an
//! index.

mod alter;
mod comment;
mod create;
mod define;
mod drop;
mod options;
mod promote;
mod reindex;

pub use alter::alter;
pub use comment::comment;
pub use create::create;
pub use drop::{How, drop};
pub use promote::promote;
pub use reindex::reindex;

use strandline_base::{ColumnId, Error, Result, SqlState};
use strandline_engine::catalog::index::IndexDef;

/// Whether the index is dropped with the column.
pub fn needs(def: &IndexDef, column: ColumnId) -> bool {
    def.include.contains(&column) || def.key_columns().contains(&column)
}

/// 25001 if the statement is within a transaction block; `what` is its name.
pub fn require_alone(
    context: &crate::planning::context::StatementContext,
    what: &str,
) -> Result<()> {
    match context.is_alone {
        true => Ok(()),
        false => Err(Error::invalid(
            SqlState::ACTIVE_SQL_TRANSACTION,
            format!("{what} cannot run inside a transaction block"),
        )),
    }
}

fn gone() -> Error {
    Error::invalid(
        SqlState::UNDEFINED_TABLE,
        "the table was dropped by another transaction",
    )
}

/// The error for a missing index.
fn undefined(name: &str) -> Error {
    Error::invalid(
        SqlState::UNDEFINED_OBJECT,
        format!("index \"{name}\" does not exist"),
    )
}
