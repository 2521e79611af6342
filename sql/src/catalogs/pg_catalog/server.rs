//! The database and the server around the objects: roles, sessions, access methods, settings.

use super::catalog_value::CatalogValue;
use super::classes::HEAP;
use super::oid::{self, BOOTSTRAP_OID, DATABASE_OID, PG_CATALOG_OID};
use super::relation::Rows;
use super::system::System;
use super::table_index::{BTREE, GIST, HASH};
use crate::parse::names;
use strandline_engine::access::{BOOTSTRAP, RoleDef, RoleId};

/// UTF8.
pub const ENCODING: i32 = 6;
/// Tablespace `pg_default`.
const DEFAULT_TABLESPACE: i32 = 1663;
/// The collation of all texts.
const COLLATION: &str = "C";

pub fn pg_database(rows: &mut Rows) {
    rows.add([
        ("oid", DATABASE_OID.into()),
        ("datname", names::DATABASE.into()),
        ("datdba", BOOTSTRAP_OID.into()),
        ("encoding", ENCODING.into()),
        ("datlocprovider", "c".into()),
        ("datistemplate", false.into()),
        ("datallowconn", true.into()),
        ("datconnlimit", (-1).into()),
        ("datfrozenxid", 0.into()),
        ("datminmxid", 0.into()),
        ("dattablespace", DEFAULT_TABLESPACE.into()),
        ("datcollate", COLLATION.into()),
        ("datctype", COLLATION.into()),
    ]);
}

pub fn pg_tablespace(rows: &mut Rows) {
    for (oid, name) in [(DEFAULT_TABLESPACE, "pg_default"), (1664, "pg_global")] {
        rows.add([
            ("oid", oid.into()),
            ("spcname", name.into()),
            ("spcowner", BOOTSTRAP_OID.into()),
        ]);
    }
}

pub fn pg_am(rows: &mut Rows) {
    let methods = [
        (HEAP, "heap", "heap_tableam_handler", "t"),
        (BTREE, "btree", "bthandler", "i"),
        (HASH, "hash", "hashhandler", "i"),
        (GIST, "gist", "gisthandler", "i"),
    ];
    for (oid, name, handler, kind) in methods {
        rows.add([
            ("oid", oid.into()),
            ("amname", name.into()),
            ("amhandler", handler.into()),
            ("amtype", kind.into()),
        ]);
    }
}

pub fn pg_collation(rows: &mut Rows) {
    for (oid, name, provider) in [(100, "default", "d"), (950, "C", "c"), (951, "POSIX", "c")] {
        let locale = match provider {
            "d" => CatalogValue::Null,
            _ => name.into(),
        };
        rows.add([
            ("oid", oid.into()),
            ("collname", name.into()),
            ("collnamespace", PG_CATALOG_OID.into()),
            ("collowner", BOOTSTRAP_OID.into()),
            ("collprovider", provider.into()),
            ("collisdeterministic", true.into()),
            ("collencoding", (-1).into()),
            ("collcollate", locale.clone()),
            ("collctype", locale),
        ]);
    }
}

pub fn pg_language(rows: &mut Rows) {
    for (oid, name) in [(12, "internal"), (14, "sql")] {
        rows.add([
            ("oid", oid.into()),
            ("lanname", name.into()),
            ("lanowner", BOOTSTRAP_OID.into()),
            ("lanispl", false.into()),
            ("lanpltrusted", (name == "sql").into()),
            ("lanplcallfoid", 0.into()),
            ("laninline", 0.into()),
            ("lanvalidator", 0.into()),
        ]);
    }
}

/// Every role; the bootstrap role also before it has a name of its own.
fn roles(system: &System) -> Vec<RoleDef> {
    let access = &system.catalog.access;
    let unnamed = !access.roles.contains_key(&BOOTSTRAP);
    let first = unnamed.then(|| RoleDef {
        id: BOOTSTRAP,
        name: access.role_name(BOOTSTRAP),
        superuser: true,
        login: true,
        create_role: true,
        create_database: true,
        inherit: true,
        connection_limit: None,
        valid_until_us: None,
        verifier: None,
        member_of: Vec::new(),
        comment: None,
    });
    let named = access.roles.values().map(|role| RoleDef::clone(role));
    first.into_iter().chain(named).collect()
}

fn moment(us: Option<i64>) -> CatalogValue {
    let us = us.and_then(|us| u64::try_from(us).ok());
    us.map_or(CatalogValue::Null, CatalogValue::Moment)
}

fn limit(role: &RoleDef) -> CatalogValue {
    role.connection_limit.map_or(-1, i64::from).into()
}

/// `pg_roles`, and `pg_authid` with the same columns but the oid's place.
pub fn pg_roles(system: &System, rows: &mut Rows) {
    for role in roles(system) {
        rows.add([
            ("oid", oid::of_role(role.id).into()),
            ("rolname", role.name.as_str().into()),
            ("rolsuper", role.superuser.into()),
            ("rolinherit", role.inherit.into()),
            ("rolcreaterole", role.create_role.into()),
            ("rolcreatedb", role.create_database.into()),
            ("rolcanlogin", role.login.into()),
            ("rolreplication", false.into()),
            ("rolbypassrls", role.superuser.into()),
            ("rolconnlimit", limit(&role)),
            ("rolvaliduntil", moment(role.valid_until_us)),
            // Nobody is shown a verifier, superusers neither.
            ("rolpassword", "********".into()),
        ]);
    }
}

