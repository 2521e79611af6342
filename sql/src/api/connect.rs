//! Connections of a user, and a server's view of the users.

use crate::api::connection::Connection;
use crate::api::database::Database;
use crate::backends::activity::BackendState;
use crate::backends::identity::User;
use crate::statements::roles::ScramVerifier;
use crate::statements::roles::statements::{new_role, undefined_role};
use strandline_base::{Error, Result, SqlState};
use strandline_engine::TxnOptions;
use strandline_engine::access::{BOOTSTRAP, RoleDef};

/// invalid_authorization_specification
const INVALID_AUTHORIZATION: SqlState = SqlState("28000");

impl Database {
    /// Creates the first superuser that can log in to a server with a password. 42710 if such a
    /// superuser exists, or if another role has the name.
    ///
    /// ```
    /// let database = strandline::Database::in_memory()?;
    /// assert!(!database.has_users());
    /// database.bootstrap_superuser("admin", "secret")?;
    /// assert!(database.scram_verifier("admin").is_some());
    /// let mut connection = database.connect_as("admin")?;
    /// assert_eq!(connection.query("SELECT current_user", ())?.single::<String>()?, "admin");
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn bootstrap_superuser(&self, name: &str, password: &str) -> Result<()> {
        crate::parse::names::check(name)?;
        let verifier = ScramVerifier::new(password, &*self.shared().random)?.to_text();
        let now_us = self.shared().db.now_us();
        let transaction = self.shared().db.begin(TxnOptions::default())?;
        let created = transaction.change_catalog(&mut |catalog| {
            let access = catalog.access_mut();
            if let Some(known) = access.administrator(now_us) {
                return Err(Error::invalid(
                    SqlState::DUPLICATE_OBJECT,
                    format!(
                        "there is a superuser who can log in already: \"{}\"",
                        known.name
                    ),
                ));
            }
            if access.role(name).is_some() {
                return Err(Error::invalid(
                    SqlState::DUPLICATE_OBJECT,
                    format!("role \"{name}\" exists and is no superuser who can log in"),
                )
                .with_hint("Choose another name for the superuser."));
            }
            let id = match access.roles.contains_key(&BOOTSTRAP) {
                true => access.new_role_id(),
                false => BOOTSTRAP,
            };
            access.put_role(RoleDef {
                superuser: true,
                login: true,
                create_role: true,
                create_database: true,
                verifier: Some(verifier.clone()),
                ..new_role(id, name.to_string())
            });
            Ok(())
        });
        match created {
            Ok(()) => transaction.commit().map(|_| ()),
            Err(error) => {
                transaction.rollback();
                Err(error)
            }
        }
    }

    /// Whether there is a role that may log in.
    pub fn has_users(&self) -> bool {
        self.catalog().access.has_users()
    }

    /// The name of a superuser that can log in with a password now.
    pub fn administrator(&self) -> Option<String> {
        let catalog = self.catalog();
        let found = catalog.access.administrator(self.shared().db.now_us());
        found.map(|role| role.name.clone())
    }

    /// The data to check the password of `user`. None if no login is possible under that name: the
    /// role does not exist, may not log in, has no password, or its password has expired. A server
    /// then continues with a made-up verifier, so that a client cannot distinguish these cases.
    pub fn scram_verifier(&self, user: &str) -> Option<ScramVerifier> {
        let catalog = self.catalog();
        let role = catalog.access.role(user).filter(|role| role.login)?;
        let is_good = role.has_password(self.shared().db.now_us());
        ScramVerifier::parse(role.verifier.as_deref().filter(|_| is_good)?)
    }

    /// A new connection as `user`, whose password the caller has checked. 28000 if there is no such
    /// role or it may not log in, 53300 if it has reached its connection limit.
    pub fn connect_as(&self, user: &str) -> Result<Connection> {
        let catalog = self.catalog();
        let role = catalog.access.role(user).ok_or_else(|| {
            let message = undefined_role(user).message().to_string();
            Error::invalid(INVALID_AUTHORIZATION, message)
        })?;
        if !role.login {
            return Err(Error::invalid(
                INVALID_AUTHORIZATION,
                format!("role \"{user}\" is not permitted to log in"),
            ));
        }
        let sessions = self.shared().sessions.all();
        let own = sessions.iter().filter(|backend| *backend.user() == *user);
        if let Some(limit) = role.connection_limit.filter(|_| !role.superuser)
            && own.count() >= limit as usize
        {
            return Err(Error::invalid(
                SqlState("53300"),
                format!("too many connections for role \"{user}\""),
            ));
        }
        let user = User {
            role: role.id,
            name: role.name.as_str().into(),
        };
        Ok(Connection::new(self.shared().clone(), user))
    }

    /// Cancels the running statement of connection `backend_id` if `secret` matches. Returns
    /// whether such a connection exists. For a server's cancel requests.
    pub fn cancel(&self, backend_id: i32, secret: i32) -> bool {
        match self.shared().sessions.find(backend_id) {
            Some(backend) if backend.secret() == secret => {
                backend.cancel().cancel();
                true
            }
            _ => false,
        }
    }

    /// All sessions and their statements, as in `pg_stat_activity`.
    pub fn sessions(&self) -> Vec<BackendState> {
        let backends = self.shared().sessions.all();
        backends.iter().map(|backend| backend.state()).collect()
    }
}
