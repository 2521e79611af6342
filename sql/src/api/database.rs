//! An open database: the engine, the query runtime and the query memory.
//!
//! All connections share one runtime, one memory pool (half of `memory_bytes`, divided fairly,
//! spilling to disk) and one template of DataFusion's state. Each connection and then each
//! statement clones the template; its rules and functions are shared, not copied.

use crate::api::connection::Connection;
use crate::api::directories::{self, Opening};
use crate::backends::identity::User;
use crate::backends::random::{RandomSource, SystemRandom};
use crate::catalogs::statistics::{StatementStatistics, StatsFunction};
use crate::catalogs::tiers::TiersFunction;
use crate::execution::dml;
use crate::execution::row_checks::RowChecks;
use crate::execution::row_expressions::SqlExpressions;
use crate::parse::names;
use crate::planning::locking;
use crate::planning::planner::{QueryPlanner, optimizer_rules};
use crate::planning::provider::access::KeptTerms;
use crate::planning::scalar_subqueries::SingleRowSubqueries;
use crate::planning::subplan::ArrayOf;
use crate::planning::template::Template;
use crate::runtime::query_memory::QueryMemory;
use crate::session::Settings as SessionSettings;
use crate::session::settings::origin::Origin;
use crate::session::settings::{ForeignParameter, OpenSettings, Origins, configure};
use crate::session::shared::Shared;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::TrackConsumersPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionConfig;
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strandline_base::{Clock, Error, ErrorKind, Result, SqlState, SystemClock};
use strandline_device::{Device, MemoryDevice};
use strandline_engine::catalog::Catalog;
use strandline_engine::{CheckpointReport, Db, DbOptions, Inspection, Settings};
use strandline_object::Place;
use strandline_semantics as semantics;
use strandline_semantics::error::convert;

/// The directory for spill files, inside the database's directory.
const SPILL_DIRECTORY: &str = "spill";

/// Bytes of stack of a query thread: enough for the deepest expression that the parser accepts.
const QUERY_STACK: usize = 8 << 20;

/// An open database. Cloning it is cheap; the last clone (and the last connection) closes it.
///
/// ```
/// use strandline::Database;
///
/// let database = Database::in_memory()?;
/// let mut connection = database.connect();
/// connection.execute("CREATE TABLE city (name text PRIMARY KEY, people bigint)", ())?;
/// connection.execute("INSERT INTO city VALUES ($1, $2)", ("Oslo", 717_710i64))?;
/// let result = connection.query("SELECT people FROM city WHERE name = $1", ("Oslo",))?;
/// assert_eq!(result.rows().next().unwrap().get::<i64>(0)?, 717_710);
/// # Ok::<(), strandline::Error>(())
/// ```
#[derive(Clone)]
pub struct Database {
    shared: Arc<Shared>,
}

/// Options of a database to open; see [`Database::builder`].
pub struct DatabaseBuilder {
    device: DeviceChoice,
    clock: Arc<dyn Clock>,
    open: OpenSettings,
    random: Arc<dyn RandomSource>,
    session: SessionSettings,
    origins: Origins,
    foreign_parameters: Vec<ForeignParameter>,
    opening: Opening,
}

enum DeviceChoice {
    Path(PathBuf),
    Given(Arc<dyn Device>),
}

