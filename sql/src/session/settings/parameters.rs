//! The table of parameters: `SHOW ALL` lists them, SET changes them, a configuration file may set
//! them.
//!
//! Some of PostgreSQL's parameters have one supported value here ([`Access::Only`]). Other values
//! are refused, so that no client relies on a missing feature. Parameters about missing features
//! (`row_security`, `check_function_bodies`) are kept and shown without effect.

use super::values::{
    BLOCK_CACHE_RULES, CACHE_MODES, INDEX_STORAGES, KEY_INDEXES, POLICIES, SSD_CACHE_RULES,
    block_cache_rule, boolean, bytes, cache_mode, count, index_storage, integer, key_index, limit,
    on_off, only, policy, policy_name, records, require_iso, require_utc, require_utf8, schema_of,
    shortest_floats, shown_limit, shown_threshold, size, ssd_cache_rule, synchronous, text,
    threshold, unsupported, word,
};
use super::{OpenSettings, Settings};
use crate::session::Session;
use crate::session::modes::{isolation_name, isolation_of};
use strandline_base::Result;
use strandline_engine::catalog::KeyIndex;
use strandline_engine::catalog::index::IndexStorage;
use strandline_engine::{
    BlockCacheAdmission, CacheSettings, ConflictPolicy, Isolation, SsdCacheAdmission,
};
use strandline_object::Place;

/// The server version that PostgreSQL clients receive: the PostgreSQL version that they may rely
/// on, then our own.
pub const SERVER_VERSION: &str = concat!("15.0 (Strandline ", env!("CARGO_PKG_VERSION"), ")");
/// [`SERVER_VERSION`] as PostgreSQL's number.
pub const SERVER_VERSION_NUM: &str = "150000";

/// A parameter.
#[derive(Debug)]
pub struct Parameter {
    /// the name in `SHOW ALL`; names are case-insensitive
    pub name: &'static str,
    /// its purpose, in one line
    pub description: &'static str,
    /// the kind of its values
    pub kind: Kind,
    pub(super) access: Access,
}

/// The kind of a parameter's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// on or off
    Bool,
    /// a whole number
    Integer,
    /// a time, in milliseconds if no unit is given
    Time,
    /// a size, in bytes if no unit is given
    Bytes,
    /// any text
    Text,
    /// one of these words
    Word(&'static [&'static str]),
}

impl Parameter {
    /// Whether SET changes it, or would if it had another value.
    pub(super) fn is_of_session(&self) -> bool {
        !matches!(
            self.access,
            Access::Open { .. } | Access::Cache { .. } | Access::Internal(_)
        )
    }
}

