//! `strandline serve`: a database for PostgreSQL clients, until a signal asks it to stop.

use crate::args::{ServeArgs, exit_code};
use crate::session::{self, Database, Error};
use crate::shell::report::report;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use strandline_server::{NoUsers, Server, ServerOptions, TlsFiles, Users};

/// Serves until SIGTERM, SIGINT or SIGHUP; the exit code.
pub fn run(arguments: &ServeArgs) -> u8 {
    let database = match session::open(Some(&arguments.path), arguments.open) {
        Ok(database) => database,
        Err(error) => {
            report(&error, "", None);
            return exit_code::CANNOT_OPEN;
        }
    };
    match serve(database, arguments) {
        Ok(()) => exit_code::OK,
        Err(error) => {
            report(&error, "", None);
            exit_code::FAILED
        }
    }
}

fn serve(database: Database, arguments: &ServeArgs) -> Result<(), Error> {
    let (asked, stop) = mpsc::sync_channel(1);
    ctrlc::set_handler(move || {
        // A second signal finds the first one still there.
        let _full = asked.try_send(());
    })
    .map_err(|e| Error::internal(format!("signals cannot be handled: {e}")))?;
    let users = NoUsers;
    let is_open = !users.any();
    let server = Server::start(database, options(arguments), Arc::new(users))?;
    for address in server.addresses() {
        eprintln!("listening on {address}");
    }
    if let Some(path) = server.socket_path() {
        eprintln!("listening on {}", path.display());
    }
    if is_open {
        eprintln!("There is no user: everybody on this machine may connect, nobody else.");
    }
    // The handler lives as long as the process, so the channel does not end.
    let _asked = stop.recv();
    server.shut_down()
}

fn options(arguments: &ServeArgs) -> ServerOptions {
    let files = arguments
        .tls_certificate
        .clone()
        .zip(arguments.tls_key.clone());
    ServerOptions {
        listen: arguments.listen.clone(),
        unix_socket_directory: arguments.unix_socket_directory.clone(),
        max_connections: arguments.max_connections,
        tls: files.map(|(certificate, key)| TlsFiles { certificate, key }),
        require_tls: arguments.require_tls,
        shutdown_grace: Duration::from_secs(arguments.shutdown_grace),
        ..ServerOptions::default()
    }
}
