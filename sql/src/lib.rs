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
//! * [`Connection::transaction`] gives reads and writes by key that never enter the query engine.
//! * [`Connection::appender`] loads in bulk.
//! * Results are Arrow batches ([`QueryResult::batches`]) and typed rows ([`Row::get`]).
//!
//! Inside: `session` dispatches statements, `context` is what one running statement has in hand,
//! `provider` is the database as DataFusion sees it, `ddl` and `dml` change it, `roles` says who
//! may, `pg_catalog` shows it, `subplan` runs the subqueries that DataFusion cannot join. Types,
//! casts, operators and functions are the crate `strandline-semantics`. See ARCHITECTURE.md.

mod appender;
mod backup;
mod blocking;
mod connection;
mod context;
mod copy;
mod database;
mod ddl;
mod deep;
mod dml;
mod execute_many;
mod explain;
mod information_schema;
mod locking;
mod names;
mod owner;
mod parallelism;
mod params;
mod parse;
mod pg_catalog;
mod plan_cache;
mod planner;
mod point;
mod point_path;
mod portal;
mod provider;
mod query_memory;
mod references;
mod request;
mod result;
mod roles;
mod session;
mod single_row;
mod statistics;
mod subplan;
mod template;
mod text;
mod value;
mod value_row;

pub use appender::Appender;
pub use backup::{RestoreReport, restore};
pub use connection::{Connection, Outcome, Prepared, QueryStream};
pub use context::{Progress, ProgressHook};
pub use copy::{CopyClient, SharedCopyClient};
pub use database::{Database, DatabaseBuilder};
pub use datafusion::scalar::ScalarValue;
pub use params::{Parameter, Params};
pub use parse::redacted;
pub use parse::{StatementText, split_script};
pub use point::{TableHandle, Transaction};
pub use portal::{Portal, Started};
pub use result::{ColumnIndex, FromCell, QueryResult, Row};
pub use roles::{RandomSource, ScramVerifier};
pub use session::activity::{Activity, BackendState};
pub use session::arrays::ParameterType;
pub use session::cancel::{CancelHandle, CancelScope, Termination};
pub use session::describe::Description;
pub use session::outcome::{Summary, TransactionStatus};
pub use session::settings::origin::Origin;
pub use session::settings::parameters::{
    Kind as ParameterKind, PARAMETERS, Parameter as ParameterDefinition, SERVER_VERSION,
    SERVER_VERSION_NUM,
};
pub use session::settings::{ForeignParameter, SettingsVersion, ShownParameter};
pub use strandline_base::{ColumnId, Error, ErrorKind, Interval, Result, SqlState, SqlType, Value};
pub use strandline_engine::{
    BackupReport, CheckpointReport, CopyObserver, CopyProgress, Inspection, InspectionSection,
    RewindReport, Settings, catalog,
};
pub use strandline_semantics::wire_format;
pub use text::cell;
pub use value_row::ValueRow;