type Show<T> = fn(&T) -> String;
type Assign<T> = fn(&mut T, &'static str, &str) -> Result<()>;

/// Where a parameter's value is kept, and which statement may change it.
#[derive(Debug)]
pub(super) enum Access {
    /// a connection's setting, changed by SET
    Session {
        show: Show<Settings>,
        assign: Assign<Settings>,
        reset: fn(&mut Settings, &Settings),
    },
    /// SET accepts only the present value
    Only {
        shown: &'static str,
        check: fn(&'static str, &str) -> Result<()>,
    },
    /// kept for the client, without effect
    Kept {
        default: &'static str,
        normal: fn(&'static str, &str) -> Result<String>,
    },
    /// fixed when the database is opened
    Open {
        show: Show<OpenSettings>,
        assign: Assign<OpenSettings>,
    },
    /// a setting of the caches: set when the database is opened, and changed for all connections by
    /// `CALL strandline_set`
    Cache {
        show: Show<CacheSettings>,
        assign: Assign<CacheSettings>,
    },
    /// computed from the program and the session
    Internal(Show<Session>),
}

/// A parameter whose value is a field of the session's settings.
macro_rules! field {
    ($($field:ident).+, $parse:expr, $show:expr) => {
        Access::Session {
            show: |settings| $show(&settings.$($field).+),
            assign: |settings, name, value| {
                settings.$($field).+ = $parse(name, value)?;
                Ok(())
            },
            reset: |settings, defaults| settings.$($field).+ = defaults.$($field).+.clone(),
        }
    };
}

/// A parameter whose value is a field of the open settings.
macro_rules! open {
    ($($field:ident).+, $read:expr) => {
        Access::Open {
            show: |open| open.$($field).+.to_string(),
            assign: |open, name, value| {
                open.$($field).+ = $read(name, value)?;
                Ok(())
            },
        }
    };
}

/// A parameter whose value is a field of the caches' settings.
macro_rules! cache {
    ($field:ident, $read:expr, $show:expr) => {
        Access::Cache {
            show: |caches| $show(caches.$field),
            assign: |caches, name, value| {
                caches.$field = $read(name, value)?;
                Ok(())
            },
        }
    };
}

const fn parameter(
    name: &'static str,
    kind: Kind,
    access: Access,
    description: &'static str,
) -> Parameter {
    Parameter {
        name,
        description,
        kind,
        access,
    }
}

const LEVELS: &[&str] = &[
    "debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error",
];
const ISOLATIONS: &[&str] = &[
    "serializable",
    "repeatable read",
    "read committed",
    "read uncommitted",
];
/// All parameters, by name.
pub static PARAMETERS: &[Parameter] = &[
    parameter(
        "application_name",
        Kind::Text,
        field!(application_name, |_, v: &str| text(v), |v: &String| v
            .clone()),
        "the client's name",
    ),
    parameter(
        "block_cache_admission",
        Kind::Word(BLOCK_CACHE_RULES),
        cache!(
            block_cache_admission,
            block_cache_rule,
            |rule: BlockCacheAdmission| rule.name().to_string()
        ),
        "when the block cache takes a block: at its first_read or at its second_read",
    ),
    parameter(
        "block_cache_bytes",
        Kind::Bytes,
        cache!(block_cache_bytes, bytes, |bytes: u64| bytes.to_string()),
        "bytes of the cache on the fast tier for blocks of the capacity tier; 0: none",
    ),
    parameter(
        "block_size",
        Kind::Integer,
        Access::Internal(|_| "8192".to_string()),
        "the unit in which PostgreSQL counts pages",
    ),
    parameter(
        "bytea_output",
        Kind::Word(&["hex"]),
        Access::Only {
            shown: "hex",
            check: |name, value| only(name, value, "hex", &["escape"]),
        },
        "how bytea is shown as text; hex only",
    ),
    parameter(
        "capacity_dir",
        Kind::Text,
        Access::Open {
            show: |open| {
                let dir = open.capacity_dir.as_ref();
                dir.map_or_else(String::new, |dir| dir.display().to_string())
            },
            assign: |open, _, value| {
                open.capacity_dir = (!value.is_empty()).then(|| value.into());
                Ok(())
            },
        },
        "the directory of chunk files and history, if it is not the database's own",
    ),
    parameter(
        "capacity_url",
        Kind::Text,
        Access::Open {
            show: |open| open.capacity_url.clone().unwrap_or_default(),
            assign: |open, _, value| {
                if !value.is_empty() {
                    Place::parse(value)?;
                }
                open.capacity_url = (!value.is_empty()).then(|| value.into());
                Ok(())
            },
        },
        "the object store of chunk files and history, if they are not in a directory",
    ),
    parameter(
        "check_function_bodies",
        Kind::Bool,
        kept_switch("on"),
        "no effect: there are no functions to check",
    ),
    parameter(
        "checkpoint_wal_bytes",
        Kind::Bytes,
        open!(engine.checkpoint_wal_bytes, bytes),
        "bytes of log after which a checkpoint starts",
    ),
    parameter(
        "client_encoding",
        Kind::Text,
        Access::Only {
            shown: "UTF8",
            check: require_utf8,
        },
        "the encoding of text; UTF8 only",
    ),
    parameter(
        "client_min_messages",
        Kind::Word(LEVELS),
        field!(
            client_min_messages,
            |n, v| word(n, v, LEVELS),
            |v: &&str| v.to_string()
        ),
        "the least severe messages that are sent to the client",
    ),
    parameter(
        "DateStyle",
        Kind::Text,
        Access::Only {
            shown: "ISO, MDY",
            check: require_iso,
        },
        "how dates are shown and ambiguous ones read; ISO, MDY only",
    ),
    parameter(
        "default_table_access_method",
        Kind::Text,
        Access::Only {
            shown: "heap",
            check: |name, value| only(name, value, "heap", &[]),
        },
        "no effect: there is one kind of table",
    ),
    parameter(
        "default_tablespace",
        Kind::Text,
        Access::Only {
            shown: "",
            check: |name, value| only(name, value, "", &[]),
        },
        "no effect: there are no tablespaces",
    ),
    parameter(
        "default_transaction_deferrable",
        Kind::Bool,
        kept_switch("off"),
        "no effect: no transaction waits for others before it begins",
    ),
    parameter(
        "default_transaction_isolation",
        Kind::Word(ISOLATIONS),
        field!(
            default_isolation,
            |_, v| isolation_of(v),
            |v: &Isolation| { isolation_name(*v).to_string() }
        ),
        "the isolation level of transactions that name none",
    ),
    parameter(
        "default_transaction_read_only",
        Kind::Bool,
        field!(default_read_only, boolean, |v: &bool| on_off(*v)),
        "whether transactions that do not say are read-only",
    ),
    parameter(
        "enable_indexscan",
        Kind::Bool,
        field!(access.indexes, boolean, |v: &bool| on_off(*v)),
        "whether queries may find rows by secondary indexes",
    ),
    parameter(
        "enable_seqscan",
        Kind::Bool,
        field!(access.scans, boolean, |v: &bool| on_off(*v)),
        "whether tables are scanned where an index would do, too",
    ),
    parameter(
        "escape_string_warning",
        Kind::Bool,
        kept_switch("on"),
        "no effect: backslashes in '…' are plain characters",
    ),
    parameter(
        "extra_float_digits",
        Kind::Integer,
        Access::Kept {
            default: "1",
            normal: shortest_floats,
        },
        "floats are shown in the shortest form that reads back exactly: 1 to 3",
    ),
    parameter(
        "idle_in_transaction_session_timeout",
        Kind::Time,
        field!(idle_in_transaction_timeout, limit, shown_limit),
        "how long a server's connection may idle in a transaction; 0: for ever",
    ),
    parameter(
        "idle_session_timeout",
        Kind::Time,
        field!(idle_session_timeout, limit, shown_limit),
        "how long a server's connection may idle outside transactions; 0: for ever",
    ),
    parameter(
        "in_hot_standby",
        Kind::Bool,
        Access::Internal(|_| "off".to_string()),
        "whether this is a replica: never",
    ),
    parameter(
        "integer_datetimes",
        Kind::Bool,
        Access::Internal(|_| on_off(true)),
        "whether times are integers in the binary format",
    ),
    parameter(
        "IntervalStyle",
        Kind::Word(&["postgres"]),
        Access::Only {
            shown: "postgres",
            check: |name, value| {
                only(
                    name,
                    value,
                    "postgres",
                    &["postgres_verbose", "sql_standard", "iso_8601"],
                )
            },
        },
        "how intervals are shown; postgres only",
    ),
    parameter(
        "jit",
        Kind::Bool,
        kept_switch("off"),
        "no effect: queries are vectorised, not compiled",
    ),
    parameter(
        "lc_collate",
        Kind::Text,
        Access::Internal(|_| "C".to_string()),
        "the order of text: by bytes",
    ),
    parameter(
        "lc_ctype",
        Kind::Text,
        Access::Internal(|_| "C".to_string()),
        "what characters are letters: Unicode's say",
    ),
    parameter(
        "lc_messages",
        Kind::Text,
        kept_text("C"),
        "no effect: messages are English",
    ),
    parameter(
        "lock_timeout",
        Kind::Time,
        field!(lock_timeout, limit, shown_limit),
        "how long a statement waits for another transaction's row; 0: for ever",
    ),
    parameter(
        "log_min_duration_statement",
        Kind::Time,
        field!(log_min_duration, threshold, shown_threshold),
        "statements that take so long are logged; 0: all, -1: none",
    ),
    parameter(
        "log_parameter_max_length",
        Kind::Integer,
        field!(
            log_parameter_max_length,
            |n, v| integer(n, v, -1, i64::from(i32::MAX)),
            |v: &i64| v.to_string()
        ),
        "bytes of each parameter value that are logged with a statement; -1: all, 0: no values",
    ),
    parameter(
        "maintenance_work_mem",
        Kind::Text,
        kept_text("64MB"),
        "no effect: see memory_bytes",
    ),
    parameter(
        "max_identifier_length",
        Kind::Integer,
        Access::Internal(|_| "255".to_string()),
        "bytes of a name",
    ),
    parameter(
        "max_index_keys",
        Kind::Integer,
        Access::Internal(|_| "32".to_string()),
        "columns of a key",
    ),
    parameter(
        "max_query_threads",
        Kind::Integer,
        open!(query_threads, count),
        "how many threads one query uses at most",
    ),
    parameter(
        "memory_bytes",
        Kind::Bytes,
        open!(engine.memory_bytes, size),
        "the bound on the memory of tails, cached blocks and queries",
    ),
    parameter(
        "merge_pending_records",
        Kind::Integer,
        open!(engine.merge_pending_records, records),
        "pending records after which a range of rows is merged",
    ),
    parameter(
        "password_encryption",
        Kind::Word(&["scram-sha-256"]),
        Access::Only {
            shown: "scram-sha-256",
            check: |name, value| only(name, value, "scram-sha-256", &["md5", "on"]),
        },
        "how passwords are stored; scram-sha-256 only",
    ),
    parameter(
        "query_memory_bytes",
        Kind::Bytes,
        Access::Internal(|s| s.shared.opened.engine.query_bytes().to_string()),
        "the part of memory_bytes that queries may use",
    ),
    parameter(
        "recovery_threads",
        Kind::Integer,
        open!(engine.recovery_threads, count),
        "how many threads rebuild what is in memory when the database is opened",
    ),
    parameter(
        "row_security",
        Kind::Bool,
        kept_switch("on"),
        "no effect: there are no row security policies",
    ),
    parameter(
        "search_path",
        Kind::Text,
        field!(search_path, |_, v: &str| schema_of(v), |v: &String| v
            .clone()),
        "the schema where unqualified names are created and looked up",
    ),
    parameter(
        "server_encoding",
        Kind::Text,
        Access::Internal(|_| "UTF8".to_string()),
        "the encoding of text in the database",
    ),
    parameter(
        "server_version",
        Kind::Text,
        Access::Internal(|_| SERVER_VERSION.to_string()),
        "the version of PostgreSQL that is the reference, and that of Strandline",
    ),
    parameter(
        "server_version_num",
        Kind::Integer,
        Access::Internal(|_| SERVER_VERSION_NUM.to_string()),
        "the version of PostgreSQL that is the reference, as a number",
    ),
    parameter(
        "ssd_cache_admission",
        Kind::Word(SSD_CACHE_RULES),
        cache!(
            ssd_cache_admission,
            ssd_cache_rule,
            |rule: SsdCacheAdmission| rule.name().to_string()
        ),
        "the pages that the SSD cache takes: those read at random, all or none",
    ),
    parameter(
        "ssd_cache_bytes",
        Kind::Bytes,
        cache!(ssd_cache_bytes, bytes, |bytes: u64| bytes.to_string()),
        "bytes of the SSD cache for pages of indexes; 0: none",
    ),
    parameter(
        "ssd_cache_mode",
        Kind::Word(CACHE_MODES),
        Access::Open {
            show: |open| open.engine.ssd_cache_mode.name().to_string(),
            assign: |open, name, value| {
                open.engine.ssd_cache_mode = cache_mode(name, value)?;
                Ok(())
            },
        },
        "how the SSD cache treats changed pages: pc, pc2, lc or off",
    ),
    parameter(
        "standard_conforming_strings",
        Kind::Bool,
        Access::Only {
            shown: "on",
            check: |name, value| match boolean(name, value)? {
                true => Ok(()),
                false => Err(unsupported(name, value, "on")),
            },
        },
        "whether backslashes in '…' are plain characters; on only",
    ),
    parameter(
        "statement_timeout",
        Kind::Time,
        field!(statement_timeout, limit, shown_limit),
        "how long a statement may run; 0: for ever",
    ),
    parameter(
        "strandline.conflict_policy",
        Kind::Word(POLICIES),
        field!(conflict_policy, policy, |v: &ConflictPolicy| policy_name(
            *v
        )),
        "what a writer does about another transaction's uncommitted change: wait or abort",
    ),
    parameter(
        "strandline.index_storage",
        Kind::Word(INDEX_STORAGES),
        field!(index_storage, index_storage, |v: &Option<IndexStorage>| v
            .map_or("auto", IndexStorage::name)
            .to_string()),
        "the storage of indexes whose definition does not name one: auto, memory, pages or levels",
    ),
    parameter(
        "strandline.key_index",
        Kind::Word(KEY_INDEXES),
        field!(key_index, key_index, |v: &Option<KeyIndex>| v
            .map_or("auto", KeyIndex::word)
            .to_string()),
        "the index of keys whose table does not name one: auto, hash, ordered, btree or fdtree",
    ),
    parameter(
        "strandline.max_staleness",
        Kind::Time,
        field!(max_staleness, limit, shown_limit),
        "how old a moment queries may read; 0: the newest only",
    ),
    parameter(
        "strandline.speculative_reads",
        Kind::Bool,
        field!(speculative_reads, boolean, |v: &bool| on_off(*v)),
        "whether transaction blocks read what is committed and not durable yet",
    ),
    parameter(
        "synchronize_seqscans",
        Kind::Bool,
        kept_switch("on"),
        "no effect: scans do not wait for each other",
    ),
    parameter(
        "synchronous_commit",
        Kind::Bool,
        field!(synchronous_commit, synchronous, |v: &bool| on_off(*v)),
        "whether COMMIT waits until the transaction is durable",
    ),
    parameter(
        "TimeZone",
        Kind::Text,
        Access::Only {
            shown: "UTC",
            check: |_, value| require_utc(value),
        },
        "the zone of timestamps; UTC only",
    ),
    parameter(
        "transaction_deferrable",
        Kind::Bool,
        Access::Internal(|_| "off".to_string()),
        "no transaction waits for others before it begins",
    ),
    parameter(
        "transaction_isolation",
        Kind::Word(ISOLATIONS),
        Access::Internal(|s| isolation_name(s.modes().isolation).to_string()),
        "the isolation level of this transaction",
    ),
    parameter(
        "transaction_read_only",
        Kind::Bool,
        Access::Internal(|s| on_off(s.modes().read_only)),
        "whether this transaction is read-only",
    ),
    parameter(
        "wal_segment_bytes",
        Kind::Bytes,
        open!(engine.wal_segment_bytes, bytes),
        "bytes of one log segment",
    ),
    parameter(
        "work_mem",
        Kind::Text,
        kept_text("4MB"),
        "no effect: see query_memory_bytes",
    ),
    parameter(
        "xmloption",
        Kind::Word(&["content", "document"]),
        Access::Kept {
            default: "content",
            normal: |name, value| word(name, value, &["content", "document"]).map(String::from),
        },
        "no effect: there is no XML",
    ),
];

/// The parameter called `name`, in any case.
pub fn find(name: &str) -> Option<&'static Parameter> {
    PARAMETERS
        .iter()
        .find(|p| p.name.eq_ignore_ascii_case(name))
}

/// A text that is kept without effect.
const fn kept_text(default: &'static str) -> Access {
    Access::Kept {
        default,
        normal: |_, value| text(value),
    }
}

/// A switch that is kept without effect.
const fn kept_switch(default: &'static str) -> Access {
    Access::Kept {
        default,
        normal: |name, value| boolean(name, value).map(on_off),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_every_name_is_found() {
        let names = PARAMETERS.iter().map(|p| p.name.to_lowercase());
        assert!(names.is_sorted());
        for parameter in PARAMETERS {
            assert!(find(&parameter.name.to_uppercase()).is_some());
            assert!(!parameter.description.is_empty());
        }
        assert!(find("nonsense").is_none());
    }

    #[test]
    fn what_is_shown_can_be_set() {
        let mut settings = Settings::default();
        for parameter in PARAMETERS {
            match &parameter.access {
                Access::Session { show, assign, .. } => {
                    let shown = show(&settings);
                    assign(&mut settings, parameter.name, &shown).expect(parameter.name);
                    assert_eq!(show(&settings), shown);
                }
                Access::Only { shown, check } => check(parameter.name, shown).expect("it holds"),
                Access::Kept { default, normal } => {
                    assert_eq!(normal(parameter.name, default).expect("default"), *default);
                }
                Access::Open { .. } | Access::Cache { .. } | Access::Internal(_) => {}
            }
        }
    }
}
