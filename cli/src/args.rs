//! The command line: options, sub-commands and the text of `--help`.

use crate::render::Format;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// How the process ends. `--help` documents the numbers; 2, a wrong command line, is clap's.
pub mod exit_code {
    /// everything worked
    pub const OK: u8 = 0;
    /// a statement or a backup failed, `check` found damage, or `demo` saw a difference
    pub const FAILED: u8 = 1;
    /// the database or an input file cannot be opened
    pub const CANNOT_OPEN: u8 = 3;
    /// Ctrl-C outside a query
    pub const INTERRUPTED: u8 = 130;
    /// the reader of the output has gone away
    pub const OUTPUT_CLOSED: u8 = 141;
}

const AFTER_HELP: &str = "\
Without -c and -f, statements come from standard input: an interactive shell if that is a terminal
(type \\? there for help), else a script. -c and -f run in the order given; every statement commits
by itself unless BEGIN says otherwise. A script stops at its first error unless --keep-going.
A database in a directory called like a command is opened as `./inspect`, say.

Exit codes:
  0  everything worked
  1  a statement or a backup failed; `check` found damage; `demo` saw a difference
  2  the command line is wrong
  3  the database or an input file cannot be opened";

/// Strandline: an embedded SQL database for live data.
#[derive(Debug, Parser)]
#[command(
    name = "strandline",
    version,
    after_help = AFTER_HELP,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub shell: ShellArgs,
}

/// Arguments of the shell and of scripts.
#[derive(Debug, Args)]
pub struct ShellArgs {
    /// Directory of the database, created if it does not exist; without it the database is in
    /// memory and gone at the end
    pub path: Option<PathBuf>,
    #[command(flatten)]
    pub capacity: CapacityArgs,
    /// Run SQL (or a meta command) and exit; may be given several times
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    pub commands: Vec<String>,
    /// Run the statements of a file and exit; may be given several times; `-` is standard input
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Leave out column names (table: also row counts)
    #[arg(long)]
    pub no_header: bool,
    /// What NULL looks like (table: empty, as in csv; json always says null)
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub null: String,
    /// Print neither the banner nor command tags such as INSERT 0 1
    #[arg(short, long)]
    pub quiet: bool,
    /// Go on after a failed statement; the exit code is 1 all the same
    #[arg(long)]
    pub keep_going: bool,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// Where a database has chunk files and history, if not in its own directory.
#[derive(Clone, Debug, Default, Args)]
pub struct CapacityArgs {
    /// Second directory of the database, for chunk files and history: when it is created, and when
    /// the directory has moved
    #[arg(long, value_name = "DIR", requires = "path")]
    pub capacity_dir: Option<PathBuf>,
    /// URL of chunk files and history instead: s3://bucket/prefix, file:///path or memory://name
    #[arg(
        long,
        value_name = "URL",
        requires = "path",
        conflicts_with = "capacity_dir"
    )]
    pub capacity_url: Option<String>,
}

/// How a database is opened.
#[derive(Clone, Copy, Debug, Args)]
pub struct OpenArgs {
    /// Memory for tails, cached blocks and queries together, such as 512MB or 4GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<usize>,
    /// Whether COMMIT waits until the log is on the device (off: the last moments before a crash
    /// may be lost, never the consistency)
    #[arg(long, value_name = "on|off")]
    pub synchronous_commit: Option<Switch>,
}

impl OpenArgs {
    /// Whether commits wait for the device.
    pub fn is_synchronous(&self) -> bool {
        self.synchronous_commit != Some(Switch::Off)
    }
}

/// on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

