//! A connection's settings.
//!
//! [`parameters`] is the table of all parameters, [`values`] parses and shows their values,
//! [`origin`] is the source of a value. `set` runs SET and RESET, `show` runs SHOW. [`Settings`]
//! holds one connection's settings. The database's `Shared` holds their defaults, and the
//! parameters that are fixed at open.
//!
//! As in PostgreSQL, a name with a dot is the client's own unless it has our prefix. It takes any
//! value.

pub mod origin;
pub mod parameters;
mod set;
mod show;
pub mod values;

use crate::parse::names;
use crate::planning::provider::access::AccessSettings;
use crate::planning::template::Template;
use origin::Origin;
use parameters::{Access, Kind, Parameter, find};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::KeyIndex;
use strandline_engine::catalog::index::IndexStorage;
use strandline_engine::{CacheSettings, ConflictPolicy, Isolation};

/// The prefix of our own parameters: names under it are not the client's.
const OWN_PREFIX: &str = "strandline.";

/// A connection's settings and their defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// whether COMMIT waits until the transaction is durable
    pub synchronous_commit: bool,
    /// the isolation level unless BEGIN gives one
    pub default_isolation: Isolation,
    /// whether transactions are read-only unless BEGIN says otherwise
    pub default_read_only: bool,
    /// whether writers wait for each other
    pub conflict_policy: ConflictPolicy,
    /// whether transaction blocks read transactions that are pre-committed, not durable yet
    pub speculative_reads: bool,
    /// how long a statement waits for a row lock; None: without limit
    pub lock_timeout: Option<Duration>,
    /// how long a statement may run; None: without limit
    pub statement_timeout: Option<Duration>,
    /// how long a connection may idle in a transaction; None: without limit
    pub idle_in_transaction_timeout: Option<Duration>,
    /// how long a connection may idle outside transactions; None: without limit
    pub idle_session_timeout: Option<Duration>,
    /// the duration from which a statement is logged; None: no statement is logged
    pub log_min_duration: Option<Duration>,
    /// bytes of a parameter's value that are logged with a statement; negative: all
    pub log_parameter_max_length: i64,
    /// the lowest severity of notices that the client receives
    pub client_min_messages: &'static str,
    /// the access paths that statements may take
    pub access: AccessSettings,
    /// the storage of indexes whose definition does not name one; None: memory while it suffices
    pub index_storage: Option<IndexStorage>,
    /// the index of keys whose table does not name one; None: that of their columns
    pub key_index: Option<KeyIndex>,
    /// how far back a query may read to avoid unmerged updates; None: it reads the newest state
    pub max_staleness: Option<Duration>,
    /// the schema of unqualified names
    pub search_path: String,
    /// the client's name, without effect
    pub application_name: String,
    /// parameters without effect, by name
    kept: BTreeMap<&'static str, String>,
    /// the client's own parameters
    custom: BTreeMap<String, String>,
    /// the origins of the values that are not the database's default
    origins: BTreeMap<&'static str, Origin>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            synchronous_commit: true,
            default_isolation: Isolation::ReadCommitted,
            default_read_only: false,
            conflict_policy: ConflictPolicy::Wait,
            speculative_reads: false,
            lock_timeout: None,
            statement_timeout: None,
            idle_in_transaction_timeout: None,
            idle_session_timeout: None,
            log_min_duration: None,
            log_parameter_max_length: -1,
            client_min_messages: "notice",
            access: AccessSettings::default(),
            index_storage: None,
            key_index: None,
            max_staleness: None,
            search_path: names::PUBLIC.to_string(),
            application_name: String::new(),
            kept: BTreeMap::new(),
            custom: BTreeMap::new(),
            origins: BTreeMap::new(),
        }
    }
}

/// A connection's settings and its user at one time. Two equal versions show the same values.
#[derive(Clone, Debug)]
pub struct SettingsVersion(Arc<Settings>, Arc<Template>);

impl PartialEq for SettingsVersion {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) && Arc::ptr_eq(&self.1, &other.1)
    }
}

