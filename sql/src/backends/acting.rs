//! The role that a statement acts as, and its privileges. They are checked where table names are
//! resolved.

use crate::backends::identity::Identity;
use datafusion::execution::session_state::SessionState;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::access::{Access, Object, Privileges, RoleId};
use strandline_engine::catalog::{Catalog, TableDef};

/// insufficient_privilege
pub const DENIED: SqlState = SqlState("42501");

/// A role that is not a superuser.
#[derive(Clone, Debug)]
pub struct Acting {
    /// the role
    pub role: RoleId,
    access: Arc<Access>,
}

impl Acting {
    /// The role of a statement of the session behind `state`; None: a superuser, whose privileges
    /// are not checked.
    pub fn of(state: &SessionState, catalog: &Catalog) -> Option<Arc<Self>> {
        let identity = Identity::of(state)?;
        Self::new(identity.current_user.role, catalog)
    }

    /// [`Acting::of`] for a known role.
    pub fn new(role: RoleId, catalog: &Catalog) -> Option<Arc<Self>> {
        let access = &catalog.access;
        (!access.is_superuser(role)).then(|| {
            Arc::new(Self {
                role,
                access: Arc::clone(access),
            })
        })
    }

    /// 42501 unless all of `wanted` is allowed on the object, and names in its schema may be
    /// looked up.
    pub fn require(&self, object: &Object, shown: &Shown<'_>, wanted: Privileges) -> Result<()> {
        self.require_usage(shown.schema)?;
        match self.access.privileges(self.role, object).contains(wanted) {
            true => Ok(()),
            false => Err(denied(shown.kind, shown.name)),
        }
    }

    /// [`Acting::require`] for a table.
    pub fn require_on(&self, table: &TableDef, wanted: Privileges) -> Result<()> {
        self.require(&Object::Table(table.id), &Shown::table(table), wanted)
    }

    /// 42501 without USAGE on the schema.
    pub fn require_usage(&self, schema: &str) -> Result<()> {
        self.require_in_schema(schema, Privileges::USAGE)
    }

    /// 42501 without CREATE on the schema.
    pub fn require_create(&self, schema: &str) -> Result<()> {
        self.require_in_schema(schema, Privileges::CREATE)
    }

    fn require_in_schema(&self, schema: &str, wanted: Privileges) -> Result<()> {
        let object = Object::Schema(schema.to_string());
        match self.access.privileges(self.role, &object).contains(wanted) {
            true => Ok(()),
            false => Err(denied("schema", schema)),
        }
    }

    /// Whether the role has the owner's rights.
    pub fn owns(&self, object: &Object) -> bool {
        self.access.owns(self.role, object)
    }

    /// 42501 unless the role has the owner's rights.
    pub fn require_owner(&self, object: &Object, shown: &Shown<'_>) -> Result<()> {
        match self.owns(object) {
            true => Ok(()),
            false => Err(Error::invalid(
                DENIED,
                format!("must be owner of {} {}", shown.kind, shown.name),
            )),
        }
    }
}

/// The names of an object in messages.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// `table`, `view`, `schema`
    pub kind: &'static str,
    /// without its schema
    pub name: &'a str,
    /// its schema
    pub schema: &'a str,
}

impl<'a> Shown<'a> {
    /// A table.
    pub fn table(table: &'a TableDef) -> Self {
        Self {
            kind: "table",
            name: &table.name,
            schema: &table.schema,
        }
    }
}

/// 42501 in PostgreSQL's words.
pub fn denied(kind: &str, name: &str) -> Error {
    Error::invalid(DENIED, format!("permission denied for {kind} {name}"))
}

/// 42501: only superusers may access the server's files.
pub fn files_denied(what: &str) -> Error {
    Error::invalid(DENIED, format!("must be superuser to {what} a file"))
}
