//! Indexes as PostgreSQL shows them: those of PRIMARY KEY and UNIQUE constraints and those of
//! CREATE INDEX. `pg_index`, `pg_indexes`, the statistics views, and operator classes.

use super::cell::Cell;
use super::oid::{BOOTSTRAP_OID, DATABASE_OID, Object, PG_CATALOG_OID};
use super::relation::Rows;
use super::system::System;
use super::{text, types};
use crate::parse;
use crate::parse::{index_names, names};
use strandline_base::{ColumnId, SqlType};
use strandline_engine::BuildPhase;
use strandline_engine::catalog::index::{
    ConstraintTiming, IndexDef, IndexExpression, IndexMethod, IndexPart, IndexState, IndexValue,
};
use strandline_engine::catalog::{KeyDef, TableDef};

/// The access method `btree`.
pub const BTREE: i32 = 403;
/// The access method `hash`.
pub const HASH: i32 = 405;

/// An index of a table.
#[derive(Clone, Copy, Debug)]
pub enum Index<'a> {
    /// of a PRIMARY KEY or UNIQUE constraint
    Key(&'a KeyDef),
    /// of CREATE INDEX
    Secondary(&'a IndexDef),
}

/// One part of an index's key.
#[derive(Debug)]
pub struct Part<'a> {
    /// the column's position from 1; 0: an expression
    pub position: i64,
    /// the column's name
    pub column: Option<&'a str>,
    /// the expression
    pub expression: Option<&'a IndexExpression>,
    /// its type
    pub sql_type: SqlType,
    /// DESC
    pub descending: bool,
    /// NULLS FIRST
    pub nulls_first: bool,
}

impl Part<'_> {
    /// `pg_index.indoption`: 1 DESC, 2 NULLS FIRST.
    fn option(&self) -> i64 {
        i64::from(self.descending) | (i64::from(self.nulls_first) << 1)
    }
}

/// The indexes of a table: those of its keys first.
pub fn of(table: &TableDef) -> impl Iterator<Item = Index<'_>> {
    let keys = table.keys.iter().map(Index::Key);
    let secondary = table.indexes.iter().map(|index| Index::Secondary(index));
    keys.chain(secondary)
}

impl<'a> Index<'a> {
    /// Unique among the relations of its schema.
    pub fn name(self) -> &'a str {
        match self {
            Self::Key(key) => &key.name,
            Self::Secondary(index) => &index.name,
        }
    }
    /// What its oid is made of.
    pub fn object(self, table: &TableDef) -> Object {
        match self {
            Self::Key(key) => Object::KeyIndex(table.id, key.name.clone()),
            Self::Secondary(index) => Object::Index(table.id, index.id),
        }
    }
    /// UNIQUE or PRIMARY KEY.
    pub fn is_unique(self) -> bool {
        match self {
            Self::Key(_) => true,
            Self::Secondary(index) => index.unique,
        }
    }
    /// PRIMARY KEY.
    pub fn is_primary(self) -> bool {
        matches!(self, Self::Key(key) if key.primary)
    }
    /// NULLS NOT DISTINCT.
    pub fn nulls_not_distinct(self) -> bool {
        match self {
            Self::Key(key) => key.nulls_not_distinct,
            Self::Secondary(index) => index.nulls_not_distinct,
        }
    }
    /// Uniqueness is never deferred.
    pub fn is_immediate(self) -> bool {
        match self {
            Self::Key(key) => key.timing == ConstraintTiming::Immediate,
            Self::Secondary(_) => true,
        }
    }
    /// Readers may use it.
    pub fn is_valid(self) -> bool {
        match self {
            Self::Key(_) => true,
            Self::Secondary(index) => index.state == IndexState::Valid,
        }
    }
    /// The oid of its access method. The index of a key is shown as a btree.
    pub fn method(self) -> i32 {
        match self {
            Self::Secondary(index) if index.method == IndexMethod::Hash => HASH,
            _ => BTREE,
        }
    }
    /// COMMENT ON INDEX.
    pub fn comment(self) -> Option<&'a String> {
        match self {
            Self::Key(_) => None,
            Self::Secondary(index) => index.comment.as_ref(),
        }
    }
    /// WHERE.
    pub fn predicate(self) -> Option<&'a IndexExpression> {
        match self {
            Self::Key(_) => None,
            Self::Secondary(index) => index.predicate.as_ref(),
        }
    }
    /// WITH, as `pg_class.reloptions` has it.
    pub fn options(self) -> Vec<String> {
        let Self::Secondary(index) = self else {
            return Vec::new();
        };
        let options = index.options.iter();
        options
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }
    /// The positions of INCLUDE's columns from 1.
    pub fn included(self, table: &TableDef) -> Vec<i64> {
        match self {
            Self::Key(_) => Vec::new(),
            Self::Secondary(index) => positions(table, &index.include),
        }
    }
    /// The parts of its key.
    pub fn parts(self, table: &'a TableDef) -> Vec<Part<'a>> {
        match self {
            Self::Key(key) => {
                let columns = key.columns.iter();
                columns
                    .filter_map(|id| column_part(table, *id, false, false))
                    .collect()
            }
            Self::Secondary(index) => {
                let parts = index.parts.iter();
                parts.filter_map(|part| part_of(table, part)).collect()
            }
        }
    }
    /// The names of its columns as a relation: of the parts of its key, then of INCLUDE's.
    pub fn attributes(self, table: &'a TableDef) -> Vec<(String, SqlType)> {
        let parts = self.parts(table);
        let mut names: Vec<String> = Vec::new();
        let mut types = Vec::new();
        for part in &parts {
            let name = match (part.column, part.expression) {
                (Some(column), _) => column.to_string(),
                (None, Some(expression)) => expression_name(&expression.sql),
                (None, None) => continue,
            };
            names.push(index_names::distinct(&names, name));
            types.push(part.sql_type);
        }
        if let Self::Secondary(index) = self {
            for column in index
                .include
                .iter()
                .filter_map(|id| table.column_by_id(*id))
            {
                names.push(index_names::distinct(&names, column.name.clone()));
                types.push(column.sql_type);
            }
        }
        names.into_iter().zip(types).collect()
    }
}