/// Settings that are fixed when a database is opened.
#[derive(Clone, Debug)]
pub struct OpenSettings {
    /// the engine's settings
    pub engine: strandline_engine::Settings,
    /// the most threads of one query
    pub query_threads: usize,
    /// the directory of chunk files and history, if it is not the database's own
    pub capacity_dir: Option<PathBuf>,
    /// the URL of chunk files and history: before the opening as it was given, afterwards None for
    /// `file://`
    pub capacity_url: Option<String>,
}

/// A parameter of a program around the database, shown with the others.
#[derive(Clone, Debug)]
pub struct ForeignParameter {
    /// its name
    pub name: String,
    /// its value
    pub value: String,
    /// its purpose, in one line
    pub description: String,
    /// the source of the value
    pub origin: Origin,
}

/// A parameter as a connection sees it: a row of `pg_settings`.
#[derive(Clone, Debug)]
pub struct ShownParameter {
    /// its name
    pub name: String,
    /// its value as SHOW prints it
    pub value: String,
    /// its purpose, in one line
    pub description: String,
    /// the kind of its values
    pub kind: Kind,
    /// PostgreSQL's word for the permission to change it: user, postmaster or internal
    pub context: &'static str,
    /// the source of the value
    pub origin: Origin,
}

impl ShownParameter {
    /// The value in `pg_settings`: times and sizes are numbers of [`ShownParameter::unit`].
    pub fn plain_value(&self) -> String {
        match self.kind {
            Kind::Time if self.value == "-1" => self.value.clone(),
            Kind::Time => match values::limit(&self.name, &self.value) {
                Ok(limit) => limit.map_or(0, |l| l.as_millis()).to_string(),
                Err(_) => self.value.clone(),
            },
            _ => self.value.clone(),
        }
    }
    /// The unit of the plain value.
    pub fn unit(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Time => Some("ms"),
            Kind::Bytes => Some("B"),
            _ => None,
        }
    }
}

/// The origins of the values that a database is opened with.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    by_name: BTreeMap<&'static str, Origin>,
}

impl Origins {
    /// Notes the origin of parameter `name`.
    pub fn note(&mut self, name: &str, origin: Origin) {
        if let Some(parameter) = find(name) {
            self.by_name.insert(parameter.name, origin);
        }
    }
    fn of(&self, name: &str) -> Origin {
        self.by_name.get(name).cloned().unwrap_or_default()
    }
}

/// Sets parameter `name` of a database before it is opened.
///
/// # Errors
/// 42704 for an unknown name, 55P02 for a fixed parameter, 22023 or 0A000 for a wrong value.
pub fn configure(
    open: &mut OpenSettings,
    session: &mut Settings,
    name: &str,
    value: &str,
) -> Result<&'static str> {
    let parameter = find(name).ok_or_else(|| unknown(name))?;
    match &parameter.access {
        Access::Open { assign, .. } => assign(open, parameter.name, value)?,
        Access::Cache { assign, .. } => {
            let mut caches = open.engine.caches();
            assign(&mut caches, parameter.name, value)?;
            open.engine = open.engine.with_caches(caches);
        }
        _ => change(session, parameter, value)?,
    }
    Ok(parameter.name)
}

/// Sets parameter `name` of the caches while the database is open.
///
/// # Errors
/// 42704 for an unknown name, 55P02 for another parameter, 22023 for a wrong value.
pub(super) fn change_caches(caches: &mut CacheSettings, name: &str, value: &str) -> Result<()> {
    let parameter = find(name).ok_or_else(|| unknown(name))?;
    match &parameter.access {
        Access::Cache { assign, .. } => assign(caches, parameter.name, value),
        Access::Open { .. } => Err(cannot_change(
            parameter.name,
            " without reopening the database",
        )),
        Access::Internal(_) => Err(cannot_change(parameter.name, "")),
        Access::Session { .. } | Access::Only { .. } | Access::Kept { .. } => {
            let error = cannot_change(parameter.name, " for all connections");
            Err(error.with_hint("SET changes it for one connection."))
        }
    }
}

