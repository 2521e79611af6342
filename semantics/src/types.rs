//! SQL types ↔ Arrow types inside plans.
//!
//! An Arrow type does not determine the SQL type: text, varchar(n), char(n) and json are all
//! `Utf8View`. Fields of stored columns and of casts therefore have the SQL type in their metadata
//! under [`SQL_TYPE_KEY`] (the catalog's JSON form of [`SqlType`]), see [`field`] and
//! [`sql_type_of`].

use super::error::{invalid, raise};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{
    CharacterLength, DataType as AstType, ExactNumberInfo, TimezoneInfo,
};
use std::sync::Arc;
use strandline_base::{Error, SqlState, SqlType};

mod common;

pub use common::compare_generality;
pub use strandline_column::types::{UTC, arrow_type};

/// The metadata key that holds a field's SQL type.
pub const SQL_TYPE_KEY: &str = "strandline.sql_type";
/// The metadata key for a field's PostgreSQL type, where neither the Arrow type nor the SQL type
/// determines it: `oid`, `name`, `regclass`, `int2vector`, ….
pub const PG_TYPE_KEY: &str = "strandline.pg_type";

/// A field of the SQL type, with metadata if the Arrow type does not determine it.
pub fn field(name: &str, sql_type: SqlType, nullable: bool) -> Field {
    let field = Field::new(name, arrow_type(sql_type), nullable);
    let told_by_arrow = sql_type_of_arrow(field.data_type()) == Some(sql_type);
    match serde_json::to_string(&sql_type) {
        Ok(json) if !told_by_arrow => field.with_metadata([(SQL_TYPE_KEY.into(), json)].into()),
        _ => field,
    }
}

/// The SQL type of a field: from its metadata if it has any, else from its Arrow type.
pub fn sql_type_of(field: &Field) -> Option<SqlType> {
    let stored = field.metadata().get(SQL_TYPE_KEY);
    stored
        .and_then(|json| serde_json::from_str(json).ok())
        .filter(|t| arrow_type(*t) == *field.data_type())
        .or_else(|| sql_type_of_arrow(field.data_type()))
}

/// The SQL type that stores values of an Arrow type without loss; `None` without one.
pub fn sql_type_of_arrow(data_type: &DataType) -> Option<SqlType> {
    Some(match data_type {
        DataType::Boolean => SqlType::Boolean,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => SqlType::SmallInt,
        DataType::UInt16 | DataType::Int32 => SqlType::Integer,
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => SqlType::BigInt,
        DataType::Float16 | DataType::Float32 => SqlType::Real,
        DataType::Float64 => SqlType::Double,
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
            SqlType::Numeric {
                precision: *p,
                scale: u8::try_from(*s).ok()?,
            }
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => SqlType::Text,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => SqlType::Bytea,
        DataType::FixedSizeBinary(16) => SqlType::Uuid,
        DataType::FixedSizeBinary(_) => SqlType::Bytea,
        DataType::Date32 | DataType::Date64 => SqlType::Date,
        DataType::Time32(_) | DataType::Time64(_) => SqlType::Time,
        DataType::Timestamp(_, None) => SqlType::Timestamp,
        DataType::Timestamp(_, Some(_)) => SqlType::TimestampTz,
        DataType::Interval(_) | DataType::Duration(_) => SqlType::Interval,
        DataType::FixedSizeList(..) if *data_type == arrow_type(SqlType::Point) => SqlType::Point,
        DataType::FixedSizeList(..) if *data_type == arrow_type(SqlType::Box) => SqlType::Box,
        DataType::Dictionary(_, values) => return sql_type_of_arrow(values),
        _ => return None,
    })
}

/// Whether the type is point or box.
pub fn is_geometric(data_type: &DataType) -> bool {
    matches!(
        sql_type_of_arrow(data_type),
        Some(SqlType::Point | SqlType::Box)
    )
}

/// Whether values of the type have real or double precision parts. Points and boxes, which are not
/// compared by them, do not count.
pub fn has_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::Float32 | DataType::Float64 => true,
        DataType::List(item) => has_floats(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_floats(field.data_type())),
        _ => false,
    }
}

/// The type's name in messages: PostgreSQL's, without typmods.
pub fn sql_name(data_type: &DataType) -> String {
    match (data_type, sql_type_of_arrow(data_type)) {
        (DataType::Null, _) => "unknown".into(),
        (DataType::List(item) | DataType::LargeList(item), _) => {
            format!("{}[]", sql_name(item.data_type()))
        }
        (DataType::Struct(_), _) => "record".into(),
        (_, Some(SqlType::Numeric { .. })) => "numeric".into(),
        (_, Some(sql_type)) => sql_type.to_string(),
        (other, None) => other.to_string(),
    }
}

