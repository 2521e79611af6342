//! SQL types and their PostgreSQL numbers (OIDs).

use crate::types::{PG_TYPE_KEY, sql_type_of};
use datafusion::arrow::datatypes::{DataType, Field};
use strandline_base::SqlType;

/// A column's type in RowDescription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnType {
    /// the type's number
    pub oid: u32,
    /// bytes of a value; negative if they vary
    pub size: i16,
    /// length, or precision and scale; -1 for none
    pub modifier: i32,
}

impl ColumnType {
    /// The type of a result's column.
    pub fn of(field: &Field) -> Self {
        if let Some(oid) = oid_of_system_type(field) {
            return Self::plain(oid);
        }
        if let Some(item) = item_of(field.data_type()) {
            return Self::plain(array_oid(Self::of(item).oid));
        }
        if let DataType::Struct(_) = field.data_type() {
            return Self::plain(RECORD);
        }
        sql_type_of(field).map_or(Self::plain(TEXT), Self::of_sql)
    }

    /// The type of values of an SQL type.
    pub fn of_sql(t: SqlType) -> Self {
        let modifier = match t {
            SqlType::Varchar(n) | SqlType::Char(n) => n as i32 + 4,
            SqlType::Numeric { precision, scale } if precision < 38 => {
                (i32::from(precision) << 16 | i32::from(scale)) + 4
            }
            _ => -1,
        };
        Self {
            modifier,
            ..Self::plain(oid_of(t))
        }
    }

    fn plain(oid: u32) -> Self {
        let size = match oid {
            16 | 18 => 1,
            21 => 2,
            23 | 26 | 28 | 700 | 1082 | 2205 | 2206 | 24 => 4,
            20 | 701 | 1083 | 1114 | 1184 => 8,
            600 | 1186 | 2950 => 16,
            603 => 32,
            19 => 64,
            _ => -1,
        };
        Self {
            oid,
            size,
            modifier: -1,
        }
    }
}

const TEXT: u32 = 25;
const RECORD: u32 = 2249;

/// The number of a type that exists only in PostgreSQL's system tables.
fn oid_of_system_type(field: &Field) -> Option<u32> {
    Some(match field.metadata().get(PG_TYPE_KEY)?.as_str() {
        "char" => 18,
        "name" => 19,
        "regproc" => 24,
        "oid" => 26,
        "xid" => 28,
        // Stored as numbers and shown as text.
        "regclass" | "regtype" | "regnamespace" | "regrole" | "int2vector" | "oidvector" => TEXT,
        _ => return None,
    })
}

/// The items of a list type.
pub(super) fn item_of(t: &DataType) -> Option<&Field> {
    match t {
        DataType::List(item) | DataType::LargeList(item) => Some(item),
        _ => None,
    }
}

fn oid_of(t: SqlType) -> u32 {
    match t {
        SqlType::Boolean => 16,
        SqlType::SmallInt => 21,
        SqlType::Integer => 23,
        SqlType::BigInt => 20,
        SqlType::Real => 700,
        SqlType::Double => 701,
        SqlType::Numeric { .. } => 1700,
        SqlType::Text => TEXT,
        SqlType::Varchar(_) => 1043,
        SqlType::Char(_) => 1042,
        SqlType::Json => 114,
        SqlType::Bytea => 17,
        SqlType::Date => 1082,
        SqlType::Time => 1083,
        SqlType::Timestamp => 1114,
        SqlType::TimestampTz => 1184,
        SqlType::Interval => 1186,
        SqlType::Uuid => 2950,
        SqlType::Point => 600,
        SqlType::Box => 603,
    }
}

/// The number of the array type of an item type; an array of arrays has the number of an array of
/// its items.
fn array_oid(item: u32) -> u32 {
    match item {
        16 => 1000,
        17 => 1001,
        18 => 1002,
        19 => 1003,
        21 => 1005,
        23 => 1007,
        1042 => 1014,
        1043 => 1015,
        20 => 1016,
        700 => 1021,
        701 => 1022,
        600 => 1017,
        603 => 1020,
        26 => 1028,
        1114 => 1115,
        1082 => 1182,
        1083 => 1183,
        1184 => 1185,
        1186 => 1187,
        1700 => 1231,
        2950 => 2951,
        114 => 199,
        RECORD => 2287,
        array @ (199 | 2287 | 1000..=1231 | 2951) => array,
        _ => 1009,
    }
}

/// The number of the array type of a parameter's item type.
pub fn array_oid_of(item: SqlType) -> u32 {
    array_oid(oid_of(item))
}

/// The item type of an array type that a client declares by number; None: not an array type, or one
/// that does not exist here.
pub fn item_type_of_oid(oid: u32) -> Option<SqlType> {
    const ITEMS: [u32; 20] = [
        16, 17, 18, 19, 20, 21, 23, 25, 26, 114, 700, 701, 1042, 1043, 1082, 1083, 1114, 1184,
        1186, 1700,
    ];
    let item = ITEMS.into_iter().chain([2950]);
    let item = item.into_iter().find(|item| array_oid(*item) == oid)?;
    sql_type_of_oid(item)
}

/// The SQL type of a parameter that a client declares by number. None for 0 (unknown) and for types
/// that do not exist here, whose values are read like quoted literals.
pub fn sql_type_of_oid(oid: u32) -> Option<SqlType> {
    Some(match oid {
        16 => SqlType::Boolean,
        21 => SqlType::SmallInt,
        23 => SqlType::Integer,
        20 | 26 => SqlType::BigInt,
        700 => SqlType::Real,
        701 => SqlType::Double,
        1700 => SqlType::Numeric {
            precision: 38,
            scale: 16,
        },
        18 | 19 | TEXT | 1042 | 1043 => SqlType::Text,
        114 => SqlType::Json,
        17 => SqlType::Bytea,
        1082 => SqlType::Date,
        1083 => SqlType::Time,
        1114 => SqlType::Timestamp,
        1184 => SqlType::TimestampTz,
        1186 => SqlType::Interval,
        2950 => SqlType::Uuid,
        600 => SqlType::Point,
        603 => SqlType::Box,
        _ => return None,
    })
}
