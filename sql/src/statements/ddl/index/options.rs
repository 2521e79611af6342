//! Storage parameters of an index: `storage`, and those of PostgreSQL, which are kept and shown
//! without effect.

use crate::parse::index_statements::TABLESPACE;
use crate::parse::names;
use datafusion::sql::sqlparser::ast::{BinaryOperator, CreateIndex, Expr, SqlOption};
use std::collections::BTreeMap;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::index::IndexStorage;

/// The parameter of an index's storage.
const STORAGE: &str = "storage";

/// The parameters in WITH (…) of CREATE INDEX without the storage, and the storage; None: WITH does
/// not name one.
pub fn of_create(create: &CreateIndex) -> Result<(BTreeMap<String, String>, Option<IndexStorage>)> {
    let (mut options, mut storage) = (BTreeMap::new(), None);
    for option in &create.with {
        let (name, value) = match option {
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Eq,
                right,
            } => (left.to_string(), text_of(right)),
            other => (other.to_string(), "true".to_string()),
        };
        if name == TABLESPACE {
            if value != "pg_default" {
                let message = "tablespaces are not supported";
                return Err(
                    Error::unsupported(message).with_hint("All of a database is in its directory.")
                );
            }
            continue;
        }
        if name.to_lowercase() == STORAGE {
            storage = Some(storage_named(&value)?);
            continue;
        }
        let (name, value) = checked(&name.to_lowercase(), &value)?;
        options.insert(name, value);
    }
    Ok((options, storage))
}

/// The storage with a name.
///
/// # Errors
/// 22023 with the names that there are.
pub fn storage_named(name: &str) -> Result<IndexStorage> {
    let mut all = IndexStorage::ALL.into_iter();
    let found = all.find(|storage| storage.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let message = format!("invalid value for the storage of an index: \"{name}\"");
        Error::invalid(SqlState("22023"), message)
            .with_hint("Valid values are 'memory' and 'pages'.")
    })
}

/// A change of a parameter of an index.
pub enum Change {
    /// to another storage; None: to that of indexes that name none
    Storage(Option<IndexStorage>),
    /// of a parameter that is kept and shown; None: it goes
    Kept(String, Option<String>),
}

/// The parameters in SET (…) or RESET (…) of ALTER INDEX; RESET gives no values.
pub fn of_alter(options: &[SqlOption]) -> Result<Vec<Change>> {
    let changes = options.iter().map(|option| match option {
        SqlOption::KeyValue { key, value } => match names::fold(key).as_str() {
            STORAGE => Ok(Change::Storage(Some(storage_named(&text_of(value))?))),
            name => {
                let (name, value) = checked(name, &text_of(value))?;
                Ok(Change::Kept(name, Some(value)))
            }
        },
        SqlOption::Ident(name) => match names::fold(name).as_str() {
            STORAGE => Ok(Change::Storage(None)),
            name => Ok(Change::Kept(known(name)?.to_string(), None)),
        },
        other => Err(unrecognized(&other.to_string())),
    });
    changes.collect()
}

fn text_of(value: &Expr) -> String {
    let text = value.to_string();
    text.trim_matches('\'').to_string()
}

fn known(name: &str) -> Result<&str> {
    match name {
        "fillfactor" | "deduplicate_items" => Ok(name),
        other => Err(unrecognized(other)),
    }
}

fn unrecognized(name: &str) -> Error {
    Error::invalid(
        SqlState("22023"),
        format!("unrecognized parameter \"{name}\""),
    )
}

fn checked(name: &str, value: &str) -> Result<(String, String)> {
    let invalid = |message: String| Error::invalid(SqlState("22023"), message);
    match known(name)? {
        "fillfactor" => {
            let number: i64 = value.parse().map_err(|_| {
                invalid(format!(
                    "invalid value for integer option \"{name}\": {value}"
                ))
            })?;
            if !(10..=100).contains(&number) {
                let message = format!("value {value} out of bounds for option \"{name}\"");
                return Err(
                    invalid(message).with_detail("Valid values are between \"10\" and \"100\".")
                );
            }
        }
        _ => {
            let words = ["true", "false", "on", "off", "yes", "no", "1", "0"];
            if !words.contains(&value.to_lowercase().as_str()) {
                return Err(invalid(format!(
                    "invalid value for boolean option \"{name}\": {value}"
                )));
            }
        }
    }
    Ok((name.to_string(), value.to_string()))
}
