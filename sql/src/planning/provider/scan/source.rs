//! What a scan node asks of the engine, and the engine's scan once it is open.

use crate::planning::provider::filter::ScanFilters;
use std::sync::{Arc, OnceLock};
use strandline_base::{ColumnId, CommitTs, Result};
use strandline_engine::catalog::TableDef;
use strandline_engine::{RowFilter, ScanRequest, Statement, TableScan};

/// What the engine is asked for.
pub(super) struct Source {
    pub table: Arc<TableDef>,
    pub statement: Arc<Statement>,
    pub as_of: Option<CommitTs>,
    pub columns: Vec<ColumnId>,
    pub with_row_id: bool,
    pub filters: ScanFilters,
    pub scan: OnceLock<Result<Arc<TableScan>>>,
}

impl Source {
    /// The same with other filters, not open yet.
    pub fn with_filters(&self, filters: ScanFilters) -> Self {
        Self {
            table: self.table.clone(),
            statement: self.statement.clone(),
            as_of: self.as_of,
            columns: self.columns.clone(),
            with_row_id: self.with_row_id,
            filters,
            scan: OnceLock::new(),
        }
    }

    /// The engine's scan, opened at the first call.
    pub fn open(&self) -> Result<Arc<TableScan>> {
        self.scan
            .get_or_init(|| {
                let rows = self.filters.rows.iter();
                let request = ScanRequest {
                    columns: self.columns.clone(),
                    with_row_id: self.with_row_id,
                    prune: self.filters.prune.clone(),
                    filters: rows.map(|f| f.clone() as Arc<dyn RowFilter>).collect(),
                };
                match self.as_of {
                    Some(ts) => self.statement.scan_as_of(&self.table, ts, request),
                    None => self.statement.scan(&self.table, request),
                }
            })
            .clone()
    }

    /// 57014 if the statement has been cancelled.
    pub fn check_cancelled(&self) -> Result<()> {
        self.statement.transaction().check_cancelled()
    }
}
