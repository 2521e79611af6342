//! Names of result types, for comparisons with PostgreSQL.

/// The name of a type by its number.
pub fn type_name(oid: u32) -> String {
    let plain = |oid| match oid {
        16 => "boolean",
        17 => "bytea",
        18 => "\"char\"",
        19 => "name",
        20 => "bigint",
        21 => "smallint",
        23 => "integer",
        24 => "regproc",
        25 => "text",
        26 => "oid",
        28 => "xid",
        29 => "cid",
        114 => "json",
        700 => "real",
        600 => "point",
        603 => "box",
        701 => "double precision",
        1042 => "character",
        1043 => "character varying",
        1082 => "date",
        1083 => "time without time zone",
        1114 => "timestamp without time zone",
        1184 => "timestamp with time zone",
        1186 => "interval",
        1700 => "numeric",
        2205 => "regclass",
        2206 => "regtype",
        2249 => "record",
        2950 => "uuid",
        _ => "?",
    };
    let item = match oid {
        199 => 114,
        1000 => 16,
        1001 => 17,
        1003 => 19,
        1005 => 21,
        1007 => 23,
        1009 => 25,
        1014 => 1042,
        1015 => 1043,
        1016 => 20,
        1021 => 700,
        1022 => 701,
        1028 => 26,
        1115 => 1114,
        1182 => 1082,
        1183 => 1083,
        1185 => 1184,
        1187 => 1186,
        1231 => 1700,
        2287 => 2249,
        2951 => 2950,
        _ => return plain(oid).to_string(),
    };
    format!("{}[]", plain(item))
}

/// The one name of types that are one here: varchar without length is text, `char(n)` has a name of
/// its own only in messages, and the types of the system tables are texts in results.
pub fn common_name(name: &str) -> String {
    let (item, dimensions) = match name.strip_suffix("[]") {
        Some(item) => (item, "[]"),
        None => (name, ""),
    };
    let item = match item {
        "bpchar" | "character" => "character",
        "character varying" | "name" | "unknown" | "regtype" | "regclass" | "regnamespace"
        | "regrole" | "regproc" | "regprocedure" | "void" => "text",
        other => other,
    };
    format!("{item}{dimensions}")
}
