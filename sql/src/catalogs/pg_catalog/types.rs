//! PostgreSQL's types: their oids, which of them are ours, and `pg_type`.

use super::oid::{BOOTSTRAP_OID, PG_CATALOG_OID};
use super::relation::Rows;
use std::sync::LazyLock;
use strandline_base::SqlType;

/// A row of PostgreSQL's `pg_type`.
#[derive(Debug)]
pub struct PgType {
    /// PostgreSQL's
    pub oid: i32,
    /// the catalog's name, such as `int4` or `_text`
    pub name: &'static str,
    /// the type of the items of an array type; 0: it is none
    pub element: i32,
    /// the type of arrays of it; 0: there are none
    pub array: i32,
    /// the collation of its values; 0: they have none
    pub collation: i32,
    /// bytes; -1: they vary
    pub length: i32,
    /// whether values are passed by value
    pub by_value: bool,
    /// `c`, `s`, `i` or `d`
    pub align: &'static str,
    /// `p`, `x` or `m`
    pub storage: &'static str,
    words: Vec<&'static str>,
}

/// All types, by oid.
pub static TYPES: LazyLock<Vec<PgType>> = LazyLock::new(|| {
    let lines = include_str!("types.txt").lines();
    lines.filter_map(PgType::parse).collect()
});

impl PgType {
    fn parse(line: &'static str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize| words.get(i)?.parse::<i32>().ok();
        Some(Self {
            oid: number(0)?,
            name: words[1],
            length: number(2)?,
            by_value: words[3] == "t",
            element: number(8)?,
            array: number(9)?,
            align: words.get(14)?,
            storage: words[15],
            collation: number(16)?,
            words,
        })
    }
}

/// The type with `oid`.
pub fn by_oid(oid: i64) -> Option<&'static PgType> {
    let at = TYPES.binary_search_by_key(&oid, |t| t.oid.into()).ok()?;
    TYPES.get(at)
}

/// The type with the catalog's or SQL's `name`.
pub fn by_name(name: &str) -> Option<&'static PgType> {
    let name = name.trim().trim_start_matches("pg_catalog.");
    if let Some(item) = name.strip_suffix("[]") {
        return by_oid(by_name(item)?.array.into());
    }
    let bare = name.split('(').next().unwrap_or(name).trim().to_lowercase();
    let spelled = SPELLINGS.iter().find(|(_, sql)| *sql == bare);
    let name = match bare.as_str() {
        "\"char\"" => "char",
        "decimal" | "dec" => "numeric",
        "int" => "int4",
        "float" => "float8",
        "char" => "bpchar",
        other => spelled.map_or(other, |(name, _)| name),
    };
    TYPES.iter().find(|t| t.name == name)
}

/// Types that SQL calls otherwise than the catalog.
const SPELLINGS: &[(&str, &str)] = &[
    ("bool", "boolean"),
    ("int2", "smallint"),
    ("int4", "integer"),
    ("int8", "bigint"),
    ("float4", "real"),
    ("float8", "double precision"),
    ("varchar", "character varying"),
    ("bpchar", "character"),
    ("varbit", "bit varying"),
    ("time", "time without time zone"),
    ("timetz", "time with time zone"),
    ("timestamp", "timestamp without time zone"),
    ("timestamptz", "timestamp with time zone"),
];

/// `format_type`: SQL's name of a type with its typmod; None: without.
pub fn format_type(oid: i64, typmod: Option<i64>) -> String {
    let Some(found) = by_oid(oid) else {
        return if oid == 0 { "-" } else { "???" }.to_string();
    };
    let vector = matches!(found.name, "int2vector" | "oidvector");
    if found.element != 0 && found.length == -1 && found.name.starts_with('_') && !vector {
        return format!("{}[]", format_type(found.element.into(), typmod));
    }
    let spelled = SPELLINGS.iter().find(|(name, _)| *name == found.name);
    let name = match (found.name, typmod) {
        ("char", _) => "\"char\"",
        ("bpchar", Some(-1)) => "bpchar",
        (other, _) => spelled.map_or(other, |(_, sql)| sql),
    };
    let typmod = typmod.filter(|t| *t >= 0);
    let with_length = |length: String| match name.split_once(" with") {
        Some((head, tail)) => format!("{head}({length}) with{tail}"),
        None => format!("{name}({length})"),
    };
    match (found.name, typmod) {
        ("varchar" | "bpchar", Some(t)) => with_length((t - 4).to_string()),
        ("numeric", Some(t)) => {
            let t = t - 4;
            with_length(format!("{},{}", t >> 16, t & 0xffff))
        }
        ("time" | "timetz" | "timestamp" | "timestamptz" | "bit" | "varbit", Some(t)) => {
            with_length(t.to_string())
        }
        _ => name.to_string(),
    }
}

