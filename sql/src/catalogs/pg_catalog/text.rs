//! Definitions as SQL text: of constraints, indexes, views, privileges.

use super::system::{System, key_columns};
use crate::parse::names::quote;
use strandline_engine::access::{self, Access, EVERYBODY, Privileges};
use strandline_engine::catalog::{KeyDef, TableDef, ViewDef};

fn columns(table: &TableDef, key: &KeyDef) -> String {
    let columns: Vec<String> = key_columns(table, key).map(|c| quote(&c.name)).collect();
    columns.join(", ")
}

/// `PRIMARY KEY (a, b)`, `UNIQUE (a)`.
pub fn key(table: &TableDef, key: &KeyDef) -> String {
    let kind = if key.primary { "PRIMARY KEY" } else { "UNIQUE" };
    format!("{kind} ({})", columns(table, key))
}

/// `CHECK ((condition))`, with one pair of parentheses where it is `pretty`.
pub fn check(condition: &str, pretty: bool) -> String {
    match pretty {
        true => format!("CHECK ({condition})"),
        false => format!("CHECK (({condition}))"),
    }
}

/// `CREATE UNIQUE INDEX …`
pub fn index(table: &TableDef, key: &KeyDef) -> String {
    format!(
        "CREATE UNIQUE INDEX {} ON {}.{} USING btree ({})",
        quote(&key.name),
        quote(&table.schema),
        quote(&table.name),
        columns(table, key)
    )
}

/// A view's query.
pub fn view(view: &ViewDef) -> String {
    format!(" {};", view.query.trim().trim_end_matches(';'))
}

/// The privileges on an object as PostgreSQL shows them (`grantee=letters/grantor`); None if
/// nothing was ever granted.
pub fn acl(system: &System, object: &access::Object) -> Option<Vec<String>> {
    let access = &system.catalog.access;
    let all = match object {
        access::Object::Schema(_) => Privileges::ALL_ON_SCHEMA,
        _ => Privileges::ALL_ON_TABLE,
    };
    access.granted(object).next()?;
    let owner = role_text(access, access.owner(object));
    let mut items = vec![format!("{owner}={}/{owner}", all.letters(Privileges::NONE))];
    for grant in access.granted(object) {
        let grantee = match grant.grantee {
            EVERYBODY => String::new(),
            role => role_text(access, role),
        };
        let letters = grant.privileges.letters(grant.grantable);
        items.push(format!("{grantee}={letters}/{owner}"));
    }
    Some(items)
}

fn role_text(access: &Access, role: access::RoleId) -> String {
    quote(&access.role_name(role))
}
