//! SET, SHOW, RESET: a connection's settings.
//!
//! [`parameters`] is the table of all parameters, [`values`] reads and shows their values,
//! [`origin`] says who has set them. What holds for a connection is in [`Settings`], its defaults
//! and what the whole database was opened with in the database's `Shared`.
//!
//! Names with a dot that are not ours are the client's own, as in PostgreSQL: any value may be
//! kept under them.

pub mod origin;
pub mod parameters;
pub mod values;

use super::Session;
use super::modes::{Modes, modes_of};
use crate::backends::activity::Setting;
use crate::backends::identity::{Identity, User};
use crate::parse::names;
use crate::planning::provider::access::AccessSettings;
use crate::planning::template::Template;
use crate::values::summary::Summary;
use crate::values::summary::text_result;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, ObjectName, Reset, UnaryOperator};
use origin::Origin;
use parameters::{Access, Kind, PARAMETERS, Parameter, find};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::{ConflictPolicy, Isolation};

/// The prefix of our own parameters: names under it are not the client's.
const OWN_PREFIX: &str = "strandline.";

/// A connection's settings and their defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// whether COMMIT waits until the transaction is durable
    pub synchronous_commit: bool,
    /// the level of transactions that name none
    pub default_isolation: Isolation,
    /// whether transactions that do not say are read-only
    pub default_read_only: bool,
    /// whether writers wait for each other
    pub conflict_policy: ConflictPolicy,
    /// whether transaction blocks read what is committed and not durable yet
    pub speculative_reads: bool,
    /// how long a statement waits for another transaction's row; None: for ever
    pub lock_timeout: Option<Duration>,
    /// how long a statement may run; None: for ever
    pub statement_timeout: Option<Duration>,
    /// how long a connection may idle in a transaction; None: for ever
    pub idle_in_transaction_timeout: Option<Duration>,
    /// how long a connection may idle outside transactions; None: for ever
    pub idle_session_timeout: Option<Duration>,
    /// statements that take so long are logged; None: none
    pub log_min_duration: Option<Duration>,
    /// bytes of a parameter's value that are logged with a statement; negative: all
    pub log_parameter_max_length: i64,
    /// the least severe notices that are given out
    pub client_min_messages: &'static str,
    /// which access paths statements may take
    pub access: AccessSettings,
    /// how old a moment queries may read to be spared what is not merged yet; None: not at all
    pub max_staleness: Option<Duration>,
    /// where unqualified names are created and looked up
    pub search_path: String,
    /// the client's name, kept for it
    pub application_name: String,
    /// parameters without effect, by name
    kept: BTreeMap<&'static str, String>,
    /// the client's own parameters
    custom: BTreeMap<String, String>,
    /// who has set what, where it is not the database's default
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
            max_staleness: None,
            search_path: names::PUBLIC.to_string(),
            application_name: String::new(),
            kept: BTreeMap::new(),
            custom: BTreeMap::new(),
            origins: BTreeMap::new(),
        }
    }
}

/// The settings of a connection, its user among them, at some time. Two that are equal show the
/// same values.
#[derive(Clone, Debug)]
pub struct SettingsVersion(Arc<Settings>, Arc<Template>);

impl PartialEq for SettingsVersion {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) && Arc::ptr_eq(&self.1, &other.1)
    }
}

/// What a database is opened with and nobody changes afterwards.
#[derive(Clone, Debug)]
pub struct OpenSettings {
    /// the engine's
    pub engine: strandline_engine::Settings,
    /// how many threads one query uses at most
    pub query_threads: usize,
}

/// A parameter of a program around the database, shown with the others.
#[derive(Clone, Debug)]
pub struct ForeignParameter {
    /// its name
    pub name: String,
    /// its value
    pub value: String,
    /// what it is for, in one line
    pub description: String,
    /// where the value is from
    pub origin: Origin,
}

/// A parameter as a connection sees it: a row of `pg_settings`.
#[derive(Clone, Debug)]
pub struct ShownParameter {
    /// its name
    pub name: String,
    /// its value as SHOW prints it
    pub value: String,
    /// what it is for, in one line
    pub description: String,
    /// what values it has
    pub kind: Kind,
    /// PostgreSQL's word for who may change it: user, postmaster or internal
    pub context: &'static str,
    /// where the value is from
    pub origin: Origin,
}

impl ShownParameter {
    /// The value as `pg_settings` has it: times and sizes as numbers of [`ShownParameter::unit`].
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

/// What a database is opened with, each value with its origin.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    by_name: BTreeMap<&'static str, Origin>,
}