/// A type in SQL syntax. `Ok(None)` for `numeric` without precision, whose shape depends on its
/// operand; 0A000 or 42704 for types that do not exist here. The types of moments have no precision
/// and no fields here: casts to them take these away before ([`crate::sql`]).
pub fn from_ast(ast: &AstType) -> strandline_base::Result<Option<SqlType>> {
    Ok(Some(match ast {
        AstType::Boolean | AstType::Bool => SqlType::Boolean,
        AstType::SmallInt(None) | AstType::Int2(None) => SqlType::SmallInt,
        AstType::Int(None) | AstType::Integer(None) | AstType::Int4(None) => SqlType::Integer,
        AstType::BigInt(None) | AstType::Int8(None) => SqlType::BigInt,
        AstType::SmallInt(_)
        | AstType::Int2(_)
        | AstType::Int(_)
        | AstType::Integer(_)
        | AstType::Int4(_)
        | AstType::BigInt(_)
        | AstType::Int8(_) => return Err(no_modifier(&ast.to_string())),
        AstType::Real | AstType::Float4 => SqlType::Real,
        AstType::Float(info) => float(info)?,
        AstType::Float8 | AstType::DoublePrecision | AstType::Double(ExactNumberInfo::None) => {
            SqlType::Double
        }
        AstType::Numeric(info) | AstType::Decimal(info) | AstType::Dec(info) => {
            return numeric(info);
        }
        AstType::Text => SqlType::Text,
        AstType::Varchar(length)
        | AstType::CharacterVarying(length)
        | AstType::CharVarying(length) => match characters(length)? {
            Some(n) => SqlType::Varchar(n),
            None => SqlType::Text,
        },
        AstType::Char(length) | AstType::Character(length) => {
            SqlType::Char(characters(length)?.unwrap_or(1))
        }
        AstType::Bytea => SqlType::Bytea,
        AstType::Date => SqlType::Date,
        AstType::Time(None | Some(6), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            SqlType::Time
        }
        AstType::Timestamp(None | Some(6), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            SqlType::Timestamp
        }
        AstType::Timestamp(None | Some(6), _) => SqlType::TimestampTz,
        AstType::Interval {
            fields: None,
            precision: None | Some(6),
        } => SqlType::Interval,
        AstType::Uuid => SqlType::Uuid,
        AstType::JSON => SqlType::Json,
        AstType::GeometricType(kind) => custom(&kind.to_string(), &[])?,
        AstType::Custom(name, modifiers) => custom(&name.to_string(), modifiers)?,
        other => return Err(Error::unsupported(format!("type {other} is not supported"))),
    }))
}

/// PostgreSQL's types that do not exist here and that the parser does not know.
const REFUSED: [&str; 52] = [
    "bpchar",
    "cid",
    "cidr",
    "circle",
    "inet",
    "line",
    "lseg",
    "macaddr",
    "macaddr8",
    "money",
    "path",
    "pg_lsn",
    "pg_snapshot",
    "polygon",
    "timetz",
    "tsquery",
    "tsvector",
    "txid_snapshot",
    "xml",
    "jsonpath",
    "int4range",
    "int8range",
    "numrange",
    "tsrange",
    "tstzrange",
    "daterange",
    "int4multirange",
    "int8multirange",
    "nummultirange",
    "tsmultirange",
    "tstzmultirange",
    "datemultirange",
    "xid8",
    "tid",
    "refcursor",
    "int2vector",
    "oidvector",
    "regoper",
    "regoperator",
    "regcollation",
    "regconfig",
    "regdictionary",
    "record",
    "void",
    "unknown",
    "anyelement",
    "anyarray",
    "any",
    "trigger",
    "internal",
    "varbit",
    "bit",
];

