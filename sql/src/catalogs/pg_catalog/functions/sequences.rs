//! The sequences of identity columns.

use super::{Definition, argument, number, relation_at, stable};
use crate::catalogs::pg_catalog::catalog_value::CatalogValue;
use crate::catalogs::pg_catalog::sequences::Sequence;
use crate::catalogs::pg_catalog::system::System;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::access::{Object, Privileges};

pub(super) const SETVAL: &str = "setval";

pub(super) const FUNCTIONS: &[Definition] = &[stable(SETVAL, "int8", setval).volatile()];

/// (sequence, value [, whether the value has been given]): the value.
fn setval(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    let relation = relation_at(system, args, 0)?;
    let named = system.relation_name(relation);
    let named = named.and_then(|(schema, name)| Sequence::named(&system.catalog, &schema, &name));
    let Some(sequence) = named else {
        return Err(Error::invalid(
            SqlState::WRONG_OBJECT_TYPE,
            format!("\"{}\" is not a sequence", system.relation_text(relation)),
        ));
    };
    let name = sequence.name();
    let table = Object::Table(sequence.table.id);
    let role = system.current_user().role;
    let granted = system.catalog.access.privileges(role, &table);
    if !granted.contains(Privileges::UPDATE) {
        return Err(Error::invalid(
            SqlState("42501"),
            format!("permission denied for sequence {name}"),
        ));
    }
    let value = number(args, 1);
    let (least, greatest) = sequence.bounds();
    if !(least..=greatest).contains(&value) {
        return Err(Error::invalid(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!(
                "setval: value {value} is out of bounds for sequence \"{name}\" \
                 ({least}..{greatest})"
            ),
        ));
    }
    let is_given = args.get(2).is_none_or(CatalogValue::is_true);
    let transaction = system.statement.transaction();
    transaction.set_identity(sequence.table, sequence.column.id, value, is_given)?;
    Ok(argument(args, 1).clone())
}
