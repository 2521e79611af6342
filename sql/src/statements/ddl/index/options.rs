//! Storage parameters of an index: `storage`, `lid_block` and `lid_block_entries`, and those of
//! PostgreSQL, which are kept and shown without effect.

use crate::parse::index_statements::TABLESPACE;
use crate::parse::names;
use datafusion::sql::sqlparser::ast::{BinaryOperator, CreateIndex, Expr, SqlOption};
use std::collections::BTreeMap;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::index::{IndexDef, IndexStorage, LidBlockKind, LidBlocks};

/// The parameter of an index's storage.
const STORAGE: &str = "storage";

/// The parameter of the form of an index's LIDBlocks.
const LID_BLOCK: &str = "lid_block";

/// The parameter of the entries of a LIDBlock.
const LID_BLOCK_ENTRIES: &str = "lid_block_entries";

/// The word of `lid_block` for an index without blocks.
const NONE: &str = "none";

/// The parameters of the place of an index's entries.
#[derive(Default)]
pub struct Place {
    /// the word of `storage`; None: it is not given
    pub storage: Option<IndexStorage>,
    /// `storage` is memory by its own parameter
    asks_for_memory: bool,
    /// `storage` was set or reset
    was_given: bool,
    kind: Option<LidBlockKind>,
    entries: Option<u16>,
}

impl Place {
    /// That of an index.
    pub fn of(index: &IndexDef) -> Self {
        let blocks = index.storage.blocks();
        Self {
            storage: Some(match index.storage {
                IndexStorage::Blocks(_) => IndexStorage::Pages,
                other => other,
            }),
            asks_for_memory: index.stays_in_memory,
            was_given: false,
            kind: blocks.map(|blocks| blocks.kind),
            entries: blocks.map(|blocks| blocks.entries),
        }
    }

    /// Whether LIDBlocks are asked for.
    pub fn has_blocks(&self) -> bool {
        self.kind.is_some()
    }

    /// Whether the index is to stay in memory, if it is there: by its parameter, or by `default` if
    /// it has none.
    pub fn stays_in_memory(&self, default: Option<IndexStorage>) -> bool {
        let asks_by_default = self.storage.is_none() && default == Some(IndexStorage::Memory);
        self.kind.is_none() && (self.asks_for_memory || asks_by_default)
    }

    /// Whether `storage` has been set or reset.
    pub fn was_given(&self) -> bool {
        self.was_given
    }

    /// Sets a parameter, or resets it; false: it is none of these.
    ///
    /// # Errors
    /// 22023 for a value that it cannot have.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<bool> {
        match name {
            STORAGE => {
                self.storage = value.map(storage_named).transpose()?;
                self.was_given = true;
                self.asks_for_memory = self.storage == Some(IndexStorage::Memory);
            }
            LID_BLOCK => {
                self.kind = value.map_or(Ok(None), block_kind)?;
                // Without blocks the number of a block's entries says nothing.
                self.entries = self.entries.filter(|_| self.kind.is_some());
            }
            LID_BLOCK_ENTRIES => self.entries = value.map(block_entries).transpose()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The place of an index with these parameters. LIDBlocks mean pages; other indexes that name
    /// no storage have `default`, or else memory.
    ///
    /// # Errors
    /// 22023 for LIDBlocks of another storage, and for entries of blocks that there are not.
    pub fn resolve(&self, default: Option<IndexStorage>) -> Result<IndexStorage> {
        let Some(kind) = self.kind else {
            if self.entries.is_some() {
                let message = format!("an index without LIDBlocks has no {LID_BLOCK_ENTRIES}");
                let error = Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message);
                return Err(error.with_hint("Set lid_block to 'dense' or 'sparse', too."));
            }
            return Ok(self.storage.or(default).unwrap_or_default());
        };
        match self.storage {
            None | Some(IndexStorage::Pages) => Ok(IndexStorage::Blocks(LidBlocks {
                kind,
                entries: self.entries.unwrap_or(LidBlocks::ENTRIES),
            })),
            Some(other) => {
                let message = format!("an index with storage '{}' has no LIDBlocks", other.name());
                let error = Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message);
                Err(error
                    .with_hint("Set storage to 'pages' (USING btree), or lid_block to 'none'."))
            }
        }
    }
}

/// 0A000 for LIDBlocks of an R-tree.
pub fn no_blocks() -> Error {
    Error::unsupported("access method \"rtree\" does not support LIDBlocks")
        .with_hint("Leave out lid_block.")
}

fn block_kind(word: &str) -> Result<Option<LidBlockKind>> {
    if word.eq_ignore_ascii_case(NONE) {
        return Ok(None);
    }
    let mut all = LidBlockKind::ALL.into_iter();
    let found = all.find(|kind| kind.name().eq_ignore_ascii_case(word));
    found.map(Some).ok_or_else(|| {
        let message = format!("invalid value for {LID_BLOCK}: \"{word}\"");
        Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message)
            .with_hint("Valid values are 'dense', 'sparse' and 'none'.")
    })
}

fn block_entries(value: &str) -> Result<u16> {
    let invalid = |message| Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message);
    let number: i64 = value.parse().map_err(|_| {
        invalid(format!(
            "invalid value for integer option \"{LID_BLOCK_ENTRIES}\": {value}"
        ))
    })?;
    let entries = u16::try_from(number).ok();
    let entries = entries.filter(|entries| (1..=LidBlocks::ENTRIES_MAX).contains(entries));
    entries.ok_or_else(|| {
        let message = format!("value {value} out of bounds for option \"{LID_BLOCK_ENTRIES}\"");
        let max = LidBlocks::ENTRIES_MAX;
        invalid(message).with_detail(format!("Valid values are between \"1\" and \"{max}\"."))
    })
}

/// The parameters in WITH (…) of CREATE INDEX without those of the place, and the place.
pub fn of_create(create: &CreateIndex) -> Result<(BTreeMap<String, String>, Place)> {
    let (mut options, mut place) = (BTreeMap::new(), Place::default());
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
        let name = name.to_lowercase();
        if place.set(&name, Some(&value))? {
            continue;
        }
        let (name, value) = checked(&name, &value)?;
        options.insert(name, value);
    }
    Ok((options, place))
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
            .with_hint("Valid values are 'memory', 'pages' and 'levels'.")
    })
}

/// Changes the place of an index, and the parameters that are kept and shown, by SET (…) or
/// RESET (…) of ALTER INDEX; RESET gives no values.
///
/// # Errors
/// 22023 for unknown parameters and for values that they cannot have.
pub fn alter(
    written: &[SqlOption],
    place: &mut Place,
    kept: &mut BTreeMap<String, String>,
) -> Result<()> {
    for option in written {
        let (name, value) = match option {
            SqlOption::KeyValue { key, value } => (names::fold(key), Some(text_of(value))),
            SqlOption::Ident(name) => (names::fold(name), None),
            other => return Err(unrecognized(&other.to_string())),
        };
        if place.set(&name, value.as_deref())? {
            continue;
        }
        match value {
            Some(value) => {
                let (name, value) = checked(&name, &value)?;
                kept.insert(name, value);
            }
            None => drop(kept.remove(known(&name)?)),
        }
    }
    Ok(())
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
