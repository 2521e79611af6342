//! `has_…_privilege` and `pg_has_role`.

use super::{Definition, argument, stable};
use crate::catalogs::pg_catalog::catalog_value::CatalogValue;
use crate::catalogs::pg_catalog::system::System;
use crate::parse::names;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::access::{Privileges, RoleId};

pub(super) const FUNCTIONS: &[Definition] = &[
    stable("has_table_privilege", "bool", |s, a| on_relation(s, a, 0)),
    stable("has_sequence_privilege", "bool", |s, a| {
        on_relation(s, a, 0)
    }),
    stable("has_any_column_privilege", "bool", |s, a| {
        on_relation(s, a, 0)
    }),
    stable("has_column_privilege", "bool", |s, a| on_relation(s, a, 1)),
    stable("has_schema_privilege", "bool", on_schema),
    // One database, in which everybody who may connect may do these.
    stable("has_database_privilege", "bool", |_, _| Ok(true.into())),
    stable("has_function_privilege", "bool", |_, _| Ok(true.into())),
    stable("has_language_privilege", "bool", |_, _| Ok(true.into())),
    stable("has_type_privilege", "bool", |_, _| Ok(true.into())),
    stable("has_tablespace_privilege", "bool", |_, _| Ok(true.into())),
    stable("has_foreign_data_wrapper_privilege", "bool", |_, _| {
        Ok(false.into())
    }),
    stable("has_server_privilege", "bool", |_, _| Ok(false.into())),
    stable("pg_has_role", "bool", has_role),
    // Nothing is granted to anybody by default that is worth an entry.
    stable("acldefault", "aclitem[]", |_, _| Ok(CatalogValue::Null)),
];

/// The role that an argument names or numbers.
fn role(system: &System, cell: &CatalogValue) -> Result<RoleId> {
    if let CatalogValue::Int(oid) = cell {
        return Ok(u32::try_from(*oid).map_or(RoleId(0), RoleId));
    }
    let name = cell.as_text().unwrap_or_default();
    system.role(name).ok_or_else(|| {
        let message = format!("role \"{name}\" does not exist");
        Error::invalid(SqlState::UNDEFINED_OBJECT, message)
    })
}

/// The role, and the arguments after it: those of the shorter form are about the current user.
fn whose<'a>(
    system: &System,
    args: &'a [CatalogValue],
    short: usize,
) -> Result<(RoleId, &'a [CatalogValue])> {
    match args.len() > short {
        true => Ok((role(system, &args[0])?, &args[1..])),
        false => Ok((system.current_user().role, args)),
    }
}

/// Whether one of the privileges in a list such as `SELECT, INSERT WITH GRANT OPTION` is there.
fn any_of(list: &str, has: impl Fn(Privileges) -> bool) -> Result<bool> {
    let mut any = false;
    for word in list.split(',') {
        let word = word.trim().to_ascii_uppercase();
        let name = word.trim_end_matches(" WITH GRANT OPTION");
        let privilege = Privileges::named(name).ok_or_else(|| {
            let message = format!("unrecognized privilege type: \"{word}\"");
            Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message)
        })?;
        any |= has(privilege);
    }
    Ok(any)
}

/// (user, relation, [column,] privilege); `columns` says how many names follow the relation's.
fn on_relation(system: &System, args: &[CatalogValue], columns: usize) -> Result<CatalogValue> {
    let (role, args) = whose(system, args, 2 + columns)?;
    let oid = super::relation_at(system, args, 0)?;
    let list = argument(args, 1 + columns).as_text().unwrap_or_default();
    let Some(object) = system.protected(oid) else {
        // System tables are read by everybody and written by nobody.
        return Ok(match system.relation_name(oid) {
            Some(_) => any_of(list, |p| p == Privileges::SELECT)?.into(),
            None => CatalogValue::Null,
        });
    };
    let granted = system.catalog.access.privileges(role, &object);
    Ok(any_of(list, |p| granted.contains(p))?.into())
}

fn on_schema(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    let (role, args) = whose(system, args, 2)?;
    let oid = match argument(args, 0) {
        CatalogValue::Text(name) => match system.oids().schema(name) {
            0 => return Err(names::undefined_schema(name)),
            oid => oid.into(),
        },
        other => other.as_int().unwrap_or(0),
    };
    let list = argument(args, 1).as_text().unwrap_or_default();
    let Some(object) = system.protected(oid) else {
        return Ok(match system.schema_name(oid) {
            Some(_) => any_of(list, |p| p == Privileges::USAGE)?.into(),
            None => CatalogValue::Null,
        });
    };
    let granted = system.catalog.access.privileges(role, &object);
    Ok(any_of(list, |p| granted.contains(p))?.into())
}

fn has_role(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    let (member, args) = whose(system, args, 2)?;
    let group = role(system, argument(args, 0))?;
    let access = &system.catalog.access;
    let kind = argument(args, 1)
        .as_text()
        .unwrap_or_default()
        .to_ascii_uppercase();
    let reach = match kind.starts_with("USAGE") {
        true => access.powers(member),
        false => access.memberships(member),
    };
    Ok((access.is_superuser(member) || reach.contains(&group)).into())
}