/// A database that exists.
#[derive(Clone, Debug, Args)]
pub struct DatabaseArgs {
    /// Directory of the database
    pub path: PathBuf,
    #[command(flatten)]
    pub capacity: CapacityArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what a database consists of: files, tables, ranges, chunks, tails, log
    Inspect {
        #[command(flatten)]
        database: DatabaseArgs,
        /// How the sections are printed
        #[arg(long, value_enum, default_value_t = Format::Table)]
        format: Format,
    },
    /// Verify every checksum, row-map entry, index entry and constraint; exit 1 and list the
    /// damage if there is any
    Check {
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Serve a database to PostgreSQL clients until SIGTERM or SIGINT
    Serve(Box<ServeArgs>),
    /// Write a backup of a database into a new directory: the state of one moment, every checksum
    /// verified. A database that a server has open is backed up by
    /// CALL strandline_backup('DEST') in a connection to it
    Backup {
        #[command(flatten)]
        database: DatabaseArgs,
        /// Directory of the backup, which must not exist
        #[arg(value_name = "DEST")]
        target: PathBuf,
    },
    /// Make a database of a backup, verified as `check` does; with --as-of as it was at an earlier
    /// moment. Neither the database's directory nor its second one may exist, nor any object at
    /// the URL
    Restore {
        /// Directory of the backup, which is only read
        #[arg(value_name = "BACKUP")]
        source: PathBuf,
        /// Directory of the database, which must not exist
        path: PathBuf,
        #[command(flatten)]
        capacity: CapacityArgs,
        /// The moment whose state becomes the present, within the history that the backup holds,
        /// such as '2026-11-20 12:00:00' (UTC)
        #[arg(long, value_name = "TIMESTAMP")]
        as_of: Option<String>,
    },
    /// Load TPC-H, run transactions and analytical queries over the same data at the same time,
    /// ask the past, kill a process in mid-transaction, recover, check; with --tiers the story of
    /// an emulated hard disk with and without SSD cache
    Demo(DemoArgs),
    /// The process that `demo` kills
    #[command(name = "demo-victim", hide = true)]
    DemoVictim {
        path: PathBuf,
        #[arg(long)]
        seed: u64,
        /// Bytes of the index in the demo of tiers
        #[arg(long, requires = "rows")]
        tiers: Option<u64>,
        /// Rows of its table
        #[arg(long)]
        rows: Option<u64>,
        #[command(flatten)]
        open: OpenArgs,
    },
}

/// Arguments of `strandline serve`. What is not given is taken from the environment, the
/// configuration file, or is the default.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Directory of the database, created if it does not exist
    pub path: PathBuf,
    /// Second directory of the database, for chunk files and history: when it is created, and when
    /// the directory has moved
    #[arg(long, value_name = "DIR")]
    pub capacity_dir: Option<String>,
    /// URL of chunk files and history instead: s3://bucket/prefix, file:///path or memory://name
    #[arg(long, value_name = "URL", conflicts_with = "capacity_dir")]
    pub capacity_url: Option<String>,
    /// Configuration file, instead of strandline.toml in the database's directory
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:5432], may be given several times; without a user,
    /// addresses of this machine only
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<SocketAddr>,
    /// Directory for the Unix socket .s.PGSQL.PORT
    #[arg(long, value_name = "DIR")]
    pub unix_socket_directory: Option<String>,
    /// Sessions at one time [default: 200]
    #[arg(long, value_name = "N")]
    pub max_connections: Option<usize>,
    /// PEM file of the certificate chain, for TLS
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<String>,
    /// PEM file of the certificate's key
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<String>,
    /// Refuse clients that come over TCP without TLS
    #[arg(long)]
    pub require_tls: bool,
    /// How long open transactions may go on when the server is asked to stop [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub shutdown_grace: Option<String>,
    /// Address where metrics and health are asked for over HTTP
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Name of a superuser to create, if no superuser can log in yet
    #[arg(long, value_name = "NAME", requires = "superuser_password_file")]
    pub superuser: Option<String>,
    /// File with the superuser's password
    #[arg(long, value_name = "FILE", requires = "superuser")]
    pub superuser_password_file: Option<PathBuf>,
    #[command(flatten)]
    pub open: OpenArgs,
}

