//! The database engine below SQL: catalog, transactions, write path, recovery, maintenance.
//!
//! [`Db`] is the database, [`Transaction`] a transaction, [`Statement`] one running statement with
//! its snapshot. See ARCHITECTURE.md for the protocols.
//!
//! Rooms, lowest first; a room imports only from rooms above it in this list:
//!
//! | room | what is in it |
//! |---|---|
//! | `expressions` | the interface of immutable expressions over a row |
//! | `settings`, `display`, `events` | options, text of values, events for `tracing` |
//! | `request` | the request of a scan: columns, conditions |
//! | `catalog` | definitions, their versions and differences, rights, identities, retention |
//! | `index_files` | the files of indexes, and their records in the log |
//! | `store` | one table's rows, its key indexes and the locks of its definition |
//! | `manifest_state` | the manifest's records: catalogs and storages at a checkpoint |
//! | `redo` | the log record of a transaction: a file for each kind of operation |
//! | `db` | [`Db`]: the state that transactions, maintenance and recovery share |
//! | `maintenance` | checkpoints, merges, compaction of runs, sweeps, the log's writer |
//! | `transaction` | begin, savepoints, catalog changes, validation, commit, rollback |
//! | `statement` | changes of rows, keys, point operations, bulk loads |
//! | `scan` | reads of tables, of their versions and statistics |
//! | `recovery` | creating and opening a database |
//! | `admin` | backup, check, inspection, going back to a moment, sizes of the caches |

mod admin;
pub mod catalog;
mod db;
pub mod display;
mod events;
pub mod expressions;
mod index_files;
mod maintenance;
mod manifest_state;
mod recovery;
mod redo;
mod request;
mod scan;
mod settings;
mod statement;
mod store;
mod transaction;

pub use admin::{
    BackupReport, CopyObserver, CopyProgress, Inspection, InspectionSection, RewindReport,
    TierCounts, restore,
};
pub use catalog::access;
pub use db::{BuildPhase, BuildProgress, Db, RecoveryReport};
pub use maintenance::CheckpointReport;
pub use request::{ColumnPredicate, CompareOp, RowFilter, ScanRequest};
pub use scan::{
    Relaxed, ScanMetrics, TableScan, UnitReader, VersionColumn, VersionReader, VersionScan,
};
pub use settings::{CacheSettings, ConflictPolicy, DbOptions, Settings, TxnOptions};
pub use statement::{
    BulkInsert, CoveredColumns, Covering, Effect, EntryWatch, GoneEntries, IndexRows, LockWait,
    Modify, NearestEntries, OnInvisibleDuplicate, PointTable, RowKeys, RowRules, RowView,
    Statement,
};
pub use store::{ColumnStatistics, TableStatistics};
pub use transaction::{Savepoint, Transaction};

pub use strandline_base::{
    BoxCorners, Clock, ColumnId, CommitTs, Error, ErrorKind, Interval, Point, Result, RowId,
    SqlState, SqlType, StorageId, SystemClock, TableId, Value,
};
pub use strandline_device::{Device, Tier, TieredDevice};
pub use strandline_index::{
    Direction, KeyBytes, KeyRange, OrderedKeys, PartOrder, Rect, SpatialIndex, SpatialQuery,
};
pub use strandline_storage::block_cache::{
    Admission as BlockCacheAdmission, Stats as BlockCacheStats,
};
pub use strandline_storage::ssd_cache::{
    Admission as SsdCacheAdmission, Mode as SsdCacheMode, Stats as SsdCacheStats,
};
pub use strandline_storage::tiers::recorded_capacity_path;
pub use strandline_tail::change::RowLock;
pub use strandline_txn::Isolation;
