//! Configuration: a file, the environment and the command line, in rising precedence.
//!
//! Each parameter has one name, the name in `SHOW ALL`. The file is TOML with these names as keys
//! (`strandline.max_staleness` may also be in a table `[strandline]`). An environment variable is
//! `STRANDLINE_` and the name in upper case with `_` for `.`. The help of a flag names its
//! parameter. Database parameters go to [`strandline::DatabaseBuilder::parameter`], server
//! parameters ([`parameters`]) into [`ServerOptions`], and the parameters of log and metrics into
//! their own options.
//!
//! An unknown key or a wrong value is an error with file, line and key. An unknown variable is only
//! a warning, because container platforms set some with the same prefix.

mod file;
pub mod parameters;

use crate::logging::LogOptions;
use crate::options::{ServerOptions, TlsFiles};
use parameters::{SERVER_PARAMETERS, ServerParameter};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use strandline::{DatabaseBuilder, Error, ForeignParameter, Origin, Result, SqlState};

/// The prefix of environment variables.
const VARIABLE_PREFIX: &str = "STRANDLINE_";
/// The configuration file in the database's directory.
pub const FILE_NAME: &str = "strandline.toml";
/// Variables of other parts of the program.
const OTHER_VARIABLES: [&str; 4] = [
    "STRANDLINE_CONFIG",
    "STRANDLINE_HISTORY",
    "STRANDLINE_SEED",
    "STRANDLINE_CRASH_STRIDE",
];

/// A configured value and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// the value as text
    pub value: String,
    /// file and line, variable or flag
    pub origin: Origin,
}

/// The sources of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// the database's directory, whose `strandline.toml` is read if it exists
    pub directory: Option<PathBuf>,
    /// a file to read instead; it must exist
    pub file: Option<PathBuf>,
    /// the environment: names and values
    pub environment: Vec<(String, String)>,
    /// the flags: flag, parameter, value
    pub flags: Vec<(&'static str, &'static str, String)>,
}

/// The configured values by parameter name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    given: BTreeMap<&'static str, Given>,
    /// the warnings, one line each
    pub warnings: Vec<String>,
}

impl Configuration {
    /// Reads all sources.
    ///
    /// # Errors
    /// 58P01 for a missing file, F0000 with the line for invalid TOML or an unknown parameter.
    pub fn load(sources: &Sources) -> Result<Self> {
        let mut configuration = Self::default();
        let in_directory = sources.directory.as_ref().map(|d| d.join(FILE_NAME));
        let path = match &sources.file {
            Some(path) => Some(path.clone()),
            None => in_directory.filter(|path| path.exists()),
        };
        if let Some(path) = path {
            configuration.read_file(&path)?;
        }
        configuration.read_environment(&sources.environment);
        for (flag, name, value) in &sources.flags {
            let origin = Origin::Flag((*flag).to_string());
            configuration.give(name, value.clone(), origin);
        }
        Ok(configuration)
    }

    fn give(&mut self, name: &'static str, value: String, origin: Origin) {
        self.given.insert(name, Given { value, origin });
    }

