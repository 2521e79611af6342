//! Settings of PostgreSQL that clients make or ask for and that change nothing here: those whose
//! only value is the one that holds anyway, and those about parts that do not exist.

use super::settings::{invalid, unknown};
use std::collections::BTreeMap;
use strandline_base::{Error, Result, SqlState};

/// What `server_version` says: the PostgreSQL whose behaviour is the reference, and ours.
pub const SERVER_VERSION: &str = concat!("15.0 (Strandline ", env!("CARGO_PKG_VERSION"), ")");

/// What a setting may be set to.
enum Takes {
    /// it can only be shown
    Nothing,
    /// anything; it is kept for those who ask
    Anything,
    /// words that begin with one of these, in any case
    Only(&'static [&'static str]),
}

use Takes::{Anything, Nothing, Only};

const BOOLEANS: &[&str] = &[
    "on", "off", "true", "false", "yes", "no", "1", "0", "t", "f",
];

/// Name, value unless it is set, and what it may be set to.
const SETTINGS: &[(&str, &str, Takes)] = &[
    ("block_size", "8192", Nothing),
    ("bytea_output", "hex", Only(&["hex"])),
    ("check_function_bodies", "on", Only(BOOLEANS)),
    ("client_min_messages", "notice", Anything),
    ("datestyle", "ISO, MDY", Only(&["iso"])),
    ("default_table_access_method", "heap", Anything),
    ("default_tablespace", "", Anything),
    ("default_transaction_deferrable", "off", Only(BOOLEANS)),
    ("escape_string_warning", "on", Only(BOOLEANS)),
    ("extra_float_digits", "1", Only(&["0", "1", "2", "3"])),
    ("in_hot_standby", "off", Nothing),
    ("integer_datetimes", "on", Nothing),
    ("intervalstyle", "postgres", Only(&["postgres"])),
    ("is_superuser", "on", Nothing),
    ("jit", "off", Only(BOOLEANS)),
    ("lc_collate", "C", Nothing),
    ("lc_ctype", "C", Nothing),
    ("lc_messages", "C", Anything),
    ("maintenance_work_mem", "64MB", Anything),
    ("max_identifier_length", "63", Nothing),
    ("max_index_keys", "32", Nothing),
    ("row_security", "on", Only(BOOLEANS)),
    ("server_encoding", "UTF8", Nothing),
    ("server_version_num", "150000", Nothing),
    ("session_authorization", "strandline", Nothing),
    (
        "standard_conforming_strings",
        "on",
        Only(&["on", "true", "yes", "1"]),
    ),
    ("transaction_deferrable", "off", Nothing),
    ("work_mem", "4MB", Anything),
    ("xmloption", "content", Anything),
];

/// The settings with what they are, for SHOW ALL.
pub const NAMES: &[(&str, &str)] = &[
    ("bytea_output", "how bytea is shown; hex only"),
    (
        "client_min_messages",
        "kept for the client, changes nothing",
    ),
    ("datestyle", "how dates are shown; ISO only"),
    ("extra_float_digits", "kept for the client, changes nothing"),
    (
        "integer_datetimes",
        "whether times are integers in binary form",
    ),
    ("intervalstyle", "how intervals are shown; postgres only"),
    ("max_identifier_length", "bytes of a name"),
    ("server_encoding", "the encoding of stored text"),
    (
        "server_version_num",
        "the version of PostgreSQL that is the reference, as a number",
    ),
    (
        "standard_conforming_strings",
        "whether backslashes in '…' are plain characters",
    ),
];

fn find(name: &str) -> Option<&'static (&'static str, &'static str, Takes)> {
    SETTINGS.iter().find(|(known, ..)| *known == name)
}

/// The settings that can be set.
pub fn changeable() -> impl Iterator<Item = &'static str> {
    let settings = SETTINGS
        .iter()
        .filter(|(.., takes)| !matches!(takes, Nothing));
    settings.map(|(name, ..)| *name)
}

/// The value of `name`: as it was set, or as it is.
pub fn value_of(set: &BTreeMap<&'static str, String>, name: &str) -> Option<String> {
    let (name, value, _) = find(name)?;
    Some(set.get(name).map_or(*value, String::as_str).to_string())
}

/// Sets `name`; None: to its default.
pub fn change(
    set: &mut BTreeMap<&'static str, String>,
    name: &str,
    value: Option<&str>,
) -> Result<()> {
    let (known, default, takes) = find(name).ok_or_else(|| unknown(name))?;
    let Some(value) = value else {
        set.remove(known);
        return Ok(());
    };
    let word = value.trim().to_lowercase();
    match takes {
        Nothing if value == *default => Ok(()),
        Nothing => Err(Error::invalid(
            SqlState("55P02"),
            format!("parameter \"{name}\" cannot be changed"),
        )),
        Only(words) if !words.iter().any(|w| word.starts_with(w)) => {
            Err(invalid(name, value).with_hint(format!("Available values: {}.", words.join(", "))))
        }
        // There is one way to write a date, whatever the order of its fields on input is.
        Only(_) if *known == "datestyle" => Ok(()),
        Only(_) | Anything => {
            set.insert(known, value.to_string());
            Ok(())
        }
    }
}