impl Origins {
    /// Notes where the value of `name`, a parameter's name, is from.
    pub fn note(&mut self, name: &str, origin: Origin) {
        if let Some(parameter) = find(name) {
            self.by_name.insert(parameter.name, origin);
        }
    }
    fn of(&self, name: &str) -> Origin {
        self.by_name.get(name).cloned().unwrap_or_default()
    }
}

/// Sets parameter `name` of a database that is to be opened; its name as in the table.
///
/// # Errors
/// 42704 if there is none, 55P02 if nobody can set it, 22023 or 0A000 for a wrong value.
pub fn configure(
    open: &mut OpenSettings,
    session: &mut Settings,
    name: &str,
    value: &str,
) -> Result<&'static str> {
    let parameter = find(name).ok_or_else(|| unknown(name))?;
    match &parameter.access {
        Access::Open { assign, .. } => assign(open, parameter.name, value)?,
        _ => change(session, parameter, value)?,
    }
    Ok(parameter.name)
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
        Access::Internal(_) => return Err(cannot_change(parameter.name, "")),
    }
    Ok(())
}

/// Sets `name` of `settings`, None: to its default.
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

/// Whether a name that is no parameter's may be the client's own.
fn is_custom(name: &str) -> bool {
    let is_word = |part: &str| {
        let mut chars = part.chars();
        chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
            && chars.all(|c| c.is_alphanumeric() || c == '_' || c == '$')
    };
    name.contains('.') && !name.starts_with(OWN_PREFIX) && name.split('.').all(is_word)
}

/// What `name` is shown as once it has `value` (None: its default).
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
            Access::Open { .. } | Access::Internal(_) => String::new(),
        },
        None => value.unwrap_or_default().to_string(),
    })
}

impl Session {
    /// Makes the changes of settings that the statement which has ended asked for.
    pub(super) fn apply_requests(&mut self) -> Result<()> {
        for request in self.registered.backend().take_requests() {
            if request.local && self.open.is_none() {
                continue; // its transaction has ended
            }
            let (name, value) = (request.name, request.value.as_deref());
            self.set_parameter(&name, value, request.local, &Origin::Session)?;
        }
        Ok(())
    }

    pub(super) fn set(&mut self, set: &ast::Set) -> Result<Summary> {
        match set {
            ast::Set::SingleAssignment {
                scope,
                variable,
                values,
                ..
            } => {
                let local = matches!(scope, Some(ast::ContextModifier::Local));
                self.assign(&name_of(variable)?, text_of(values)?.as_deref(), local)?;
            }
            ast::Set::SetTimeZone { local, value } => {
                let zone = text_of(std::slice::from_ref(value))?;
                self.assign("timezone", zone.as_deref(), *local)?;
            }
            ast::Set::SetNames { charset_name, .. } => {
                self.assign("client_encoding", Some(&charset_name.value), false)?;
            }
            other => return Err(Error::unsupported(format!("{other} is not supported"))),
        }
        Ok(Summary::tag("SET"))
    }

    pub(super) fn reset(&mut self, reset: &Reset) -> Result<Summary> {
        match reset {
            Reset::ALL => {
                for parameter in PARAMETERS {
                    if !matches!(parameter.access, Access::Open { .. } | Access::Internal(_)) {
                        self.assign(parameter.name, None, false)?;
                    }
                }
                let own: Vec<String> = self.settings.custom.keys().cloned().collect();
                for name in own {
                    self.assign(&name, None, false)?;
                }
            }
            Reset::ConfigurationParameter(name) => self.assign(&name_of(name)?, None, false)?,
        }
        Ok(Summary::tag("RESET"))
    }

    fn assign(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        self.set_parameter(name, value, local, &Origin::Session)
    }

    /// Sets `name`, None: to its default; `local`: until the transaction block ends.
    pub(crate) fn set_parameter(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
        origin: &Origin,
    ) -> Result<()> {
        if find(name).is_none()
            && let Some(known) = self.foreign(name)
        {
            return Err(cannot_change(&known.name, " without restarting the server"));
        }
        let defaults = self.shared.defaults.clone();
        let mut settings = self.settings.clone();
        let changed = Arc::make_mut(&mut settings);
        assign_to(changed, &defaults, name, value, origin)?;
        let Some(open) = &mut self.open else {
            if local {
                self.notice(
                    SqlState::NO_ACTIVE_SQL_TRANSACTION,
                    "SET LOCAL can only be used in transaction blocks",
                );
            } else {
                self.restore(settings);
            }
            return Ok(());
        };
        // What its snapshots see is settled by then.
        let fixed = settings.speculative_reads != self.settings.speculative_reads;
        if fixed && open.used {
            return Err(Error::invalid(
                SqlState::ACTIVE_SQL_TRANSACTION,
                format!("parameter \"{name}\" must be set before any query of the transaction"),
            ));
        }
        if !local {
            let kept = Arc::make_mut(&mut open.kept);
            assign_to(kept, &defaults, name, value, origin)?;
        }
        self.restore(settings);
        if fixed {
            self.begin_again()?;
        }
        Ok(())
    }