/// Changes a session's parameter.
fn change(settings: &mut Settings, parameter: &Parameter, value: &str) -> Result<()> {
    match &parameter.access {
        Access::Session { assign, .. } => assign(settings, parameter.name, value),
        Access::Only { check, .. } => check(parameter.name, value),
        Access::Kept { normal, .. } => {
            let value = normal(parameter.name, value)?;
            settings.kept.insert(parameter.name, value);
            Ok(())
        }
        Access::Open { .. } => Err(cannot_change(
            parameter.name,
            " without reopening the database",
        )),
        Access::Cache { .. } => Err(not_by_set(parameter)),
        Access::Internal(_) => Err(cannot_change(parameter.name, "")),
    }
}

/// Gives a session's parameter the value that it has in `defaults`.
fn change_back(settings: &mut Settings, defaults: &Settings, parameter: &Parameter) -> Result<()> {
    match &parameter.access {
        Access::Session { reset, .. } => reset(settings, defaults),
        Access::Kept { .. } => match defaults.kept.get(parameter.name) {
            Some(value) => {
                settings.kept.insert(parameter.name, value.clone());
            }
            None => {
                settings.kept.remove(parameter.name);
            }
        },
        Access::Only { .. } => {}
        Access::Open { .. } => {
            return Err(cannot_change(
                parameter.name,
                " without reopening the database",
            ));
        }
        Access::Cache { .. } => return Err(not_by_set(parameter)),
        Access::Internal(_) => return Err(cannot_change(parameter.name, "")),
    }
    Ok(())
}

/// Sets parameter `name` in `settings`; None: to its default.
fn assign_to(
    settings: &mut Settings,
    defaults: &Settings,
    name: &str,
    value: Option<&str>,
    origin: &Origin,
) -> Result<()> {
    match (find(name), value) {
        (Some(parameter), Some(value)) => {
            change(settings, parameter, value)?;
            settings.origins.insert(parameter.name, origin.clone());
        }
        (Some(parameter), None) => {
            change_back(settings, defaults, parameter)?;
            settings.origins.remove(parameter.name);
        }
        (None, _) if !is_custom(name) => return Err(unknown(name)),
        (None, Some(value)) => {
            settings.custom.insert(name.to_string(), value.to_string());
        }
        (None, None) => {
            settings.custom.remove(name);
        }
    }
    Ok(())
}

/// Whether `name` may be the client's own.
fn is_custom(name: &str) -> bool {
    let is_word = |part: &str| {
        let mut chars = part.chars();
        chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
            && chars.all(|c| c.is_alphanumeric() || c == '_' || c == '$')
    };
    name.contains('.') && !name.starts_with(OWN_PREFIX) && name.split('.').all(is_word)
}

/// The text that SHOW would give for `name` with `value` (None: its default).
///
/// # Errors
/// As [`Connection::set_parameter`](crate::Connection::set_parameter).
pub fn check(name: &str, value: Option<&str>) -> Result<String> {
    let (mut settings, defaults) = (Settings::default(), Settings::default());
    assign_to(&mut settings, &defaults, name, value, &Origin::Session)?;
    let kept = |parameter: &Parameter| settings.kept.get(parameter.name).cloned();
    Ok(match find(name) {
        Some(parameter) => match &parameter.access {
            Access::Session { show, .. } => show(&settings),
            Access::Only { shown, .. } => (*shown).to_string(),
            Access::Kept { default, .. } => kept(parameter).unwrap_or((*default).to_string()),
            Access::Open { .. } | Access::Cache { .. } | Access::Internal(_) => String::new(),
        },
        None => value.unwrap_or_default().to_string(),
    })
}

fn unknown(name: &str) -> Error {
    Error::invalid(
        SqlState::UNDEFINED_OBJECT,
        format!("unrecognized configuration parameter \"{name}\""),
    )
    .with_hint("SHOW ALL lists the parameters.")
}

fn not_by_set(parameter: &Parameter) -> Error {
    let name = parameter.name;
    cannot_change(name, " for one connection").with_hint(format!(
        "CALL strandline_set('{name}', 'value') changes it for the whole database, until the \
         database is closed."
    ))
}

fn cannot_change(name: &str, unless: &str) -> Error {
    Error::invalid(
        SqlState("55P02"),
        format!("parameter \"{name}\" cannot be changed{unless}"),
    )
}
