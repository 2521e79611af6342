//! The common type of two columns that are merged \[PostgreSQL, "UNION, CASE, and Related
//! Constructs"\].

use std::cmp::Ordering;
use strandline_base::SqlType;

/// Compares two types by generality. The more general one can hold the values of both: `Less` means
/// the right one, `Greater` the left one, `Equal` either. Lengths and digits are ignored. None: no
/// common type.
pub fn compare_generality(left: SqlType, right: SqlType) -> Option<Ordering> {
    let (left, right) = (family(left), family(right));
    (left.0 == right.0).then(|| left.1.cmp(&right.1))
}

/// The number of a type's family, and its rank within the family.
fn family(sql_type: SqlType) -> (u8, u8) {
    match sql_type {
        SqlType::SmallInt => (0, 0),
        SqlType::Integer => (0, 1),
        SqlType::BigInt => (0, 2),
        SqlType::Numeric { .. } => (0, 3),
        SqlType::Real => (0, 4),
        SqlType::Double => (0, 5),
        SqlType::Char(_) | SqlType::Varchar(_) => (1, 0),
        SqlType::Text => (1, 1),
        SqlType::Date => (2, 0),
        SqlType::Timestamp => (2, 1),
        SqlType::TimestampTz => (2, 2),
        SqlType::Boolean => (3, 0),
        SqlType::Bytea => (4, 0),
        SqlType::Time => (5, 0),
        SqlType::Interval => (6, 0),
        SqlType::Uuid => (7, 0),
        SqlType::Json => (8, 0),
        SqlType::Point => (9, 0),
        SqlType::Box => (10, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_general_type_is_common() {
        let numeric = |precision, scale| SqlType::Numeric { precision, scale };
        for (left, right, wanted) in [
            (SqlType::Integer, SqlType::BigInt, Some(Ordering::Less)),
            (SqlType::BigInt, SqlType::SmallInt, Some(Ordering::Greater)),
            (numeric(5, 2), SqlType::BigInt, Some(Ordering::Greater)),
            (numeric(5, 2), numeric(9, 4), Some(Ordering::Equal)),
            (numeric(5, 2), SqlType::Real, Some(Ordering::Less)),
            (SqlType::Char(3), SqlType::Text, Some(Ordering::Less)),
            (SqlType::Char(3), SqlType::Varchar(5), Some(Ordering::Equal)),
            (SqlType::TimestampTz, SqlType::Date, Some(Ordering::Greater)),
            (SqlType::Integer, SqlType::Text, None),
        ] {
            assert_eq!(compare_generality(left, right), wanted, "{left} {right}");
        }
    }
}
