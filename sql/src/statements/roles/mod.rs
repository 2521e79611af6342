//! Users and groups: their passwords, their privileges, and the statements that change both.
//!
//! * The catalog holds them (`strandline_engine::access`). Like all definitions they change within
//!   a transaction.
//! * [`acting`] has the privileges of a statement's user. They are checked only where table names
//!   are resolved (`planning::catalog`, [`check`]). Superusers are not checked.
//! * A view's tables are read with its owner's privileges, as in PostgreSQL.
//! * Passwords are kept as SCRAM verifiers ([`scram`]). The password itself is only in the
//!   statement's text, from which [`redacted`](crate::redacted) removes it for logs.

pub mod check;
mod grants;
mod scram;
pub(crate) mod statements;

pub use grants::give_to;
pub use scram::ScramVerifier;

use crate::planning::context::StatementContext;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{ObjectType, Statement as Parsed};
use strandline_base::{Error, Result};

/// Whether `statement` is about roles or privileges.
pub fn handles(statement: &Parsed) -> bool {
    match statement {
        Parsed::CreateRole(_) | Parsed::AlterRole { .. } | Parsed::Grant(_) | Parsed::Revoke(_) => {
            true
        }
        Parsed::Drop { object_type, .. } => matches!(object_type, ObjectType::Role),
        _ => false,
    }
}

/// Executes a statement about roles or privileges.
pub fn execute(context: &StatementContext, statement: &Parsed) -> Result<Summary> {
    match statement {
        Parsed::CreateRole(create) => statements::create(context, create),
        Parsed::AlterRole { name, operation } => statements::alter(context, name, operation),
        Parsed::Drop {
            names, if_exists, ..
        } => statements::drop(context, names, *if_exists),
        Parsed::Grant(grant) => grants::grant(context, grant),
        Parsed::Revoke(revoke) => grants::revoke(context, revoke),
        other => Err(Error::internal(format!("{other} is not about roles"))),
    }
}
