//! Declared SQL types → [`SqlType`].

use datafusion::sql::sqlparser::ast::DataType;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_semantics::types;

/// `numeric` without precision and scale.
const DEFAULT_NUMERIC: SqlType = SqlType::Numeric {
    precision: 38,
    scale: 10,
};
/// The serial types: an integer column with an identity.
pub fn serial(data_type: &DataType) -> Option<SqlType> {
    let DataType::Custom(name, arguments) = data_type else {
        return None;
    };
    if !arguments.is_empty() {
        return None;
    }
    match name.to_string().to_ascii_lowercase().as_str() {
        "serial" | "serial4" => Some(SqlType::Integer),
        "bigserial" | "serial8" => Some(SqlType::BigInt),
        "smallserial" | "serial2" => Some(SqlType::SmallInt),
        _ => None,
    }
}

/// The SQL type of a column declared as `data_type`. Stricter than a cast: a declaration that a
/// column could not keep is refused.
pub fn sql_type(data_type: &DataType) -> Result<SqlType> {
    if serial(data_type).is_some() {
        return Err(Error::invalid(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("type {data_type} cannot be given to a column later"),
        ));
    }
    let keeps = match data_type {
        DataType::Time(precision, _) | DataType::Timestamp(precision, _) => {
            precision.is_none_or(|p| p == 6)
        }
        DataType::Interval { fields, precision } => {
            fields.is_none() && precision.is_none_or(|p| p == 6)
        }
        _ => true,
    };
    if !keeps {
        return Err(
            Error::unsupported(format!("type {data_type} is not supported"))
                .with_hint("Times keep microseconds; leave precision and fields out."),
        );
    }
    if let DataType::Custom(name, _) = data_type {
        return match types::from_ast(data_type)? {
            Some(sql_type @ (SqlType::Point | SqlType::Box)) => Ok(sql_type),
            // Casts accept these types for the system tables.
            _ => Err(
                Error::unsupported(format!("a column of type {name} is not supported"))
                    .with_hint("Use text, or integer or bigint for a number."),
            ),
        };
    }
    match types::from_ast(data_type) {
        Ok(Some(sql_type)) => Ok(sql_type),
        Ok(None) => Ok(DEFAULT_NUMERIC),
        Err(error) => Err(advise(error, data_type)),
    }
}

fn advise(error: Error, data_type: &DataType) -> Error {
    match data_type {
        DataType::JSONB => error.with_hint("Use json: it is kept as text."),
        DataType::Array(_) => error.with_hint("Keep the elements in a table of their own."),
        DataType::TinyInt(_) => error.with_hint("Use smallint."),
        DataType::Blob(_) | DataType::Binary(_) | DataType::Varbinary(_) => {
            error.with_hint("Use bytea.")
        }
        DataType::Datetime(_) => error.with_hint("Use timestamp."),
        _ => error,
    }
}