impl ServeArgs {
    /// The flags given on the command line, with the parameters that they set.
    pub fn parameters(&self) -> Vec<(&'static str, &'static str, String)> {
        let listen: Vec<String> = self.listen.iter().map(ToString::to_string).collect();
        let switch = |on: Switch| if on == Switch::On { "on" } else { "off" }.to_string();
        let given = [
            ("--capacity-dir", "capacity_dir", self.capacity_dir.clone()),
            ("--capacity-url", "capacity_url", self.capacity_url.clone()),
            (
                "--listen",
                "listen",
                (!listen.is_empty()).then(|| listen.join(",")),
            ),
            (
                "--unix-socket-directory",
                "unix_socket_directory",
                self.unix_socket_directory.clone(),
            ),
            (
                "--max-connections",
                "max_connections",
                self.max_connections.map(|n| n.to_string()),
            ),
            (
                "--tls-certificate",
                "tls_certificate",
                self.tls_certificate.clone(),
            ),
            ("--tls-key", "tls_key", self.tls_key.clone()),
            (
                "--require-tls",
                "require_tls",
                self.require_tls.then(|| "on".to_string()),
            ),
            (
                "--shutdown-grace",
                "shutdown_grace",
                self.shutdown_grace.clone(),
            ),
            (
                "--metrics-listen",
                "metrics_listen",
                self.metrics_listen.map(|a| a.to_string()),
            ),
            (
                "--memory",
                "memory_bytes",
                self.open.memory.map(|n| n.to_string()),
            ),
            (
                "--synchronous-commit",
                "synchronous_commit",
                self.open.synchronous_commit.map(switch),
            ),
        ];
        let given = given.into_iter();
        given
            .filter_map(|(flag, name, value)| Some((flag, name, value?)))
            .collect()
    }
}

/// Arguments of `strandline demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// TPC-H scale factor: 1 is 6 million order lines, about 1 GB of text
    #[arg(long, value_name = "FACTOR", default_value_t = 0.1, value_parser = parse_scale_factor)]
    pub sf: f64,
    /// The same data and work on an emulated hard disk, without and with the SSD cache, then a kill
    /// and a warm restart
    #[arg(long, conflicts_with_all = ["sf", "memory", "synchronous_commit"])]
    pub tiers: bool,
    /// Rows of the table with --tiers
    #[arg(long, value_name = "N", default_value_t = 4_000_000, requires = "tiers",
          value_parser = clap::value_parser!(u64).range(100_000..=100_000_000))]
    pub rows: u64,
    /// Seconds of transactions and queries side by side, or of each measurement with --tiers
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Keep the database in this directory, which must not exist yet or be empty
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// Seed of the transactions' choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// `512MB`, `4GiB`, `1000000`: decimal or binary units, in bytes.
fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: usize = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => {
            return Err(format!(
                "{text:?} is not a size; write for example 512MB or 4GiB"
            ));
        }
    };
    number
        .parse::<usize>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .ok_or_else(|| format!("{text:?} is not a size; write for example 512MB or 4GiB"))
}

fn parse_scale_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(sf) if (0.001..=100.0).contains(&sf) => Ok(sf),
        _ => Err("the scale factor is a number from 0.001 to 100".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("512MB"), Ok(512_000_000));
        assert_eq!(parse_size("4GiB"), Ok(4 << 30));
        assert_eq!(parse_size("64 k"), Ok(64 << 10));
        assert_eq!(parse_size("1TB"), Ok(1_000_000_000_000));
        assert_eq!(parse_size("2 TiB"), Ok(2 << 40));
        assert_eq!(parse_size("10"), Ok(10));
        for wrong in [
            "",
            "MB",
            "-1",
            "1.5GB",
            "1 PB",
            "99999999999999999999",
            "18446744073709551615k",
        ] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_that_is_called_like_a_command_needs_a_slash() {
        let cli = Cli::try_parse_from(["strandline", "./inspect"]).expect("a path");
        assert_eq!(cli.shell.path, Some(PathBuf::from("./inspect")));
        assert!(Cli::try_parse_from(["strandline", "inspect"]).is_err());
        let cli = Cli::try_parse_from(["strandline", "check", "db"]).expect("a command");
        assert!(matches!(cli.command, Some(Command::Check { .. })));
    }
}
