//! `pg_index`, `pg_indexes`, the views of statistics and of progress, and operator classes.

use super::catalog_value::CatalogValue;
use super::oid::{BOOTSTRAP_OID, DATABASE_OID, Object, PG_CATALOG_OID};
use super::relation::Rows;
use super::system::System;
use super::table_index::{BTREE, GIST, HASH, Index, Part, of};
use super::{text, types};
use crate::parse::names;
use strandline_base::SqlType;
use strandline_engine::BuildPhase;
use strandline_engine::catalog::TableDef;

pub fn pg_index(system: &System, rows: &mut Rows) {
    for table in system.catalog.tables.values() {
        for index in of(table) {
            index_row(system, table, index, rows);
        }
    }
}

fn index_row(system: &System, table: &TableDef, index: Index<'_>, rows: &mut Rows) {
    let oids = system.oids();
    let parts = index.parts(table);
    let included = index.included(table);
    let keys = parts.iter().map(|part| part.position);
    let collations = parts.iter().map(|part| collation(part.sql_type));
    let classes = parts
        .iter()
        .map(|part| operator_class(index.method(), part));
    let expressions: Vec<String> = parts
        .iter()
        .filter_map(|part| part.expression)
        .map(|expression| text::expression(&expression.sql, false))
        .collect();
    rows.add([
        ("indexrelid", oids.get(&index.object(table)).into()),
        ("indrelid", oids.table(table).into()),
        ("indnatts", ((parts.len() + included.len()) as i64).into()),
        ("indnkeyatts", (parts.len() as i64).into()),
        ("indisunique", index.is_unique().into()),
        ("indnullsnotdistinct", index.nulls_not_distinct().into()),
        ("indisprimary", index.is_primary().into()),
        ("indisexclusion", false.into()),
        ("indimmediate", index.is_immediate().into()),
        ("indisclustered", false.into()),
        ("indisvalid", index.is_valid().into()),
        ("indcheckxmin", false.into()),
        ("indisready", true.into()),
        ("indislive", true.into()),
        ("indisreplident", false.into()),
        ("indkey", CatalogValue::Ints(keys.chain(included).collect())),
        ("indcollation", CatalogValue::Ints(collations.collect())),
        ("indclass", CatalogValue::Ints(classes.collect())),
        (
            "indoption",
            CatalogValue::Ints(parts.iter().map(Part::option).collect()),
        ),
    ]);
    if !expressions.is_empty() {
        rows.set([("indexprs", expressions.join(", ").into())]);
    }
    if let Some(predicate) = index.predicate() {
        rows.set([("indpred", text::expression(&predicate.sql, false).into())]);
    }
}

fn collation(sql_type: SqlType) -> i64 {
    let pg_type = types::by_oid(types::oid_of(sql_type).0.into());
    pg_type.map_or(0, |t| t.collation.into())
}

/// `pg_indexes`.
pub fn pg_indexes(system: &System, rows: &mut Rows) {
    for table in system.catalog.tables.values() {
        for index in of(table) {
            rows.add([
                ("schemaname", table.schema.as_str().into()),
                ("tablename", table.name.as_str().into()),
                ("indexname", index.name().into()),
                ("indexdef", text::index(table, index, false).into()),
            ]);
        }
    }
}

/// `pg_stat_user_indexes`, `pg_statio_user_indexes` and their kin: one row an index.
pub fn statistics(system: &System, rows: &mut Rows, counters: [&str; 2]) {
    let oids = system.oids();
    for table in system.catalog.tables.values() {
        for index in of(table) {
            rows.add([
                ("relid", oids.table(table).into()),
                ("indexrelid", oids.get(&index.object(table)).into()),
                ("schemaname", table.schema.as_str().into()),
                ("relname", table.name.as_str().into()),
                ("indexrelname", index.name().into()),
            ]);
            rows.set(counters.map(|counter| (counter, 0.into())));
        }
    }
}

/// `pg_stat_progress_create_index`: the builds that are under way. An index that its transaction
/// has not committed has no oid yet.
pub fn progress(system: &System, rows: &mut Rows) {
    for build in system.statement.transaction().db().index_builds() {
        let phase = match build.phase {
            BuildPhase::Filling => "building index: loading tuples in tree",
            BuildPhase::Checking => "building index: checking uniqueness",
        };
        let oid = |object: &Object| system.oids().get(object).into();
        rows.add([
            ("datid", DATABASE_OID.into()),
            ("datname", names::DATABASE.into()),
            ("relid", oid(&Object::Table(build.table))),
            ("index_relid", oid(&Object::Index(build.table, build.index))),
            ("command", "CREATE INDEX".into()),
            ("phase", phase.into()),
            ("tuples_total", (build.rows_total as i64).into()),
            ("tuples_done", (build.rows_done as i64).into()),
        ]);
    }
}

