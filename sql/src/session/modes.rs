//! The modes of a transaction: its isolation level, and the other modes of BEGIN and SET
//! TRANSACTION.

use datafusion::sql::sqlparser::ast::{
    TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};
use strandline_base::{Error, Result, SqlState};
use strandline_engine::{Isolation, Transaction};

/// The modes of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Modes {
    /// the isolation level
    pub isolation: Isolation,
    /// whether writes are refused
    pub read_only: bool,
    /// whether it reads transactions that are pre-committed, not durable yet
    pub speculative: bool,
}

impl Modes {
    /// These modes with the changes of a statement.
    pub fn with(mut self, modes: &[TransactionMode]) -> Result<Self> {
        for mode in modes {
            match mode {
                TransactionMode::AccessMode(mode) => {
                    self.read_only = *mode == TransactionAccessMode::ReadOnly;
                }
                TransactionMode::IsolationLevel(level) => self.isolation = isolation(*level)?,
            }
        }
        Ok(self)
    }
}

fn isolation(level: TransactionIsolationLevel) -> Result<Isolation> {
    use TransactionIsolationLevel as L;
    match level {
        // As in PostgreSQL, READ UNCOMMITTED is read committed: stronger, never weaker.
        L::ReadUncommitted | L::ReadCommitted => Ok(Isolation::ReadCommitted),
        L::RepeatableRead | L::Snapshot => Ok(Isolation::Snapshot),
        L::Serializable => Ok(Isolation::Serializable),
    }
}

/// The isolation level of a setting's value.
pub fn isolation_of(name: &str) -> Result<Isolation> {
    match name.to_ascii_lowercase().as_str() {
        "read uncommitted" | "read committed" => Ok(Isolation::ReadCommitted),
        "repeatable read" | "snapshot" => Ok(Isolation::Snapshot),
        "serializable" => Ok(Isolation::Serializable),
        other => Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("\"{other}\" is not an isolation level"),
        )
        .with_hint("Available: read committed, repeatable read, serializable.")),
    }
}

/// PostgreSQL's name of a level.
pub fn isolation_name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadCommitted => "read committed",
        Isolation::Snapshot => "repeatable read",
        Isolation::Serializable => "serializable",
    }
}

/// The modes of a running transaction.
pub(crate) fn modes_of(transaction: &Transaction) -> Modes {
    let options = transaction.options();
    Modes {
        isolation: options.isolation,
        read_only: options.read_only,
        speculative: options.speculative,
    }
}