fn custom(name: &str, modifiers: &[String]) -> strandline_base::Result<SqlType> {
    match (
        name.to_ascii_lowercase().trim_start_matches("pg_catalog."),
        modifiers,
    ) {
        ("smallserial" | "serial2", []) => Ok(SqlType::SmallInt),
        ("serial" | "serial4", []) => Ok(SqlType::Integer),
        ("bigserial" | "serial8", []) => Ok(SqlType::BigInt),
        ("name" | "\"char\"" | "cstring" | "pg_node_tree" | "aclitem", []) => Ok(SqlType::Text),
        ("oid" | "xid", []) => Ok(SqlType::Integer),
        ("point", []) => Ok(SqlType::Point),
        ("box", []) => Ok(SqlType::Box),
        ("text" | "name" | "oid" | "xid" | "cstring" | "\"char\"" | "point" | "box", [_, ..]) => {
            Err(no_modifier(name))
        }
        (known, _) if REFUSED.contains(&known) => {
            Err(Error::unsupported(format!("type {known} is not supported")))
        }
        (unknown, _) => Err(Error::invalid(
            SqlState::UNDEFINED_OBJECT,
            format!("type \"{unknown}\" does not exist"),
        )),
    }
}

/// 42601: `int(3)`.
fn no_modifier(name: &str) -> Error {
    let name = name.split('(').next().unwrap_or(name).to_ascii_lowercase();
    Error::invalid(
        SqlState::SYNTAX_ERROR,
        format!("type modifier is not allowed for type \"{name}\""),
    )
}

fn float(info: &ExactNumberInfo) -> strandline_base::Result<SqlType> {
    match info {
        ExactNumberInfo::None => Ok(SqlType::Double),
        ExactNumberInfo::Precision(1..=24) => Ok(SqlType::Real),
        ExactNumberInfo::Precision(25..=53) => Ok(SqlType::Double),
        other => Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("precision for type float must be between 1 and 53 bits, not {other}"),
        )),
    }
}

fn numeric(info: &ExactNumberInfo) -> strandline_base::Result<Option<SqlType>> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => return Ok(None),
        ExactNumberInfo::Precision(p) => (p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => (p, s),
    };
    if !(1..=u64::from(super::decimal::MAX_DIGITS)).contains(&precision) {
        return Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("NUMERIC precision {precision} must be between 1 and 38"),
        ));
    }
    if !(0..=precision as i64).contains(&scale) {
        return Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("NUMERIC scale {scale} must be between 0 and precision {precision}"),
        ));
    }
    Ok(Some(SqlType::Numeric {
        precision: precision as u8,
        scale: scale as u8,
    }))
}

fn characters(length: &Option<CharacterLength>) -> strandline_base::Result<Option<u32>> {
    match length {
        None => Ok(None),
        Some(CharacterLength::IntegerLength { length, unit: None }) => {
            match u32::try_from(*length) {
                Ok(n) if (1..=10_485_760).contains(&n) => Ok(Some(n)),
                _ => Err(Error::invalid(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("length for type varchar must be between 1 and 10485760, not {length}"),
                )),
            }
        }
        Some(other) => Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            format!("a length is a number of characters, not {other}"),
        )),
    }
}

/// Plans type names in casts and typed literals. The planned field carries the SQL type.
#[derive(Debug)]
pub struct SqlTypePlanner;

impl TypePlanner for SqlTypePlanner {
    fn plan_type_field(&self, ast: &AstType) -> Result<Option<FieldRef>> {
        if let AstType::Array(_) = ast {
            return Ok(None);
        }
        match from_ast(ast) {
            Ok(Some(sql_type)) => Ok(Some(Arc::new(field("", sql_type, true)))),
            // The analyzer replaces this shape by the operand's shape.
            Ok(None) => Ok(Some(Arc::new(unconstrained_numeric()))),
            Err(error) => Err(raise(error)),
        }
    }
}

/// Marks a cast to `numeric` without precision and scale.
const UNCONSTRAINED: &str = "unconstrained";

/// The field of a cast to `numeric` without precision and scale.
pub fn unconstrained_numeric() -> Field {
    Field::new("", DataType::Decimal128(38, 16), true)
        .with_metadata([(SQL_TYPE_KEY.into(), UNCONSTRAINED.into())].into())
}

/// Whether a cast's field is `numeric` without precision and scale.
pub fn is_unconstrained_numeric(field: &Field) -> bool {
    field
        .metadata()
        .get(SQL_TYPE_KEY)
        .is_some_and(|v| v == UNCONSTRAINED)
}

/// 0A000 for an Arrow type that no SQL type stores, for example a list.
pub fn storable(name: &str, data_type: &DataType) -> Result<SqlType> {
    sql_type_of_arrow(data_type).ok_or_else(|| {
        invalid(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!(
                "column \"{name}\" has type {}, which no table can store",
                sql_name(data_type)
            ),
        )
    })
}