impl DatabaseBuilder {
    fn new(device: DeviceChoice) -> Self {
        Self {
            device,
            clock: Arc::new(SystemClock),
            open: OpenSettings {
                engine: Settings::default(),
                query_threads: processors(),
                capacity_dir: None,
                capacity_url: None,
            },
            random: Arc::new(SystemRandom),
            session: SessionSettings::default(),
            origins: Origins::default(),
            foreign_parameters: Vec::new(),
            opening: Opening {
                must_exist: false,
                records_capacity: true,
            },
        }
    }
    /// Sets a parameter by name, as a configuration does: one that is fixed when the database is
    /// opened, or the default of one that connections may change. `SHOW ALL` prints `origin`.
    ///
    /// # Errors
    /// 42704 for an unknown name, 55P02 for a fixed parameter, 22023 or 0A000 for a wrong value.
    pub fn parameter(mut self, name: &str, value: &str, origin: Origin) -> Result<Self> {
        let name = configure(&mut self.open, &mut self.session, name, value)?;
        self.origins.note(name, origin);
        Ok(self)
    }
    /// Adds a parameter of the surrounding program to `SHOW ALL`, such as a server's port.
    #[must_use]
    pub fn foreign_parameter(mut self, parameter: ForeignParameter) -> Self {
        self.foreign_parameters.push(parameter);
        self
    }
    /// The engine's settings as a whole.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.open.engine = settings;
        self
    }
    /// Bound on the memory of tails, cached blocks and queries together, in bytes.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.open.engine.memory_bytes = bytes;
        self.origins.note("memory_bytes", Origin::Program);
        self
    }
    /// A second directory, on a device with more room: chunk files and history are kept there, all
    /// else in the database's own directory. The database records where it is: name it when the
    /// database is created, or to add one to a database that has none, and when it has moved.
    /// Default: all files are in one directory.
    #[must_use]
    pub fn capacity_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.open.capacity_dir = Some(path.as_ref().to_path_buf());
        self.origins.note("capacity_dir", Origin::Program);
        self
    }
    /// Like [`DatabaseBuilder::capacity_dir`], by URL: `s3://bucket/prefix` for objects in a store
    /// (in builds with the feature `s3`), `memory://name` for objects in this process's memory,
    /// `file:///path` for a directory. Excludes `capacity_dir`. [`DatabaseBuilder::build`] refuses
    /// malformed URLs. Default: none.
    #[must_use]
    pub fn capacity_url(mut self, url: impl Into<String>) -> Self {
        self.open.capacity_url = Some(url.into());
        self.origins.note("capacity_url", Origin::Program);
        self
    }
    /// Whether commits wait until they are durable. A connection may change it with `SET
    /// synchronous_commit`. Default: true.
    #[must_use]
    pub fn synchronous_commit(mut self, wait: bool) -> Self {
        self.session.synchronous_commit = wait;
        self.origins.note("synchronous_commit", Origin::Program);
        self
    }
    /// The most threads of one query. Default: one per processor.
    #[must_use]
    pub fn query_threads(mut self, threads: usize) -> Self {
        self.open.query_threads = threads.max(1);
        self.origins.note("max_query_threads", Origin::Program);
        self
    }
    /// The clock; tests and simulations provide their own.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
    /// The source of passwords' salts and sessions' secrets; tests and simulations provide their
    /// own.
    #[must_use]
    pub fn random(mut self, random: Arc<dyn RandomSource>) -> Self {
        self.random = random;
        self
    }
    /// The device that holds the files, instead of the directory `path`.
    #[must_use]
    pub fn device(mut self, device: Arc<dyn Device>) -> Self {
        self.device = DeviceChoice::Given(device);
        self
    }
    /// Refuses to create a new database.
    #[must_use]
    pub fn must_exist(mut self) -> Self {
        self.opening.must_exist = true;
        self
    }
    /// Uses the capacity tier that the caller names for this opening only: the database neither
    /// records it nor gets a second directory.
    #[must_use]
    pub fn capacity_for_once(mut self) -> Self {
        self.opening.records_capacity = false;
        self
    }

    /// Opens the database to look at it: for [`Database::check`], [`Database::inspect`] and
    /// [`Database::backup`]. Transactions are read-only, the caches on the fast tier stay as they
    /// are found, and so do damaged files of indexes. Other openings empty a cache that no
    /// parameter asks for, and build damaged indexes again.
    #[must_use]
    pub fn only_looks(mut self) -> Self {
        self.open.engine.only_looks = true;
        self
    }

    /// Opens the database, creating or recovering it. It is an error if the directory holds other
    /// files or a newer format, if another process has it open (the message has its pid), if its
    /// capacity tier is missing or another database's, or if stored bytes are damaged.
    pub fn build(mut self) -> Result<Database> {
        let (dir, url) = (self.open.capacity_dir.take(), self.open.capacity_url.take());
        let capacity = directories::place(dir.as_deref(), url.as_deref())?;
        let (device, directory) = match self.device {
            DeviceChoice::Given(device) => {
                refuse_capacity(capacity.as_ref(), &*device)?;
                (device, None)
            }
            DeviceChoice::Path(path) => {
                let (device, capacity) = directories::open(&path, capacity, self.opening)?;
                match capacity {
                    Some(Place::Directory(dir)) => self.open.capacity_dir = Some(dir),
                    Some(Place::Objects(url)) => self.open.capacity_url = Some(url.to_string()),
                    None => {}
                }
                (device, Some(path))
            }
        };
        if self.opening.must_exist && !Db::exists(&*device)? {
            return Err(directories::no_database(&*device));
        }
        let location = device.location();
        let db = Db::open(DbOptions {
            device,
            clock: self.clock,
            settings: Settings {
                expressions: Some(SqlExpressions::new()),
                ..self.open.engine.clone()
            },
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(processors().max(2))
            .thread_name("strandline-query")
            .thread_stack_size(QUERY_STACK)
            .enable_all()
            .build()
            .map_err(|error| Error::io("starting the query threads", &error))?;
        let spill = directory.map(|path| path.join(SPILL_DIRECTORY));
        let query_bytes = self.open.engine.query_bytes();
        let mut template = template(self.open.query_threads, query_bytes, spill)?;
        let statistics: Arc<StatementStatistics> = Arc::default();
        let stats = StatsFunction {
            db: db.clone(),
            statements: statistics.clone(),
        };
        template.register_udtf(StatsFunction::NAME, Arc::new(stats));
        let tiers = TiersFunction { db: db.clone() };
        template.register_udtf(TiersFunction::NAME, Arc::new(tiers));
        let kept = Arc::new(KeptTerms::default());
        template.config_mut().set_extension(kept);
        Ok(Database {
            shared: Arc::new(Shared {
                db,
                template: Template::new(template),
                defaults: self.session,
                opened: self.open,
                origins: self.origins,
                foreign_parameters: self.foreign_parameters,
                row_checks: RowChecks::default(),
                statistics,
                handle: runtime.handle().clone(),
                runtime: Mutex::new(Some(runtime)),
                location,
                sessions: Arc::default(),
                random: self.random,
            }),
        })
    }
}

/// The number of threads that can run at the same time.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, NonZeroUsize::get)
}

