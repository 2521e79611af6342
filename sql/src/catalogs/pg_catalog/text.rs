//! Definitions as SQL text: of constraints, indexes, views, privileges.

use super::system::System;
use super::table_index::{self, GIST, HASH, Index, Part};
use crate::parse;
use crate::parse::names::{PUBLIC, quote};
use crate::parse::{index_names, relations};
use datafusion::sql::sqlparser::ast::Expr;
use strandline_base::ColumnId;
use strandline_engine::access::{self, Access, EVERYBODY, Privileges};
use strandline_engine::catalog::index::{ConstraintTiming, ForeignKeyDef, ReferentialAction};
use strandline_engine::catalog::{KeyDef, TableDef, ViewDef};

fn columns(table: &TableDef, columns: &[ColumnId]) -> String {
    let columns = columns.iter().filter_map(|id| table.column_by_id(*id));
    let names: Vec<String> = columns.map(|c| quote(&c.name)).collect();
    names.join(", ")
}

/// `PRIMARY KEY (a, b)`, `UNIQUE NULLS NOT DISTINCT (a) DEFERRABLE`.
pub fn key(table: &TableDef, key: &KeyDef) -> String {
    let kind = match (key.primary, key.nulls_not_distinct) {
        (true, _) => "PRIMARY KEY",
        (false, false) => "UNIQUE",
        (false, true) => "UNIQUE NULLS NOT DISTINCT",
    };
    let columns = columns(table, &key.columns);
    format!("{kind} ({columns}){}", timing(key.timing))
}

/// When a constraint is checked; nothing where it is at the end of each statement.
pub fn timing(timing: ConstraintTiming) -> &'static str {
    match timing {
        ConstraintTiming::Immediate => "",
        ConstraintTiming::DeferrableImmediate => " DEFERRABLE",
        ConstraintTiming::Deferred => " DEFERRABLE INITIALLY DEFERRED",
    }
}

/// `FOREIGN KEY (a) REFERENCES p(id) ON DELETE CASCADE`; the referenced table with its schema
/// unless that is `public`.
pub fn foreign_key(table: &TableDef, key: &ForeignKeyDef, parent: &TableDef) -> String {
    let schema = match parent.schema.as_str() {
        PUBLIC => String::new(),
        schema => format!("{}.", quote(schema)),
    };
    let mut text = format!(
        "FOREIGN KEY ({}) REFERENCES {schema}{}({})",
        columns(table, &key.columns),
        quote(&parent.name),
        columns(parent, &key.parent_columns)
    );
    if key.match_full {
        text.push_str(" MATCH FULL");
    }
    for (event, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
        if action != ReferentialAction::NoAction {
            text.push_str(&format!(" ON {event} {}", action_words(action)));
        }
    }
    if !key.delete_sets.is_empty() {
        text.push_str(&format!(" ({})", columns(table, &key.delete_sets)));
    }
    text.push_str(timing(key.timing));
    if key.not_valid {
        text.push_str(" NOT VALID");
    }
    text
}

/// `CASCADE`, as the standard writes it.
pub fn action_words(action: ReferentialAction) -> &'static str {
    match action {
        ReferentialAction::NoAction => "NO ACTION",
        ReferentialAction::Restrict => "RESTRICT",
        ReferentialAction::Cascade => "CASCADE",
        ReferentialAction::SetNull => "SET NULL",
        ReferentialAction::SetDefault => "SET DEFAULT",
    }
}

/// The letter of an action in `pg_constraint`.
pub fn action_letter(action: ReferentialAction) -> &'static str {
    match action {
        ReferentialAction::NoAction => "a",
        ReferentialAction::Restrict => "r",
        ReferentialAction::Cascade => "c",
        ReferentialAction::SetNull => "n",
        ReferentialAction::SetDefault => "d",
    }
}

/// `CHECK ((condition))`, with one pair of parentheses where it is `pretty`.
pub fn check(condition: &str, pretty: bool) -> String {
    match pretty {
        true => format!("CHECK ({condition})"),
        false => format!("CHECK (({condition}))"),
    }
}

/// `CREATE UNIQUE INDEX … ON schema.table USING btree (…) WHERE …`; `pretty` leaves parentheses
/// out.
pub fn index(table: &TableDef, index: Index<'_>, pretty: bool) -> String {
    let unique = if index.is_unique() { "UNIQUE " } else { "" };
    let method = match index.method() {
        HASH => "hash",
        GIST => "gist",
        _ => "btree",
    };
    let parts = index.parts(table);
    let parts: Vec<String> = parts.iter().map(|part| ordered(part, pretty)).collect();
    let mut text = format!(
        "CREATE {unique}INDEX {} ON {}.{} USING {method} ({})",
        quote(index.name()),
        quote(&table.schema),
        quote(&table.name),
        parts.join(", ")
    );
    if let Index::Secondary(def) = index {
        if !def.include.is_empty() {
            text.push_str(&format!(" INCLUDE ({})", columns(table, &def.include)));
        }
        if def.nulls_not_distinct {
            text.push_str(" NULLS NOT DISTINCT");
        }
        let options = table_index::storage_parameters(def);
        if !options.is_empty() {
            let options: Vec<_> = options
                .into_iter()
                .map(|(n, v)| format!("{}='{v}'", quote(n)))
                .collect();
            text.push_str(&format!(" WITH ({})", options.join(", ")));
        }
        if let Some(predicate) = &def.predicate {
            let condition = expression(&predicate.sql, pretty);
            text.push_str(&format!(" WHERE {condition}"));
        }
    } else if index.nulls_not_distinct() {
        text.push_str(" NULLS NOT DISTINCT");
    }
    text
}

fn ordered(part: &Part<'_>, pretty: bool) -> String {
    let order = match (part.descending, part.nulls_first) {
        (false, false) => "",
        (false, true) => " NULLS FIRST",
        (true, true) => " DESC",
        (true, false) => " DESC NULLS LAST",
    };
    let class = part.operator_class.map(|class| format!(" {class}"));
    let class = class.unwrap_or_default();
    format!("{}{class}{order}", index_part(part, pretty))
}

/// A part of an index's key, without its order.
pub fn index_part(part: &Part<'_>, pretty: bool) -> String {
    match (part.column, part.expression) {
        (Some(column), _) => quote(column),
        (None, Some(expression)) => {
            let inner = self::expression(&expression.sql, pretty);
            match stands_alone(&expression.sql) {
                true => inner,
                false => format!("({inner})"),
            }
        }
        (None, None) => String::new(),
    }
}

/// An expression or the condition of an index: an operator's in parentheses unless it is `pretty`.
pub fn expression(sql: &str, pretty: bool) -> String {
    match pretty || stands_alone(sql) {
        true => sql.to_string(),
        false => format!("({sql})"),
    }
}

/// An expression without the parentheses around all of it.
pub fn without_parentheses(sql: &str) -> &str {
    let inner = sql
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'));
    match (inner, parse::expression(sql)) {
        (Some(inner), Ok(Expr::Nested(_))) => inner,
        _ => sql,
    }
}

fn stands_alone(sql: &str) -> bool {
    parse::expression(sql).is_ok_and(|expression| index_names::stands_alone(&expression))
}

/// A view's query; names without a schema are found in `default_schema`.
pub fn view(view: &ViewDef, default_schema: &str) -> String {
    let query = view.query.trim().trim_end_matches(';');
    if view.schema != default_schema
        && let Ok(mut query) = parse::query(query)
    {
        relations::qualify(&mut query, &view.schema, super::has);
        return format!(" {query};");
    }
    format!(" {query};")
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