/// An operator class of a type: the oids of btree's and of hash's, its name, the type's oid, and
/// the oids of the operator families.
type OperatorClass = (i32, i32, &'static str, i32, i32, i32);

/// PostgreSQL's default operator classes of the types that columns have.
const OPERATOR_CLASSES: &[OperatorClass] = &[
    (10_005, 10_006, "bool_ops", 16, 424, 2222),
    (10_009, 10_010, "bytea_ops", 17, 428, 2223),
    (10_007, 10_008, "bpchar_ops", 1042, 426, 427),
    (3122, 10_018, "date_ops", 1082, 434, 435),
    (10_020, 10_021, "float4_ops", 700, 1970, 1971),
    (3123, 10_022, "float8_ops", 701, 1970, 1971),
    (1979, 10_026, "int2_ops", 21, 1976, 1977),
    (1978, 10_028, "int4_ops", 23, 1976, 1977),
    (3124, 10_030, "int8_ops", 20, 1976, 1977),
    (10_031, 10_032, "interval_ops", 1186, 1982, 1983),
    (3125, 10_038, "numeric_ops", 1700, 1988, 1998),
    (3126, 10_042, "text_ops", 25, 1994, 1995),
    (10_043, 10_044, "time_ops", 1083, 1996, 1997),
    (3127, 10_045, "timestamptz_ops", 1184, 434, 1999),
    (3128, 10_048, "timestamp_ops", 1114, 434, 2040),
    (10_060, 10_061, "uuid_ops", 2950, 2968, 2969),
];

/// The operator classes of GiST: oid, name, the type's oid, the family's, the oid of the type of
/// the entries if it is another one.
const GIST_CLASSES: &[(i32, &str, i32, i32, i32)] = &[
    (10_070, "box_ops", 603, 2593, 0),
    (10_071, "point_ops", 600, 1029, 603),
];

/// The operator classes of B-trees that are no type's own: oid, name, the type's oid, the family's.
const OTHER_CLASSES: &[(i32, &str, i32, i32)] = &[
    (4217, "text_pattern_ops", 25, 2095),
    (4218, "varchar_pattern_ops", 25, 2095),
    (4219, "bpchar_pattern_ops", 1042, 2097),
    (10_049, "varchar_ops", 25, 1994),
];

/// The oid of the operator class of a part of an index.
fn operator_class(method: i32, part: &Part<'_>) -> i64 {
    if let Some(name) = part.operator_class {
        let other = OTHER_CLASSES.iter().find(|class| class.1 == name);
        return other.map_or(0, |class| class.0.into());
    }
    let oid = match types::oid_of(part.sql_type).0 {
        // varchar has text's.
        1043 => 25,
        other => other,
    };
    if method == GIST {
        let found = GIST_CLASSES.iter().find(|class| class.2 == oid);
        return found.map_or(0, |class| class.0.into());
    }
    let found = OPERATOR_CLASSES.iter().find(|class| class.3 == oid);
    found.map_or(0, |(btree, hash, ..)| match method {
        HASH => (*hash).into(),
        _ => (*btree).into(),
    })
}

/// `pg_opclass`.
pub fn pg_opclass(rows: &mut Rows) {
    for &(btree, hash, name, input, btree_family, hash_family) in OPERATOR_CLASSES {
        add_class(rows, btree, BTREE, (name, input, btree_family));
        add_class(rows, hash, HASH, (name, input, hash_family));
    }
    for &(oid, name, input, family, key_type) in GIST_CLASSES {
        add_class(rows, oid, GIST, (name, input, family));
        rows.set([("opckeytype", key_type.into())]);
    }
    for &(oid, name, input, family) in OTHER_CLASSES {
        add_class(rows, oid, BTREE, (name, input, family));
        rows.set([("opcdefault", false.into())]);
    }
}

/// A default class of a method with its name, type and family.
fn add_class(rows: &mut Rows, oid: i32, method: i32, of: (&str, i32, i32)) {
    let (name, input, family) = of;
    rows.add([
        ("oid", oid.into()),
        ("opcmethod", method.into()),
        ("opcname", name.into()),
        ("opcnamespace", PG_CATALOG_OID.into()),
        ("opcowner", BOOTSTRAP_OID.into()),
        ("opcfamily", family.into()),
        ("opcintype", input.into()),
        ("opcdefault", true.into()),
        ("opckeytype", 0.into()),
    ]);
}

/// `pg_opfamily`: the families of the classes, by the names that PostgreSQL gives them.
pub fn pg_opfamily(rows: &mut Rows) {
    add_family(rows, 2095, BTREE, "text_pattern_ops");
    add_family(rows, 2097, BTREE, "bpchar_pattern_ops");
    for &(_, class, _, family, _) in GIST_CLASSES {
        add_family(rows, family, GIST, class);
    }
    let mut known = Vec::new();
    for &(_, _, class, _, btree, hash) in OPERATOR_CLASSES {
        for (oid, method) in [(btree, BTREE), (hash, HASH)] {
            if known.contains(&oid) {
                continue;
            }
            known.push(oid);
            let name = match oid {
                434 => "datetime_ops",
                1970 | 1971 => "float_ops",
                1976 | 1977 => "integer_ops",
                _ => class,
            };
            add_family(rows, oid, method, name);
        }
    }
}

fn add_family(rows: &mut Rows, oid: i32, method: i32, name: &str) {
    rows.add([
        ("oid", oid.into()),
        ("opfmethod", method.into()),
        ("opfname", name.into()),
        ("opfnamespace", PG_CATALOG_OID.into()),
        ("opfowner", BOOTSTRAP_OID.into()),
    ]);
}