/// 22023 for a capacity tier beside a device that is no directory.
fn refuse_capacity(capacity: Option<&Place>, device: &dyn Device) -> Result<()> {
    let Some(place) = capacity else {
        return Ok(());
    };
    let setting = match place {
        Place::Directory(_) => "capacity_dir",
        Place::Objects(_) => "capacity_url",
    };
    Err(Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!(
            "{setting} (\"{place}\") needs a database in a directory, but this one is in \"{}\"",
            device.location()
        ),
    )
    .with_hint(format!(
        "Give the database a directory, or leave {setting} out."
    )))
}

/// The state from which every statement's state is cloned.
fn template(
    target_partitions: usize,
    query_bytes: usize,
    spill: Option<PathBuf>,
) -> Result<SessionState> {
    let mode = match spill {
        Some(path) => {
            // Spill files of an earlier process are garbage.
            let _ = std::fs::remove_dir_all(&path);
            DiskManagerMode::Directories(vec![path])
        }
        None => DiskManagerMode::OsTmpDirectory,
    };
    let consumers_named = NonZeroUsize::new(5).expect("5 is not 0");
    let pool = TrackConsumersPool::new(QueryMemory::new(query_bytes), consumers_named);
    let environment = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(mode))
        .build_arc()
        .map_err(convert)?;
    let builder = SessionStateBuilder::new()
        .with_config(config(target_partitions))
        .with_runtime_env(environment);
    let mut state = semantics::configure(builder)
        .with_query_planner(Arc::new(QueryPlanner::new(vec![
            dml::extension_planner(),
            locking::node::extension_planner(),
        ])))
        .with_physical_optimizer_rules(optimizer_rules())
        .with_analyzer_rule(Arc::new(SingleRowSubqueries))
        .build();
    state
        .register_udf(Arc::new(ScalarUDF::from(ArrayOf::default())))
        .map_err(convert)?;
    Ok(state)
}

fn config(target_partitions: usize) -> SessionConfig {
    let mut config = semantics::session_config()
        .with_target_partitions(target_partitions)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(false)
        .with_default_catalog_and_schema(names::DATABASE, names::PUBLIC);
    let options = config.options_mut();
    options.explain.physical_plan_only = true;
    config
}