/// The name that PostgreSQL gives an expression's column.
fn expression_name(sql: &str) -> String {
    match parse::expression(sql) {
        Ok(expression) => index_names::of_expression(&expression),
        Err(_) => index_names::EXPRESSION.to_string(),
    }
}

fn part_of<'a>(table: &'a TableDef, part: &'a IndexPart) -> Option<Part<'a>> {
    match &part.value {
        IndexValue::Column(id) => column_part(table, *id, part.descending, part.nulls_first),
        IndexValue::Expression(expression) => Some(Part {
            position: 0,
            column: None,
            expression: Some(expression),
            sql_type: expression.sql_type,
            descending: part.descending,
            nulls_first: part.nulls_first,
        }),
    }
}

fn column_part(
    table: &TableDef,
    id: ColumnId,
    descending: bool,
    nulls_first: bool,
) -> Option<Part<'_>> {
    let at = table.position(id)?;
    let column = table.columns.get(at)?;
    Some(Part {
        position: at as i64 + 1,
        column: Some(&column.name),
        expression: None,
        sql_type: column.sql_type,
        descending,
        nulls_first,
    })
}

/// The positions of columns in their table, from 1.
pub fn positions(table: &TableDef, columns: &[ColumnId]) -> Vec<i64> {
    let positions = columns.iter().filter_map(|id| table.position(*id));
    positions.map(|at| at as i64 + 1).collect()
}

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
        .map(|part| operator_class(index.method(), part.sql_type));
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
        ("indkey", Cell::Ints(keys.chain(included).collect())),
        ("indcollation", Cell::Ints(collations.collect())),
        ("indclass", Cell::Ints(classes.collect())),
        (
            "indoption",
            Cell::Ints(parts.iter().map(Part::option).collect()),
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
            BuildPhase::Waiting => "waiting for writers before build",
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

/// The oid of a type's operator class for an access method.
fn operator_class(method: i32, sql_type: SqlType) -> i64 {
    let oid = match types::oid_of(sql_type).0 {
        // varchar has text's.
        1043 => 25,
        other => other,
    };
    let found = OPERATOR_CLASSES.iter().find(|class| class.3 == oid);
    found.map_or(0, |(btree, hash, ..)| match method {
        HASH => (*hash).into(),
        _ => (*btree).into(),
    })
}

/// `pg_opclass`.
pub fn pg_opclass(rows: &mut Rows) {
    for (btree, hash, name, input, btree_family, hash_family) in OPERATOR_CLASSES {
        for (oid, method, family) in [(btree, BTREE, btree_family), (hash, HASH, hash_family)] {
            rows.add([
                ("oid", (*oid).into()),
                ("opcmethod", method.into()),
                ("opcname", (*name).into()),
                ("opcnamespace", PG_CATALOG_OID.into()),
                ("opcowner", BOOTSTRAP_OID.into()),
                ("opcfamily", (*family).into()),
                ("opcintype", (*input).into()),
                ("opcdefault", true.into()),
                ("opckeytype", 0.into()),
            ]);
        }
    }
}

/// `pg_opfamily`: the families of the classes, by the names that PostgreSQL gives them.
pub fn pg_opfamily(rows: &mut Rows) {
    let mut known = Vec::new();
    for (_, _, class, _, btree, hash) in OPERATOR_CLASSES {
        for (oid, method) in [(*btree, BTREE), (*hash, HASH)] {
            if known.contains(&oid) {
                continue;
            }
            known.push(oid);
            let name = match oid {
                434 => "datetime_ops",
                1970 | 1971 => "float_ops",
                1976 | 1977 => "integer_ops",
                _ => *class,
            };
            rows.add([
                ("oid", oid.into()),
                ("opfmethod", method.into()),
                ("opfname", name.into()),
                ("opfnamespace", PG_CATALOG_OID.into()),
                ("opfowner", BOOTSTRAP_OID.into()),
            ]);
        }
    }
}
