//! The database engine below SQL: catalog, transactions, write path, recovery, maintenance.
//!
//! [`Db`] is the database, [`Transaction`] a transaction, [`Statement`] one running statement with
//! its snapshot. See ARCHITECTURE.md for the protocols.

pub mod access;
mod backpressure;
mod backup;
mod bulk;
pub mod catalog;
mod catalog_edit;
mod catalog_versions;
mod check;
mod checkpoint;
mod column_predicate;
mod commit_watch;
mod compaction;
mod db;
pub mod display;
mod events;
mod history_query;
mod identity;
mod inspect;
mod key_build;
mod key_sweep;
mod load_memory;
mod log_writer;
mod maintenance;
mod manifest_state;
mod merge_schedule;
mod moved_keys;
mod open;
mod open_readers;
mod point;
mod point_table;
mod read_set;
mod recovery_report;
mod redo;
mod relaxed;
mod replay;
mod retention;
mod rewind;
mod row_locks;
mod scan;
mod settings;
mod statement;
mod statistics;
mod store;
mod transaction;
mod validation;
mod versions;

pub use backup::{BackupReport, CopyObserver, CopyProgress, restore};
pub use bulk::BulkInsert;
pub use checkpoint::CheckpointReport;
pub use column_predicate::{ColumnPredicate, CompareOp};
pub use db::Db;
pub use inspect::{Inspection, InspectionSection};
pub use point_table::{Effect, Modify, PointTable};
pub use recovery_report::RecoveryReport;
pub use relaxed::Relaxed;
pub use rewind::RewindReport;
pub use row_locks::LockWait;
pub use scan::{RowFilter, ScanMetrics, ScanRequest, TableScan, UnitReader};
pub use settings::{ConflictPolicy, DbOptions, Settings, TxnOptions};
pub use statement::{OnInvisibleDuplicate, Statement};
pub use statistics::{ColumnStatistics, TableStatistics};
pub use transaction::{Savepoint, Transaction};
pub use versions::{VersionColumn, VersionReader, VersionScan};

pub use strandline_base::{
    Clock, ColumnId, CommitTs, Error, ErrorKind, Interval, Result, RowId, SqlState, SqlType,
    StorageId, SystemClock, TableId, Value,
};
pub use strandline_device::Device;
pub use strandline_table::write::RowLock;
pub use strandline_txn::Isolation;
