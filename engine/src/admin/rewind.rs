//! Rewind: one transaction that makes the state of an earlier moment the present one.
//!
//! Definitions become those of that moment. Every table gets a new storage, loaded with the rows
//! that it had then. Later changes remain history: moments before the rewind can be read until the
//! tables' retention ends. Counters of identity columns continue, so that no number is used twice.

use crate::catalog::index::IndexState;
use crate::catalog::{Catalog, TableDef};
use crate::db::Db;
use crate::request::ScanRequest;
use crate::settings::TxnOptions;
use crate::statement::Statement;
use std::sync::Arc;
use strandline_base::utc::format_utc;
use strandline_base::{CommitTs, Error, Result, SqlState, TableId};

/// Result of a rewind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewindReport {
    /// tables at that moment
    pub tables: u64,
    /// rows in them
    pub rows: u64,
}

impl Db {
    /// Makes the state as of `moment` the present one, including definitions; all or nothing.
    ///
    /// # Errors
    /// 22023 if `moment` is later than the newest commit; 72000 if it is older than the history of
    /// some table.
    pub fn rewind(self: &Arc<Self>, moment: CommitTs) -> Result<RewindReport> {
        let newest = self.stable();
        if moment > newest {
            return Err(Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                format!(
                    "{} is later than the last moment there is, {}",
                    format_utc(moment.0),
                    format_utc(newest.0)
                ),
            ));
        }
        let past = self.catalog_at(moment)?;
        let transaction = self.begin(TxnOptions::default())?;
        let mut restored = Vec::new();
        transaction.change_catalog(&mut |catalog| {
            restored = replace_definitions(catalog, &past);
            Ok(())
        })?;
        // The change has added what the engine knows: since when indexes are complete, their files.
        let present = transaction.next_catalog();
        let statement = transaction.begin_statement()?;
        let mut report = RewindReport::default();
        for (then, now) in &restored {
            let now = present
                .tables
                .get(now)
                .ok_or_else(|| Error::internal("a table is gone"))?;
            report.tables += 1;
            report.rows += load(&statement, then, now, moment)
                .map_err(|e| e.context(format!("table \"{}\"", then.name)))?;
        }
        // The rows satisfied the same foreign keys then, except that NOT VALID ones may have
        // orphans.
        statement.forget_row_events();
        statement.finish()?;
        transaction.commit()?;
        Ok(report)
    }
}

/// Puts the definitions of `past` into `catalog`, with new storages. Returns each table's past
/// definition and its number.
fn replace_definitions(catalog: &mut Catalog, past: &Catalog) -> Vec<(Arc<TableDef>, TableId)> {
    let tables: Vec<Arc<TableDef>> = past.tables.values().cloned().collect();
    // Numbers that have been used stay used.
    *catalog = Catalog {
        next_table: catalog.next_table,
        next_storage: catalog.next_storage,
        tables: std::collections::BTreeMap::new(),
        ..past.clone()
    };
    let mut restored = Vec::with_capacity(tables.len());
    for then in tables {
        let mut now = TableDef {
            storage: catalog.new_storage_id(),
            ..TableDef::clone(&then)
        };
        // Nothing builds the unfinished indexes any more.
        now.indexes.retain(|index| index.state == IndexState::Valid);
        restored.push((then, now.id));
        catalog.tables.insert(now.id, Arc::new(now));
    }
    restored
}

/// Loads into `now` the rows that `then` had at `moment`; returns their number.
fn load(
    statement: &Arc<Statement>,
    then: &Arc<TableDef>,
    now: &Arc<TableDef>,
    moment: CommitTs,
) -> Result<u64> {
    let request = ScanRequest {
        columns: then.columns.iter().map(|column| column.id).collect(),
        ..ScanRequest::default()
    };
    let scan = statement.scan_as_of(then, moment, request)?;
    let mut rows = statement.bulk_insert(now)?;
    for unit in 0..scan.units() {
        for batch in scan.read_unit(unit)? {
            rows.append(&batch)?;
        }
    }
    rows.finish()
}
