//! `strandline serve`: a database for PostgreSQL clients, until a signal asks it to stop.

use crate::args::{ServeArgs, exit_code};
use crate::session::{Database, Error, built};
use crate::shell::report::report;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use strandline::{Result, SqlState};
use strandline_server::config::{Configuration, Sources};
use strandline_server::metrics::{Metrics, MetricsServer};
use strandline_server::{Server, logging};

/// The variable that names the configuration file.
const CONFIG: &str = "STRANDLINE_CONFIG";

/// Serves until SIGTERM, SIGINT or SIGHUP; returns the exit code.
pub fn run(arguments: &ServeArgs) -> u8 {
    let metrics = Arc::new(Metrics::new());
    let opened = configure(arguments).and_then(|configuration| {
        // Health checks are answered while the database recovers.
        let asked = configuration.metrics_address()?;
        let answering = asked.map(|address| MetricsServer::start(address, metrics.clone()));
        let database = open(arguments, &configuration)?;
        metrics.serving(&database);
        Ok((configuration, answering.transpose()?, database))
    });
    let served = match opened {
        Err(error) => {
            report(&error, "", None);
            return exit_code::CANNOT_OPEN;
        }
        Ok((configuration, _answering, database)) => serve(&configuration, database, metrics),
    };
    match served {
        Ok(()) => exit_code::OK,
        Err(error) => {
            report(&error, "", None);
            exit_code::FAILED
        }
    }
}

/// Combines flags, environment and file into the configuration, and starts the log.
fn configure(arguments: &ServeArgs) -> Result<Configuration> {
    let configuration = Configuration::load(&Sources {
        directory: Some(arguments.path.clone()),
        file: arguments
            .config
            .clone()
            .or_else(|| std::env::var_os(CONFIG).map(PathBuf::from)),
        environment: std::env::vars().collect(),
        flags: arguments.parameters(),
    })?;
    logging::install(&configuration.log_options()?)?;
    for warning in &configuration.warnings {
        tracing::warn!("{warning}");
    }
    Ok(configuration)
}

/// Opens the database and creates a superuser if one is asked for and none can log in.
fn open(arguments: &ServeArgs, configuration: &Configuration) -> Result<Database> {
    let builder = Database::builder(&arguments.path);
    let database = built(configuration.configure(builder)?)?;
    let superuser = arguments.superuser.as_ref();
    if let Some((name, file)) = superuser.zip(arguments.superuser_password_file.as_ref()) {
        match database.administrator() {
            Some(known) => eprintln!(
                "--superuser {name} changes nothing: superuser \"{known}\" is there already. ALTER \
                 USER changes a password, CREATE USER … SUPERUSER adds a superuser."
            ),
            None => database.bootstrap_superuser(name, &password_in(file)?)?,
        }
    }
    Ok(database)
}

/// The content of a file without the line breaks at its end.
fn password_in(file: &Path) -> Result<String> {
    let password = std::fs::read_to_string(file)
        .map_err(|e| Error::io(format!("reading \"{}\"", file.display()), &e))?;
    let password = password.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        let message = format!("\"{}\" holds no password", file.display());
        return Err(Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(password.to_string())
}

fn serve(configuration: &Configuration, database: Database, metrics: Arc<Metrics>) -> Result<()> {
    let (asked, stop) = mpsc::sync_channel(1);
    ctrlc::set_handler(move || {
        // If a second signal finds the first one still queued, nothing is lost.
        let _full = asked.try_send(());
    })
    .map_err(|e| Error::internal(format!("signals cannot be handled: {e}")))?;
    let (has_users, administrator) = (database.has_users(), database.administrator());
    let server = Server::start(database, configuration.server_options()?, Some(metrics))?;
    if !has_users {
        eprintln!("There is no user: everybody on this machine may connect, nobody else.");
    } else if administrator.is_none() {
        eprintln!(
            "No superuser can log in: nobody may create users or give privileges. Start with \
             --superuser NAME --superuser-password-file FILE to create one."
        );
    }
    for address in server.addresses() {
        eprintln!("listening on {address}");
    }
    if let Some(path) = server.socket_path() {
        eprintln!("listening on {}", path.display());
    }
    // The handler lives as long as the process, so the channel never closes.
    let _asked = stop.recv();
    server.shut_down()
}
