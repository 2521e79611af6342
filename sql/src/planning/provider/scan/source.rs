//! A scan node's request to the engine, and the engine's scan once it is open.

use crate::planning::provider::access::{Access, Candidates};
use crate::planning::provider::filter::ScanFilters;
use crate::runtime::blocking::in_place;
use datafusion::arrow::datatypes::Schema;
use datafusion::error::DataFusionError;
use std::fmt;
use std::sync::{Arc, OnceLock};
use strandline_base::{ColumnId, CommitTs, Result};
use strandline_engine::catalog::TableDef;
use strandline_engine::{RowFilter, RowView, ScanRequest, Statement, TableScan};
use strandline_semantics::error::raise;

/// The parameters of the engine's scan.
pub(super) struct Source {
    pub table: Arc<TableDef>,
    pub statement: Arc<Statement>,
    pub as_of: Option<CommitTs>,
    pub columns: Vec<ColumnId>,
    pub with_row_id: bool,
    pub filters: ScanFilters,
    /// the indexes that may find the rows
    pub access: Option<Arc<Access>>,
    pub scan: OnceLock<Result<Arc<TableScan>>>,
}

impl Source {
    /// The same request with other filters, not open yet.
    pub fn with_filters(&self, filters: ScanFilters) -> Self {
        Self {
            table: self.table.clone(),
            statement: self.statement.clone(),
            as_of: self.as_of,
            columns: self.columns.clone(),
            with_row_id: self.with_row_id,
            filters,
            access: self.access.clone(),
            scan: OnceLock::new(),
        }
    }

    /// The rows to fetch by the present dynamic filters; None: the table is scanned.
    /// Only lists that filters have learned are looked up here, which may wait; a list that the
    /// plan has found costs nothing, so that a scan does not leave its query thread for it.
    pub fn candidates(&self) -> Result<Option<Arc<Candidates>>, DataFusionError> {
        let Some(access) = &self.access else {
            return Ok(None);
        };
        let mut learned = Vec::new();
        for filter in &self.filters.rows {
            learned.extend(filter.learned()?);
        }
        match learned.is_empty() {
            true => Ok(access.planned().cloned()),
            false => in_place(|| access.narrowed(&learned)).map_err(raise),
        }
    }

    /// The engine's scan, which the first call opens.
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

    /// A view of rows by id, at the scan's moment.
    pub fn view(&self) -> Result<RowView> {
        match self.as_of {
            Some(ts) => self.statement.view_as_of(&self.table, ts),
            None => self.statement.view(&self.table),
        }
    }

    /// Writes the table, columns and filters for EXPLAIN.
    pub fn fmt_request(
        &self,
        f: &mut fmt::Formatter<'_>,
        schema: &Schema,
        between: &str,
    ) -> fmt::Result {
        let table = &self.table;
        let columns: Vec<_> = schema.fields().iter().map(|c| c.name().as_str()).collect();
        let filters: Vec<_> = self.filters.rows.iter().map(|r| r.text()).collect();
        if table.schema != crate::parse::names::PUBLIC {
            write!(f, "{}.", table.schema)?;
        }
        write!(f, "{}", table.name)?;
        if let Some(ts) = self.as_of {
            write!(f, "{between}as_of={}", ts.0)?;
        }
        write!(f, "{between}columns=[{}]", columns.join(", "))?;
        if !filters.is_empty() {
            write!(f, "{between}filters=[{}]", filters.join(" AND "))?;
        }
        Ok(())
    }

    /// 57014 if the statement has been cancelled.
    pub fn check_cancelled(&self) -> Result<()> {
        self.statement.transaction().check_cancelled()
    }
}