    /// Makes `settings` the ones that hold, and tells DataFusion the one it must know.
    pub(super) fn restore(&mut self, settings: Arc<Settings>) {
        let moved = self.settings.search_path != settings.search_path
            || self.settings.access != settings.access;
        let changed = !Arc::ptr_eq(&self.settings, &settings);
        self.settings = settings;
        if changed {
            self.report_settings();
            if let Some(open) = &self.open {
                let settings = &self.settings;
                open.transaction.adjust(
                    settings.synchronous_commit,
                    settings.conflict_policy,
                    settings.lock_timeout,
                );
            }
        }
        if moved {
            let mut state = self.template.state().clone();
            let options = state.config_mut().options_mut();
            options.catalog.default_schema = self.settings.search_path.clone();
            state
                .config_mut()
                .set_extension(Arc::new(self.settings.access));
            self.template = Template::new(state);
        }
    }

    /// The columns that SHOW gives.
    pub(super) fn shown_columns(&self, variable: &[Ident]) -> Result<Option<SchemaRef>> {
        let shown = self.show(variable)?;
        Ok(shown.result().map(|result| result.schema().clone()))
    }

    pub(super) fn show(&self, variable: &[Ident]) -> Result<Summary> {
        let words: Vec<String> = variable.iter().map(|i| i.value.to_lowercase()).collect();
        let name = match words
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .as_slice()
        {
            ["all"] => return Ok(self.show_all()),
            ["time", "zone"] => "timezone".to_string(),
            ["transaction", "isolation", "level"] => "transaction_isolation".to_string(),
            other => other.join("."),
        };
        let value = self.value_of(&name).ok_or_else(|| unknown(&name))?;
        let shown = find(&name).map_or(name.as_str(), |parameter| parameter.name);
        Ok(text_result("SHOW", &[shown], vec![vec![value]]))
    }

    fn show_all(&self) -> Summary {
        let rows = self.parameters().into_iter().map(|p| {
            let origin = p.origin.to_string();
            vec![p.name, p.value, p.description, origin]
        });
        let columns = ["name", "setting", "description", "origin"];
        text_result("SHOW", &columns, rows.collect())
    }

    /// SET ROLE: the session acts as `name` from now on; None: as who has connected.
    pub(super) fn set_role(&mut self, name: Option<&Ident>) -> Result<Summary> {
        let Some(identity) = Identity::of(&self.template) else {
            return Err(Error::internal("a session without an identity"));
        };
        let session_user = identity.session_user.clone();
        let current_user = match name {
            None => session_user.clone(),
            Some(name) => self.role_to_be(&names::fold(name), &session_user)?,
        };
        let (template, random) = (&self.template, &self.shared.random);
        let registered = &self.registered;
        let state = Identity::put_into(
            template,
            registered,
            random,
            session_user,
            current_user,
            check,
        );
        self.template = Template::new(state);
        Ok(Summary::tag("SET"))
    }

