//! The suite `server`: PostgreSQL's own clients against `strandline serve` and PostgreSQL, on the
//! same machine, taking turns.
//!
//! | group | figures |
//! |---|---|
//! | pgbench | transactions per second by script, protocol, clients and durability |
//! | mixed | TPC-H queries and pgbench, each alone and both at once |

mod mixed;
mod pgbench;

use crate::report::Report;
use crate::served::{Served, done};
use crate::{Group, Result, tpch};
use std::path::{Path, PathBuf};
use strandline::Database;

/// Every group, in the order they run.
pub const GROUPS: [(&str, Group<Bench>); 2] = [("pgbench", pgbench), ("mixed", mixed)];

fn pgbench(bench: &mut Bench, report: &mut Report) -> Result<()> {
    pgbench::run(bench, report)
}

fn mixed(bench: &mut Bench, report: &mut Report) -> Result<()> {
    mixed::run(bench, report)
}

/// Sizes, times and servers of a run.
pub struct Bench {
    directory: PathBuf,
    /// pgbench's scale, 100 000 accounts per unit
    scale: u32,
    tpch_scale: f64,
    /// duration of each pgbench run
    seconds: u32,
    rounds: usize,
    servers: Option<(Served, Served)>,
    has_pgbench: bool,
}

impl Bench {
    /// A run that keeps our files in `directory`; PostgreSQL's files are below `/var/tmp`.
    pub fn new(directory: &Path, quick: bool) -> Self {
        Self {
            directory: directory.to_path_buf(),
            scale: if quick { 5 } else { 20 },
            tpch_scale: if quick { 0.1 } else { 1.0 },
            seconds: if quick { 2 } else { 10 },
            rounds: if quick { 1 } else { 3 },
            servers: None,
            has_pgbench: false,
        }
    }

    fn database(&self) -> PathBuf {
        self.directory.join("served.strandline")
    }

    fn servers(&self) -> Result<(&Served, &Served)> {
        let servers = self.servers.as_ref().ok_or("no server runs")?;
        Ok((&servers.0, &servers.1))
    }

    fn start(&mut self) -> Result<()> {
        if self.servers.is_none() {
            self.servers = Some((Served::ours(&self.database(), "2GiB")?, Served::postgres()?));
        }
        Ok(())
    }

    fn fill_pgbench(&mut self) -> Result<()> {
        self.start()?;
        if !self.has_pgbench {
            let (ours, theirs) = self.servers()?;
            pgbench::fill(ours, self.scale)?;
            pgbench::fill(theirs, self.scale)?;
            self.has_pgbench = true;
        }
        Ok(())
    }

    /// Loads TPC-H's tables into both servers, by COPY of the same files.
    fn fill_tpch(&mut self) -> Result<()> {
        let folder = self.directory.join("tpch");
        std::fs::create_dir_all(&folder)?;
        tpch::generate(self.tpch_scale, &folder)?;
        let files = Database::in_memory()?;
        let mut connection = files.connect();
        let (ours, theirs) = self.servers()?;
        for table in tpch::TABLES {
            let parquet = tpch::file(table, &folder);
            let csv = folder.join(format!("{table}.csv"));
            let (from, to) = (parquet.display(), csv.display());
            connection.execute(&format!("COPY (SELECT * FROM '{from}') TO '{to}'"), ())?;
            let define = tpch::definition(table);
            let load = format!("\\copy {table} FROM '{to}' (FORMAT csv, HEADER)");
            for served in [ours, theirs] {
                let mut psql = served.client("psql");
                done(psql.args(["-X", "-q", "-c", define, "-c", &load]))?;
            }
            std::fs::remove_file(&csv)?;
        }
        done(
            theirs
                .client("psql")
                .args(["-X", "-q", "-c", "VACUUM ANALYZE"]),
        )?;
        done(ours.client("psql").args(["-X", "-q", "-c", "VACUUM"]))?;
        Ok(())
    }
}
