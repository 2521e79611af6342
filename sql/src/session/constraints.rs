//! SET CONSTRAINTS: when the deferrable constraints of the open transaction are checked.

use super::Session;
use crate::parse;
use crate::parse::names;
use crate::runtime::blocking::in_place;
use crate::values::summary::Summary;
use strandline_base::{Error, Result, SqlState, TableId};
use strandline_engine::catalog::Catalog;
use strandline_engine::catalog::index::ConstraintTiming;

impl Session {
    /// `mode` and `names` are the statement's words; commas separate the `names`.
    pub(super) fn set_constraints(&mut self, mode: &str, names: &str) -> Result<Summary> {
        let is_deferred = match mode {
            "deferred" => true,
            "immediate" => false,
            other => {
                return Err(Error::invalid(
                    SqlState::SYNTAX_ERROR,
                    format!("syntax error at or near \"{other}\""),
                ));
            }
        };
        let tag = Summary::tag("SET CONSTRAINTS");
        let Some(open) = self.open.as_ref().filter(|open| !open.implicit) else {
            self.notice(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SET CONSTRAINTS can only be used in transaction blocks",
            );
            return Ok(tag);
        };
        let transaction = open.transaction.clone();
        let default_schema = &self.template.config_options().catalog.default_schema;
        let found = match names.eq_ignore_ascii_case("all") {
            true => None,
            false => Some(constraints(
                &transaction.next_catalog(),
                names,
                default_schema,
            )?),
        };
        self.cancel.start();
        let _timer = self.timer();
        let set = in_place(|| transaction.set_constraints(found.as_deref(), is_deferred));
        set.map(|()| tag)
            .map_err(|error| self.cancel.explain(error))
    }
}

/// The deferrable constraints that a list names: each table with a constraint of that name.
fn constraints(
    catalog: &Catalog,
    list: &str,
    default_schema: &str,
) -> Result<Vec<(TableId, String)>> {
    let mut found = Vec::new();
    for written in list.split(',') {
        let written = parse::object_name(written)?;
        let (schema, name) = names::qualified(&written, default_schema)?;
        let before = found.len();
        let mut is_fixed = false;
        for table in catalog
            .tables
            .values()
            .filter(|table| table.schema == schema)
        {
            let keys = table.keys.iter().map(|key| (&key.name, key.timing));
            let references = table.foreign_keys.iter().map(|key| (&key.name, key.timing));
            for (known, timing) in keys.chain(references).filter(|(known, _)| **known == name) {
                match timing {
                    ConstraintTiming::Immediate => is_fixed = true,
                    _ => found.push((table.id, known.clone())),
                }
            }
        }
        if found.len() > before {
            continue;
        }
        return Err(match is_fixed {
            true => Error::invalid(
                SqlState::WRONG_OBJECT_TYPE,
                format!("constraint \"{name}\" is not deferrable"),
            ),
            false => Error::invalid(
                SqlState::UNDEFINED_OBJECT,
                format!("constraint \"{name}\" does not exist"),
            ),
        });
    }
    Ok(found)
}
