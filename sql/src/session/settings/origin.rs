//! The origin of a parameter's value.

use std::fmt;
use std::path::PathBuf;

/// The origin of a parameter's value; `SHOW ALL` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// the built-in default
    #[default]
    Default,
    /// the program that opened the database
    Program,
    /// a configuration file
    File {
        /// its path
        path: PathBuf,
        /// the line, from 1
        line: usize,
    },
    /// an environment variable
    Environment(String),
    /// a flag of the command line
    Flag(String),
    /// the startup message of the client
    Client,
    /// SET
    Session,
}

impl Origin {
    /// PostgreSQL's word for it in `pg_settings.source`.
    pub fn source(&self) -> &'static str {
        match self {
            Origin::Default => "default",
            Origin::Program => "override",
            Origin::File { .. } => "configuration file",
            Origin::Environment(_) => "environment variable",
            Origin::Flag(_) => "command line",
            Origin::Client => "client",
            Origin::Session => "session",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Program => f.write_str("program"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
            Origin::Client => f.write_str("client"),
            Origin::Session => f.write_str("session"),
        }
    }
}
