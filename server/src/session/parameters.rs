//! ParameterStatus: reports settings to the client when it connects and whenever they change.

use crate::reply;
use strandline::{Connection, SettingsVersion};

/// The settings that PostgreSQL 15 reports.
const REPORTED: &[&str] = &[
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
];

/// The values that the client has received.
pub(crate) struct Reported {
    values: Vec<String>,
    /// the version of the settings with these values
    version: SettingsVersion,
}

impl Reported {
    /// The present settings of `connection`.
    pub fn of(connection: &Connection) -> Self {
        let values = REPORTED.iter().map(|name| value(connection, name));
        Self {
            values: values.collect(),
            version: connection.settings_version(),
        }
    }

    /// Appends all settings.
    pub fn write_all(&self, out: &mut Vec<u8>) {
        for (name, value) in REPORTED.iter().zip(&self.values) {
            reply::parameter(out, name, value);
        }
    }

    /// Appends the changed settings.
    pub fn update(&mut self, connection: &Connection, out: &mut Vec<u8>) {
        let version = connection.settings_version();
        if version == self.version {
            return;
        }
        self.version = version;
        for (name, known) in REPORTED.iter().zip(&mut self.values) {
            let now = value(connection, name);
            if *known != now {
                reply::parameter(out, name, &now);
                *known = now;
            }
        }
    }
}

fn value(connection: &Connection, name: &str) -> String {
    connection.setting(name).unwrap_or_default()
}
