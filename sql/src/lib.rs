//! Strandline is an embedded SQL database for live data: one copy of the data, updated at OLTP
//! speed, scanned at column-store speed, queryable as of any past moment.
//!
//! ```
//! use strandline::Database;
//!
//! let database = Database::in_memory()?;
//! let mut connection = database.connect();
//! connection.execute("CREATE TABLE account (id bigint PRIMARY KEY, balance numeric(12,2))", ())?;
//! connection.execute("INSERT INTO account VALUES (1, 100.00), (2, 50.00)", ())?;
//! let before = connection.query("SELECT now()", ())?.rows().next().unwrap().get::<String>(0)?;
//! connection.execute("UPDATE account SET balance = balance + $1 WHERE id = 1", (25i64,))?;
//!
//! let total = connection.query("SELECT sum(balance) FROM account", ())?;
//! assert_eq!(total.single::<String>()?, "175.00");
//! let then = connection.query(
//!     "SELECT sum(balance) FROM account FOR SYSTEM_TIME AS OF $1",
//!     (before,),
//! )?;
//! assert_eq!(then.single::<String>()?, "150.00");
//! # Ok::<(), strandline::Error>(())
//! ```
//!
//! * [`Database`] opens a directory or memory; [`Connection`] runs SQL, one transaction at a time.
//! * [`Connection::transaction`] gives reads and writes by key that bypass the query engine.
//! * [`Connection::appender`] loads in bulk.
//! * Results are Arrow batches ([`QueryResult::batches`]) and typed rows ([`Row::get`]).
//!
//! Rooms, lowest first. A room is a module that imports only from rooms above it in this table:
//!
//! | room | contents |
//! |---|---|
//! | `runtime` | threads, stack and memory of queries |
//! | `values` | parameters and results: values, their text, result sets |
//! | `parse` | text to syntax trees, spellings the parser lacks, names, parameters |
//! | `backends` | registry of sessions, users and their privileges, cancellation |
//! | `catalogs` | `information_schema`, `pg_catalog`, counters |
//! | `planning` | names to tables, the database as DataFusion's tables, subqueries, row locks |
//! | `execution` | INSERT, UPDATE, DELETE, MERGE, and the executor of statements on single rows |
//! | `statements` | definitions, roles, COPY, EXPLAIN, backup, kept plans |
//! | `session` | transactions, settings, prepared statements, dispatch |
//! | `api` | the types below |
//!
//! The crate `strandline-semantics` has types, casts, operators and functions.

mod api;
mod backends;
mod catalogs;
mod execution;
mod parse;
mod planning;
mod runtime;
mod session;
mod statements;
mod values;

pub use api::appender::Appender;
pub use api::backup::{RestoreOptions, RestoreReport, restore};
pub use api::connection::{Connection, Outcome, Prepared, QueryStream};
pub use api::database::{Database, DatabaseBuilder};
pub use api::rows::{TableHandle, Transaction};
pub use backends::activity::{Activity, BackendState, TransactionStatus};
pub use backends::cancel::{CancelHandle, CancelScope, Termination};
pub use backends::random::RandomSource;
pub use datafusion::scalar::ScalarValue;
pub use parse::params::{Parameter, Params};
pub use parse::redacted;
pub use parse::{StatementText, split_script};
pub use planning::context::{Progress, ProgressHook};
pub use runtime::copy_client::{CopyClient, CopyClients, SharedCopyClient};
pub use session::arrays::ParameterType;
pub use session::description::Description;
pub use session::portal::{Portal, Started};
pub use session::settings::origin::Origin;
pub use session::settings::parameters::{
    Kind as ParameterKind, PARAMETERS, Parameter as ParameterDefinition, SERVER_VERSION,
    SERVER_VERSION_NUM,
};
pub use session::settings::{ForeignParameter, SettingsVersion, ShownParameter};
pub use statements::roles::ScramVerifier;
pub use strandline_base::{
    BoxCorners, ColumnId, Error, ErrorKind, Interval, Point, Result, SqlState, SqlType, Value,
};
pub use strandline_engine::{
    BackupReport, CheckpointReport, CopyObserver, CopyProgress, Inspection, InspectionSection,
    RewindReport, Settings, TierCounts, catalog,
};
pub use strandline_semantics::wire_format;
pub use values::result::{ColumnIndex, FromCell, QueryResult, Row};
pub use values::summary::Summary;
pub use values::text::cell;
pub use values::value_row::ValueRow;