/// The catalog's name of one of our types.
pub fn type_name(sql_type: SqlType) -> &'static str {
    by_oid(oid_of(sql_type).0.into()).map_or("text", |t| t.name)
}

/// The oid and the typmod of one of our types.
pub fn oid_of(sql_type: SqlType) -> (i32, i64) {
    match sql_type {
        SqlType::Boolean => (16, -1),
        SqlType::Bytea => (17, -1),
        SqlType::BigInt => (20, -1),
        SqlType::SmallInt => (21, -1),
        SqlType::Integer => (23, -1),
        SqlType::Text => (25, -1),
        SqlType::Json => (114, -1),
        SqlType::Real => (700, -1),
        SqlType::Double => (701, -1),
        SqlType::Char(n) => (1042, i64::from(n) + 4),
        SqlType::Varchar(n) => (1043, i64::from(n) + 4),
        SqlType::Date => (1082, -1),
        SqlType::Time => (1083, -1),
        SqlType::Timestamp => (1114, -1),
        SqlType::TimestampTz => (1184, -1),
        SqlType::Interval => (1186, -1),
        SqlType::Numeric { precision, scale } => {
            (1700, (i64::from(precision) << 16 | i64::from(scale)) + 4)
        }
        SqlType::Uuid => (2950, -1),
        SqlType::Point => (600, -1),
        SqlType::Box => (603, -1),
    }
}

/// `pg_type`.
pub fn pg_type(rows: &mut Rows) {
    for t in TYPES.iter() {
        let word = |i: usize| t.words.get(i).copied().unwrap_or_default().into();
        rows.add([
            ("oid", t.oid.into()),
            ("typname", t.name.into()),
            ("typnamespace", PG_CATALOG_OID.into()),
            ("typowner", BOOTSTRAP_OID.into()),
            ("typlen", t.length.into()),
            ("typbyval", t.by_value.into()),
            ("typtype", word(4)),
            ("typcategory", word(5)),
            ("typispreferred", (t.words[6] == "t").into()),
            ("typisdefined", true.into()),
            ("typdelim", word(7)),
            ("typrelid", 0.into()),
            ("typelem", t.element.into()),
            ("typarray", t.array.into()),
            ("typinput", word(10)),
            ("typoutput", word(11)),
            ("typreceive", word(12)),
            ("typsend", word(13)),
        ]);
        let subscript = match t.element != 0 && t.length == -1 {
            true => "array_subscript_handler",
            false => "-",
        };
        rows.set([
            ("typsubscript", subscript.into()),
            ("typmodin", "-".into()),
            ("typmodout", "-".into()),
            ("typanalyze", "-".into()),
            ("typalign", t.align.into()),
            ("typstorage", t.storage.into()),
            ("typnotnull", false.into()),
            ("typbasetype", 0.into()),
            ("typtypmod", (-1).into()),
            ("typndims", 0.into()),
            ("typcollation", t.collation.into()),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_as_postgresql_does() {
        assert_eq!(format_type(1043, Some(84)), "character varying(80)");
        assert_eq!(format_type(1700, Some(786_438)), "numeric(12,2)");
        assert_eq!(format_type(1007, Some(-1)), "integer[]");
        assert_eq!(format_type(1184, None), "timestamp with time zone");
        assert_eq!(format_type(1184, Some(3)), "timestamp(3) with time zone");
        assert_eq!(format_type(18, None), "\"char\"");
        assert_eq!(
            (format_type(0, None), format_type(1, None)),
            ("-".into(), "???".into())
        );
    }

    #[test]
    fn types_are_found_by_either_name() {
        for name in ["int4", "integer", "pg_catalog.int4", "INT"] {
            assert_eq!(by_name(name).map(|t| t.oid), Some(23), "{name}");
        }
        assert_eq!(by_name("text[]").map(|t| t.oid), Some(1009));
        assert_eq!(by_name("varchar(10)").map(|t| t.oid), Some(1043));
        assert!(by_name("nonsense").is_none());
    }
}
