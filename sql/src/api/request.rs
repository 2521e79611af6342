//! The interface of a connection for servers: transactions around the statements of one request,
//! settings by name, the COPY client.

use crate::api::connection::Connection;
use crate::runtime::copy_client::CopyClients;
use crate::session::settings::SettingsVersion;
use crate::session::settings::origin::Origin;
use std::time::Duration;
use strandline_base::Result;

impl Connection {
    /// Makes the following statements one transaction, until [`Connection::commit_request`]. No
    /// effect if a block is open.
    pub fn begin_request(&mut self) -> Result<()> {
        self.session.begin_implicit()
    }

    /// Whether [`Connection::begin_request`] has begun a transaction that is still open.
    pub fn is_in_request(&self) -> bool {
        self.session.is_implicit()
    }

    /// Commits the transaction that [`Connection::begin_request`] began.
    pub fn commit_request(&mut self) -> Result<()> {
        self.session.commit_implicit()
    }

    /// Ends a request after a failure: rolls back the transaction that
    /// [`Connection::begin_request`] began. An open block becomes failed and is rolled back to its
    /// last savepoint.
    pub fn fail_request(&mut self) -> Result<()> {
        self.session.rollback_implicit()?;
        self.session.mark_failed();
        Ok(())
    }

    /// Whether the open block has failed without a savepoint: all its changes are undone, and its
    /// queries give no more rows.
    pub fn has_lost_its_work(&self) -> bool {
        self.session.has_lost_its_work()
    }

    /// Whether the connection's user is a superuser, as everybody is where there are no users.
    pub fn is_superuser(&self) -> bool {
        self.session.is_superuser()
    }

    /// The value of a setting; None for an unknown name.
    pub fn setting(&self, name: &str) -> Option<String> {
        self.session.value_of(name)
    }

    /// The present state of all settings, for comparison with a later one.
    pub fn settings_version(&self) -> SettingsVersion {
        self.session.settings_version()
    }

    /// Changes a setting, as SET does.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let origin = Origin::Session;
        self.session
            .set_parameter(name, Some(value), false, &origin)
    }

    /// The longest pause of a client within a transaction block
    /// (`idle_in_transaction_session_timeout`).
    pub fn idle_in_transaction_timeout(&self) -> Option<Duration> {
        self.session.settings().idle_in_transaction_timeout
    }

    /// The longest pause of a client outside a transaction block (`idle_session_timeout`).
    pub fn idle_session_timeout(&self) -> Option<Duration> {
        self.session.settings().idle_session_timeout
    }

    /// Calls `act` when another session ends this one (`pg_terminate_backend`), on the other
    /// session's thread. `act` must not block.
    pub fn on_termination(&mut self, act: impl Fn() + Send + Sync + 'static) {
        self.session.cancel.on_termination(act);
    }

    /// Where COPY … FROM STDIN and TO STDOUT find their data; None: nowhere.
    pub fn set_copy_clients(&mut self, clients: Option<CopyClients>) {
        self.session.copy_clients = clients;
    }
}