impl Database {
    /// A builder for the database in the directory `path`.
    ///
    /// ```
    /// # let name = format!("strandline-doc-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// let database = strandline::Database::builder(&directory)
    ///     .memory_bytes(256 << 20)
    ///     .synchronous_commit(false)
    ///     .build()?;
    /// # database.close()?;
    /// # drop(database);
    /// # std::fs::remove_dir_all(directory).unwrap();
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn builder(path: impl AsRef<Path>) -> DatabaseBuilder {
        DatabaseBuilder::new(DeviceChoice::Path(path.as_ref().to_path_buf()))
    }

    /// A builder for a database on `device`.
    pub fn on_device(device: Arc<dyn Device>) -> DatabaseBuilder {
        DatabaseBuilder::new(DeviceChoice::Given(device))
    }

    /// Opens the database in the directory `path`, creating it if there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).build()
    }

    /// A new database in memory, which disappears when it is dropped.
    pub fn in_memory() -> Result<Self> {
        Self::on_device(Arc::new(MemoryDevice::new())).build()
    }

    /// A new connection. Connections are independent: each has its own transaction and settings,
    /// and may move to another thread.
    pub fn connect(&self) -> Connection {
        Connection::new(self.shared.clone(), User::embedded(&self.catalog()))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Writes pending commits as runs, merges the ranges that are due and cuts the log.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.shared.db.checkpoint(false)
    }

    /// A checkpoint that merges every range with pending updates.
    pub fn merge_all(&self) -> Result<CheckpointReport> {
        self.shared.db.checkpoint(true)
    }

    /// Files, tables, ranges, chunks, tails and log.
    pub fn inspect(&self) -> Result<Inspection> {
        self.shared.db.inspect()
    }

    /// Verifies every checksum, row-map entry, index entry and constraint. Returns one line per
    /// problem.
    pub fn check(&self) -> Result<Vec<String>> {
        let mut damage = self.shared.db.check()?;
        match self.connect().check_constraints() {
            Ok(violated) => damage.extend(violated),
            // Queries meet the damage that has been found.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                damage.push(error.message().to_owned());
            }
            Err(error) => return Err(error),
        }
        Ok(damage)
    }

    /// Counters since open (commits, rollbacks, merges, checkpoints, cache hits and misses, …) and
    /// present sizes (memory by consumer, pending records, bytes of history).
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.shared.db.counters();
        let queries = &self.shared.template.runtime_env().memory_pool;
        counters.push(("query_bytes", queries.reserved() as u64));
        counters.extend(unaccounted_bytes(&counters).map(|bytes| ("other_bytes", bytes)));
        counters.extend(self.shared.statistics.counters());
        counters
    }

    /// The newest committed definitions.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.shared.db.catalog()
    }

    /// The path of the database's directory, or `memory`.
    pub fn location(&self) -> &str {
        &self.shared.location
    }

    /// The engine below SQL.
    pub fn engine(&self) -> &Arc<Db> {
        &self.shared.db
    }

    /// Waits for running statements, writes a checkpoint and closes the database. Later calls fail.
    pub fn close(&self) -> Result<()> {
        self.shared.db.close()
    }
}

/// The counters of the memory consumers.
const CONSUMERS: [&str; 11] = [
    "cache_bytes",
    "footer_bytes",
    "index_page_bytes",
    "tail_bytes",
    "spare_tail_bytes",
    "transaction_bytes",
    "key_bytes",
    "index_bytes",
    "log_buffer_bytes",
    "load_bytes",
    "query_bytes",
];

/// The bytes of the process's resident memory outside the consumers' `counters`: the program,
/// threads' stacks, definitions, and free memory of the allocator. None where the operating system
/// does not report the resident size.
fn unaccounted_bytes(counters: &[(&str, u64)]) -> Option<u64> {
    let is_consumer = |(name, _): &&(&str, u64)| CONSUMERS.contains(name);
    let known: u64 = counters
        .iter()
        .filter(is_consumer)
        .map(|(_, bytes)| bytes)
        .sum();
    Some(strandline_device::resident_bytes()?.saturating_sub(known))
}