    fn read_file(&mut self, path: &Path) -> Result<()> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path.display(), &e))?;
        for entry in file::entries(path, &text)? {
            let name = known(&entry.key).ok_or_else(|| {
                let place = format!("{}:{}", path.display(), entry.line);
                unknown(&place, &entry.key)
            })?;
            let origin = Origin::File {
                path: path.to_path_buf(),
                line: entry.line,
            };
            self.give(name, entry.value, origin);
        }
        Ok(())
    }

    fn read_environment(&mut self, environment: &[(String, String)]) {
        let names: BTreeMap<String, &'static str> =
            names().map(|name| (variable_of(name), name)).collect();
        for (variable, value) in environment {
            if !variable.starts_with(VARIABLE_PREFIX)
                || OTHER_VARIABLES.contains(&variable.as_str())
            {
                continue;
            }
            match names.get(variable) {
                Some(name) => {
                    self.give(name, value.clone(), Origin::Environment(variable.clone()));
                }
                None => self.warnings.push(format!(
                    "environment variable {variable} names no parameter and is ignored"
                )),
            }
        }
    }

    /// The configured value of `name` and its origin, if there is one.
    pub fn given(&self, name: &str) -> Option<&Given> {
        self.given.get(name)
    }

    /// Configures a database before it is opened; `SHOW ALL` will list the server's parameters.
    ///
    /// # Errors
    /// The errors of [`DatabaseBuilder::parameter`], with the origin of the value.
    pub fn configure(&self, mut builder: DatabaseBuilder) -> Result<DatabaseBuilder> {
        for (name, given) in &self.given {
            if !is_servers(name) {
                let configured = builder.parameter(name, &given.value, given.origin.clone());
                builder = configured.map_err(|e| e.context(&given.origin))?;
            }
        }
        for parameter in SERVER_PARAMETERS {
            builder = builder.foreign_parameter(self.shown(parameter));
        }
        Ok(builder)
    }

    fn shown(&self, parameter: &ServerParameter) -> ForeignParameter {
        let given = self.given(parameter.name);
        ForeignParameter {
            name: parameter.name.to_string(),
            value: given.map_or_else(|| parameter.default.to_string(), |g| g.value.clone()),
            description: parameter.description.to_string(),
            origin: given.map_or(Origin::Default, |g| g.origin.clone()),
        }
    }

    /// The options of the server.
    ///
    /// # Errors
    /// 22023 with the origin of an invalid value; a certificate without a key or the reverse.
    pub fn server_options(&self) -> Result<ServerOptions> {
        let mut options = ServerOptions::default();
        let mut files = (None, None);
        for parameter in SERVER_PARAMETERS {
            let Some(given) = self.given(parameter.name) else {
                continue;
            };
            match parameter.name {
                "tls_certificate" => files.0 = Some(PathBuf::from(&given.value)),
                "tls_key" => files.1 = Some(PathBuf::from(&given.value)),
                name => (parameter.assign)(&mut options, name, &given.value)
                    .map_err(|e| e.context(&given.origin))?,
            }
        }
        options.tls = match files {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
            _ => {
                return Err(Error::invalid(
                    SqlState::INVALID_PARAMETER_VALUE,
                    "tls_certificate and tls_key go together: one of them is missing",
                ));
            }
        };
        if options.require_tls && options.tls.is_none() {
            return Err(Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                "require_tls needs tls_certificate and tls_key",
            ));
        }
        let (reserved, most) = (
            options.superuser_reserved_connections,
            options.max_connections,
        );
        if reserved >= most && self.given("superuser_reserved_connections").is_some() {
            return Err(Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                format!(
                    "superuser_reserved_connections ({reserved}) must be less than \
                     max_connections ({most})"
                ),
            ));
        }
        options.superuser_reserved_connections = reserved.min(most - 1);
        Ok(options)
    }

    /// The options of the log.
    ///
    /// # Errors
    /// 22023 with the origin of an invalid value.
    pub fn log_options(&self) -> Result<LogOptions> {
        let mut options = LogOptions::default();
        if let Some(format) = self.given("log_format") {
            options.format = parameters::log_format("log_format", &format.value)
                .map_err(|e| e.context(&format.origin))?;
        }
        if let Some(filter) = self.given("log_filter") {
            options.filter.clone_from(&filter.value);
        }
        Ok(options)
    }

    /// The address of the metrics; None: they are not served.
    ///
    /// # Errors
    /// 22023 with the origin of an invalid address.
    pub fn metrics_address(&self) -> Result<Option<SocketAddr>> {
        let Some(given) = self.given("metrics_listen") else {
            return Ok(None);
        };
        if given.value.is_empty() {
            return Ok(None);
        }
        parameters::address("metrics_listen", &given.value)
            .map(Some)
            .map_err(|e| e.context(&given.origin))
    }
}

/// The names of all parameters.
fn names() -> impl Iterator<Item = &'static str> {
    let database = strandline::PARAMETERS.iter().map(|p| p.name);
    database.chain(SERVER_PARAMETERS.iter().map(|p| p.name))
}

fn is_servers(name: &str) -> bool {
    SERVER_PARAMETERS.iter().any(|p| p.name == name)
}

/// The parameter `key`, in any case.
fn known(key: &str) -> Option<&'static str> {
    names().find(|name| name.eq_ignore_ascii_case(key))
}

/// The environment variable of a parameter.
fn variable_of(name: &str) -> String {
    let name = name.strip_prefix("strandline.").unwrap_or(name);
    format!("{VARIABLE_PREFIX}{}", name.to_uppercase().replace('.', "_"))
}

fn unknown(place: &str, key: &str) -> Error {
    let error = Error::invalid(
        SqlState("F0000"),
        format!("{place}: unrecognized configuration parameter \"{key}\""),
    );
    let near = names().map(|name| (distance(&name.to_lowercase(), &key.to_lowercase()), name));
    match near.min() {
        Some((distance, name)) if distance <= 1 + key.len() / 4 => {
            error.with_hint(format!("Did you mean \"{name}\"?"))
        }
        _ => error.with_hint("SHOW ALL lists the parameters."),
    }
}

/// The number of characters to insert, remove or replace to turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
