//! Names and numbers of objects: the `reg…` types' input and output, `format_type`, visibility.

use super::{Definition, argument, number, stable};
use crate::catalogs::pg_catalog::catalog_value::CatalogValue;
use crate::catalogs::pg_catalog::oid;
use crate::catalogs::pg_catalog::system::System;
use crate::catalogs::pg_catalog::types;
use crate::parse::names;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::access::RoleId;

pub(super) const FUNCTIONS: &[Definition] = &[
    stable("regclassin", "regclass", regclass_in),
    stable("regclassout", "text", |system, args| {
        Ok(system.relation_text(number(args, 0)).into())
    }),
    stable("to_regclass", "regclass", |system, args| {
        let name = argument(args, 0).as_text().unwrap_or_default();
        Ok(CatalogValue::option(system.relation(name)?))
    }),
    stable("regtypein", "regtype", regtype_in),
    stable("regtypeout", "text", |_, args| {
        let oid = number(args, 0);
        Ok(match types::by_oid(oid) {
            Some(_) => types::format_type(oid, None).into(),
            None => oid.to_string().into(),
        })
    }),
    stable("to_regtype", "regtype", |_, args| {
        let name = argument(args, 0).as_text().unwrap_or_default();
        Ok(CatalogValue::option(types::by_name(name).map(|t| t.oid)))
    }),
    stable("regnamespacein", "regnamespace", regnamespace_in),
    stable("regnamespaceout", "text", |system, args| {
        let oid = number(args, 0);
        let name = system.schema_name(oid).map(|name| names::quote(&name));
        Ok(name.unwrap_or_else(|| oid.to_string()).into())
    }),
    stable("to_regnamespace", "regnamespace", |system, args| {
        let name = argument(args, 0).as_text().unwrap_or_default();
        Ok(match system.oids().schema(name) {
            0 => CatalogValue::Null,
            oid => oid.into(),
        })
    }),
    stable("regrolein", "regrole", regrole_in),
    stable("regroleout", "text", |system, args| {
        let oid = number(args, 0);
        let name = role_name(system, oid);
        Ok(match name == format!("unknown (OID={oid})") {
            true => oid.to_string().into(),
            false => names::quote(&name).into(),
        })
    }),
    stable("to_regrole", "regrole", |system, args| {
        let name = argument(args, 0).as_text().unwrap_or_default();
        Ok(CatalogValue::option(system.role(name).map(oid::of_role)))
    }),
    // A procedure is its name.
    stable("regprocin", "regproc", |_, args| {
        Ok(match argument(args, 0) {
            CatalogValue::Text(name) => {
                let name = name.trim().trim_start_matches("pg_catalog.");
                name.split('(').next().unwrap_or(name).into()
            }
            CatalogValue::Int(0) => "-".into(),
            other => other
                .as_int()
                .map_or(CatalogValue::Null, |oid| oid.to_string().into()),
        })
    }),
    stable("int2vectorout", "text", |_, args| {
        Ok(match argument(args, 0) {
            CatalogValue::Ints(numbers) => {
                let texts: Vec<String> = numbers.iter().map(i64::to_string).collect();
                texts.join(" ").into()
            }
            _ => CatalogValue::Null,
        })
    }),
    stable("format_type", "text", |_, args| {
        let Some(oid) = argument(args, 0).as_int() else {
            return Ok(CatalogValue::Null);
        };
        Ok(types::format_type(oid, argument(args, 1).as_int()).into())
    })
    .not_strict(),
    stable("pg_get_userbyid", "name", |system, args| {
        Ok(role_name(system, number(args, 0)).into())
    }),
    stable("pg_table_is_visible", "bool", |system, args| {
        Ok(CatalogValue::option(system.is_visible(number(args, 0))))
    }),
    stable("pg_type_is_visible", "bool", |_, args| {
        Ok(types::by_oid(number(args, 0)).is_some().into())
    }),
    stable("pg_function_is_visible", "bool", visible),
    stable("pg_operator_is_visible", "bool", visible),
    stable("pg_opclass_is_visible", "bool", visible),
    stable("pg_opfamily_is_visible", "bool", visible),
    stable("pg_collation_is_visible", "bool", visible),
    stable("pg_conversion_is_visible", "bool", visible),
    stable("pg_statistics_obj_is_visible", "bool", visible),
    stable("pg_ts_config_is_visible", "bool", visible),
    stable("pg_ts_dict_is_visible", "bool", visible),
    stable("pg_ts_parser_is_visible", "bool", visible),
    stable("pg_ts_template_is_visible", "bool", visible),
    stable("parse_ident", "text[]", |_, args| {
        let text = argument(args, 0).as_text().unwrap_or_default();
        Ok(CatalogValue::Texts(names::parts(
            &crate::parse::object_name(text)?,
        )?))
    }),
    stable("pg_encoding_to_char", "name", |_, args| {
        Ok(match number(args, 0) {
            0 => "SQL_ASCII",
            6 => "UTF8",
            8 => "LATIN1",
            _ => "",
        }
        .into())
    }),
    stable("current_schemas", "name[]", |system, args| {
        let own = system.default_schema.clone();
        let mut schemas = vec![own];
        if argument(args, 0).is_true() {
            schemas.insert(0, crate::catalogs::pg_catalog::PG_CATALOG.to_string());
        }
        Ok(CatalogValue::Texts(schemas))
    }),
    stable("current_user", "name", |system, _| {
        Ok((&*system.current_user().name).into())
    }),
    stable("current_role", "name", |system, _| {
        Ok((&*system.current_user().name).into())
    }),
    stable("user", "name", |system, _| {
        Ok((&*system.current_user().name).into())
    }),
    stable("session_user", "name", |system, _| {
        Ok((&*system.session_user().name).into())
    }),
];

fn visible(_: &System, _: &[CatalogValue]) -> Result<CatalogValue> {
    Ok(true.into())
}

fn role_name(system: &System, oid: i64) -> String {
    let role = u32::try_from(oid).map_or(RoleId(0), RoleId);
    system.catalog.access.role_name(role)
}

/// A number as it is, a name as the number of what it names.
fn numbered(args: &[CatalogValue], find: impl FnOnce(&str) -> Result<i32>) -> Result<CatalogValue> {
    match argument(args, 0) {
        CatalogValue::Text(text) => match text.trim() {
            "-" => Ok(0.into()),
            text => match text.parse::<i64>() {
                Ok(oid) => Ok(oid.into()),
                Err(_) => find(text).map(Into::into),
            },
        },
        other => Ok(other.clone()),
    }
}

fn regclass_in(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    numbered(args, |name| system.require_relation(name))
}

fn regtype_in(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    numbered(args, |name| system.require_type(name))
}

fn regnamespace_in(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    numbered(args, |name| {
        let name = names::single(&crate::parse::object_name(name)?)?;
        match system.oids().schema(&name) {
            0 => Err(names::undefined_schema(&name)),
            oid => Ok(oid),
        }
    })
}

fn regrole_in(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    numbered(args, |name| {
        let name = names::single(&crate::parse::object_name(name)?)?;
        system.role(&name).map(oid::of_role).ok_or_else(|| {
            Error::invalid(
                SqlState::UNDEFINED_OBJECT,
                format!("role \"{name}\" does not exist"),
            )
        })
    })
}