/// `pg_user`, and `pg_shadow` with more columns.
pub fn pg_user(system: &System, rows: &mut Rows) {
    for role in roles(system).into_iter().filter(|role| role.login) {
        rows.add([
            ("usename", role.name.as_str().into()),
            ("usesysid", oid::of_role(role.id).into()),
            ("usecreatedb", role.create_database.into()),
            ("usesuper", role.superuser.into()),
            ("userepl", false.into()),
            ("usebypassrls", role.superuser.into()),
            ("passwd", "********".into()),
            ("valuntil", moment(role.valid_until_us)),
        ]);
    }
}

pub fn pg_group(system: &System, rows: &mut Rows) {
    let all = roles(system);
    for group in all.iter().filter(|role| !role.login) {
        let members = all.iter().filter(|role| role.member_of.contains(&group.id));
        let members = members.map(|role| oid::of_role(role.id).into()).collect();
        rows.add([
            ("groname", group.name.as_str().into()),
            ("grosysid", oid::of_role(group.id).into()),
            ("grolist", CatalogValue::Ints(members)),
        ]);
    }
}

pub fn pg_auth_members(system: &System, rows: &mut Rows) {
    for role in roles(system) {
        for group in &role.member_of {
            rows.add([
                ("roleid", oid::of_role(*group).into()),
                ("member", oid::of_role(role.id).into()),
                ("grantor", BOOTSTRAP_OID.into()),
                ("admin_option", false.into()),
            ]);
        }
    }
}

/// Whether `user` may see what a session of `other` runs.
fn may_see(system: &System, other: &str) -> bool {
    let access = &system.catalog.access;
    let user = system.current_user().role;
    access.is_superuser(user)
        || system
            .role(other)
            .is_some_and(|role: RoleId| access.powers(user).contains(&role))
}

pub fn pg_stat_activity(system: &System, rows: &mut Rows) {
    let Some(identity) = &system.identity else {
        return;
    };
    for backend in identity.registry.all() {
        let state = backend.state();
        let role = system.role(&state.user);
        let (host, port) = match state.client.as_deref().map(|c| c.rsplit_once(':')) {
            Some(Some((host, port))) => (CatalogValue::text(host), port.parse().ok()),
            Some(None) => (CatalogValue::Null, Some(-1)),
            None => (CatalogValue::Null, None),
        };
        rows.add([
            ("datid", DATABASE_OID.into()),
            ("datname", names::DATABASE.into()),
            ("pid", state.pid.into()),
            ("usesysid", CatalogValue::option(role.map(oid::of_role))),
            ("usename", (&*state.user).into()),
            ("application_name", (&*state.application).into()),
            ("backend_start", CatalogValue::Moment(state.started_us)),
            ("backend_type", "client backend".into()),
        ]);
        if !may_see(system, &state.user) {
            rows.set([("query", "<insufficient privilege>".into())]);
            continue;
        }
        let started = Some(state.query_started_us).filter(|us| *us > 0);
        let transaction = state.transaction_started_us;
        rows.set([
            ("client_addr", host),
            ("client_port", CatalogValue::option::<i32>(port)),
            (
                "xact_start",
                transaction.map_or(CatalogValue::Null, CatalogValue::Moment),
            ),
            (
                "query_start",
                started.map_or(CatalogValue::Null, CatalogValue::Moment),
            ),
            ("state_change", CatalogValue::Moment(state.changed_us)),
            ("state", state.activity.name().into()),
            ("query", state.query.as_deref().unwrap_or_default().into()),
        ]);
    }
}

/// `pg_stat_user_tables` and `pg_stat_all_tables`: what is known without counting.
pub fn pg_stat_tables(system: &System, rows: &mut Rows) {
    for table in system.catalog.tables.values() {
        let statistics = system.statement.transaction().db().statistics(table);
        rows.add([
            ("relid", system.oids().table(table).into()),
            ("schemaname", table.schema.as_str().into()),
            ("relname", table.name.as_str().into()),
            ("n_live_tup", (statistics.rows as i64).into()),
            ("n_dead_tup", 0.into()),
        ]);
    }
}

/// `pg_settings`.
pub fn pg_settings(system: &System, rows: &mut Rows) {
    for setting in system.settings().iter() {
        rows.add([
            ("name", setting.name.as_str().into()),
            ("setting", system.value_of(setting).into()),
            ("category", "Strandline".into()),
            ("short_desc", setting.description.as_str().into()),
            (
                "context",
                if setting.changeable {
                    "user"
                } else {
                    "internal"
                }
                .into(),
            ),
            ("vartype", "string".into()),
            ("source", "session".into()),
            ("pending_restart", false.into()),
        ]);
    }
}

/// The words that mean something in SQL.
pub fn pg_get_keywords(rows: &mut Rows) {
    for keyword in datafusion::sql::sqlparser::keywords::ALL_KEYWORDS {
        let word = keyword.to_lowercase();
        let reserved = names::quote(&word) != word;
        rows.add([
            ("word", word.into()),
            ("catcode", if reserved { "R" } else { "U" }.into()),
            ("barelabel", (!reserved).into()),
            (
                "catdesc",
                if reserved { "reserved" } else { "unreserved" }.into(),
            ),
        ]);
    }
}
