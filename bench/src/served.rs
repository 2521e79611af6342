//! Servers as child processes: ours and PostgreSQL, each with its own database.

use crate::Result;
use crate::machine::resident_bytes;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A server that listens on loopback until it is dropped.
pub struct Served {
    /// the server's name in results
    pub name: String,
    port: u16,
    user: &'static str,
    /// the way to stop the server
    stop: Stop,
}

enum Stop {
    /// a child that ends in order on SIGTERM
    Ours(Child),
    /// `pg_ctl stop`
    Postgres { programs: PathBuf, data: TempDir },
}

/// The user and database on PostgreSQL; ours has the same names.
const USER: &str = "postgres";

impl Served {
    /// Starts `strandline serve`, the program beside this one, on the database at `path`. `memory`
    /// is its memory limit.
    pub fn ours(path: &Path, memory: &str) -> Result<Self> {
        let program = std::env::current_exe()?.with_file_name("strandline");
        let mut child = Command::new(&program)
            .args(["serve", &path.display().to_string()])
            .args(["--listen", "127.0.0.1:0", "--memory", memory])
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}; build strandline-cli too", program.display()))?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("no standard error")?).lines();
        let port = loop {
            let line = lines.next().ok_or("the server has not started")??;
            let rest = line.split_once("127.0.0.1:").map(|(_, rest)| rest);
            let digits: Option<String> = rest.map(|rest| {
                let digits = rest.chars().take_while(char::is_ascii_digit);
                digits.collect()
            });
            if let Some(port) = digits.and_then(|digits| digits.parse().ok()) {
                break port;
            }
        };
        // Drain the remaining output, which must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            name: "strandline".to_string(),
            port,
            user: USER,
            stop: Stop::Ours(child),
        })
    }

    /// Starts a PostgreSQL with its own data below `/var/tmp`, tuned for a machine with ample
    /// memory.
    pub fn postgres() -> Result<Self> {
        let programs = programs()?;
        let data = tempfile::Builder::new()
            .prefix("strandline-postgres-")
            .tempdir_in("/var/tmp")?;
        if is_root()? {
            done(Command::new("chown").arg(USER).arg(data.path()))?;
        }
        let directory = data.path().display().to_string();
        let initdb = ["-D", &directory, "-U", USER, "-A", "trust", "-E", "UTF8"];
        let locale = ["--locale=C"];
        done(
            as_postgres(&programs.join("initdb"))?
                .args(initdb)
                .args(locale),
        )?;
        let port = free_port()?;
        let settings = format!(
            "-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' \
             -c shared_buffers=2GB -c max_wal_size=8GB -c checkpoint_timeout=15min \
             -c work_mem=128MB -c effective_cache_size=12GB -c random_page_cost=1.1"
        );
        let log = data.path().join("log").display().to_string();
        let start = ["-D", &directory, "-w", "-l", &log, "-o", &settings, "start"];
        done(as_postgres(&programs.join("pg_ctl"))?.args(start))?;
        let version = Command::new(programs.join("postgres"))
            .arg("--version")
            .output()?;
        let version = String::from_utf8_lossy(&version.stdout);
        let version = version.split_whitespace().nth(2).unwrap_or("?").to_string();
        Ok(Self {
            name: format!("PostgreSQL {version}"),
            port,
            user: USER,
            stop: Stop::Postgres { programs, data },
        })
    }

    /// The server's port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Resident memory of our server in bytes; None for PostgreSQL, which has many processes.
    pub fn resident_bytes(&self) -> Result<Option<f64>> {
        let Stop::Ours(child) = &self.stop else {
            return Ok(None);
        };
        Ok(Some(resident_bytes(&child.id().to_string())?))
    }

    /// Kills our server, like a crash.
    pub fn kill(mut self) -> Result<()> {
        if let Stop::Ours(child) = &mut self.stop {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// A PostgreSQL client program that connects to this server.
    pub fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", self.user)
            .env("PGDATABASE", USER);
        command
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        match &mut self.stop {
            Stop::Ours(child) => {
                if !matches!(child.try_wait(), Ok(None)) {
                    return; // killed before
                }
                let kill = Command::new("kill").arg(child.id().to_string()).status();
                if kill.is_err() {
                    let _ = child.kill();
                }
                let _ = child.wait();
            }
            Stop::Postgres { programs, data } => {
                let directory = data.path().display().to_string();
                let stop = ["-D", &directory, "-m", "fast", "-w", "stop"];
                let stopped = as_postgres(&programs.join("pg_ctl"))
                    .and_then(|mut command| done(command.args(stop)).map(drop));
                if let Err(error) = stopped {
                    eprintln!("stopping PostgreSQL: {error}");
                }
            }
        }
    }
}

/// Runs a command; returns its output, or an error if it failed.
pub fn done(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    if !output.status.success() {
        let program = command.get_program().display();
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program}: {}: {said}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The directory of PostgreSQL's programs, which Debian keeps by version.
fn programs() -> Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .map_err(|e| format!("PostgreSQL is not installed (/usr/lib/postgresql: {e})"))?;
    let programs = versions.flatten().map(|version| version.path().join("bin"));
    let mut programs: Vec<PathBuf> = programs.filter(|p| p.join("initdb").exists()).collect();
    programs.sort();
    let newest = programs.pop();
    newest.ok_or_else(|| "/usr/lib/postgresql has no initdb".into())
}

/// A command that runs as user postgres, since PostgreSQL refuses to run as root.
fn as_postgres(program: &Path) -> Result<Command> {
    if !is_root()? {
        return Ok(Command::new(program));
    }
    let mut command = Command::new("runuser");
    command.args(["-u", USER, "--"]).arg(program);
    // That user may not be able to read the current directory.
    command.current_dir("/var/tmp");
    Ok(command)
}

fn is_root() -> Result<bool> {
    Ok(done(Command::new("id").arg("-u"))?.trim() == "0")
}

fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}