    fn role_to_be(&self, name: &str, session_user: &User) -> Result<User> {
        let catalog = self.shared.db.catalog();
        let access = &catalog.access;
        let Some(role) = access.role(name) else {
            return Err(Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("role \"{name}\" does not exist"),
            ));
        };
        let member = access.memberships(session_user.role).contains(&role.id);
        if !member && !access.is_superuser(session_user.role) {
            return Err(Error::invalid(
                SqlState("42501"),
                format!("permission denied to set role \"{name}\""),
            ));
        }
        Ok(User {
            role: role.id,
            name: role.name.as_str().into(),
        })
    }

    /// Lets system tables show the settings.
    pub(super) fn report_settings(&self) {
        let parameters = self.parameters().into_iter();
        let all = parameters.map(|parameter| Setting {
            changeable: parameter.context == "user",
            name: parameter.name,
            value: parameter.value,
            description: parameter.description,
        });
        let custom = self.settings.custom.iter();
        let all = all.chain(custom.map(|(name, value)| Setting {
            changeable: true,
            name: name.clone(),
            value: value.clone(),
            description: String::new(),
        }));
        let backend = self.registered.backend();
        backend.set_settings(all.collect(), &self.settings.application_name);
    }

    /// All parameters by name, those of the program around the database among them.
    pub(crate) fn parameters(&self) -> Vec<ShownParameter> {
        let own = PARAMETERS.iter().map(|parameter| ShownParameter {
            name: parameter.name.to_string(),
            value: self.value_of_parameter(parameter),
            description: parameter.description.to_string(),
            kind: parameter.kind,
            context: match parameter.access {
                Access::Open { .. } => "postmaster",
                Access::Internal(_) => "internal",
                _ => "user",
            },
            origin: self.origin_of(parameter),
        });
        let foreign = self.shared.foreign_parameters.iter();
        let foreign = foreign.map(|parameter| ShownParameter {
            name: parameter.name.clone(),
            value: parameter.value.clone(),
            description: parameter.description.clone(),
            kind: Kind::Text,
            context: "postmaster",
            origin: parameter.origin.clone(),
        });
        let mut all: Vec<ShownParameter> = own.chain(foreign).collect();
        all.sort_by_key(|parameter| parameter.name.to_lowercase());
        all
    }

    fn origin_of(&self, parameter: &Parameter) -> Origin {
        match self.settings.origins.get(parameter.name) {
            Some(origin) => origin.clone(),
            None => self.shared.origins.of(parameter.name),
        }
    }

    /// What all settings are by now.
    pub(crate) fn settings_version(&self) -> SettingsVersion {
        SettingsVersion(self.settings.clone(), self.template.clone())
    }

    /// What SHOW says of `name`; None if there is no such parameter.
    pub(crate) fn value_of(&self, name: &str) -> Option<String> {
        if let Some(parameter) = find(name) {
            return Some(self.value_of_parameter(parameter));
        }
        let foreign = self.foreign(name).map(|parameter| parameter.value.clone());
        foreign.or_else(|| self.settings.custom.get(name).cloned())
    }

    /// The parameter of the program around the database with this name.
    fn foreign(&self, name: &str) -> Option<&ForeignParameter> {
        let mut foreign = self.shared.foreign_parameters.iter();
        foreign.find(|parameter| parameter.name.eq_ignore_ascii_case(name))
    }

    fn value_of_parameter(&self, parameter: &Parameter) -> String {
        match &parameter.access {
            Access::Session { show, .. } => show(&self.settings),
            Access::Only { shown, .. } => (*shown).to_string(),
            Access::Kept { default, .. } => match self.settings.kept.get(parameter.name) {
                Some(value) => value.clone(),
                None => (*default).to_string(),
            },
            Access::Open { show, .. } => show(&self.shared.opened),
            Access::Internal(show) => show(self),
        }
    }

    /// The modes of the open transaction, else of the next one.
    fn modes(&self) -> Modes {
        match &self.open {
            Some(open) => modes_of(&open.transaction),
            None => self.default_modes(),
        }
    }
}

fn name_of(name: &ObjectName) -> Result<String> {
    let name = names::parts(name)?.join(".").to_lowercase();
    Ok(if name == "time zone" {
        "timezone".to_string()
    } else {
        name
    })
}

/// The text of SET's value: words, strings, numbers, joined by commas; None is DEFAULT.
fn text_of(values: &[Expr]) -> Result<Option<String>> {
    match values {
        [Expr::Identifier(word)]
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default") =>
        {
            Ok(None)
        }
        [Expr::Value(v)] if v.value == ast::Value::Null => Ok(None),
        values => joined(values).map(Some),
    }
}

fn joined(values: &[Expr]) -> Result<String> {
    let parts = values
        .iter()
        .map(|value| match value {
            Expr::Identifier(ident) => Ok(names::fold(ident)),
            Expr::CompoundIdentifier(parts) => {
                Ok(parts.iter().map(names::fold).collect::<Vec<_>>().join("."))
            }
            Expr::Value(v) => match &v.value {
                ast::Value::SingleQuotedString(text) => Ok(text.clone()),
                ast::Value::Boolean(on) => Ok(on.to_string()),
                ast::Value::Number(number, _) => Ok(number.to_string()),
                other => Err(bad_value(&other.to_string())),
            },
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr,
            } => Ok(format!("-{}", joined(std::slice::from_ref(expr))?)),
            other => Err(bad_value(&other.to_string())),
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(parts.join(", "))
}

fn bad_value(value: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("SET takes a word, a text or a number, not {value}"),
    )
}

fn unknown(name: &str) -> Error {
    Error::invalid(
        SqlState::UNDEFINED_OBJECT,
        format!("unrecognized configuration parameter \"{name}\""),
    )
    .with_hint("SHOW ALL lists the parameters.")
}

fn cannot_change(name: &str, unless: &str) -> Error {
    Error::invalid(
        SqlState("55P02"),
        format!("parameter \"{name}\" cannot be changed{unless}"),
    )
}
