//! Statistics that the optimizer gets without reading the table.

use super::Store;
use crate::catalog::TableDef;
use std::cmp::Ordering;
use strandline_base::Value;
use strandline_table::lineage::base::{BaseBody, ColumnBounds};

/// Row count and column bounds.
#[derive(Clone, Debug, Default)]
pub struct TableStatistics {
    /// rows, an estimate while updates are pending
    pub rows: u64,
    /// encoded bytes
    pub bytes: u64,
    /// bytes in memory of the rows that are in no chunk yet
    pub inserted_bytes: u64,
    /// by position in `TableDef::columns`
    pub columns: Vec<ColumnStatistics>,
}

/// Bounds of one column as its chunks know them; pending updates may lie outside.
#[derive(Clone, Debug, Default)]
pub struct ColumnStatistics {
    /// no value in a chunk is smaller
    pub min: Option<Value>,
    /// no value in a chunk is larger
    pub max: Option<Value>,
    /// NULLs in chunks
    pub nulls: Option<u64>,
    /// encoded bytes
    pub bytes: u64,
}

impl TableStatistics {
    /// Of an empty table.
    pub fn empty(table: &TableDef) -> Self {
        Self {
            columns: vec![ColumnStatistics::default(); table.columns.len()],
            ..Self::default()
        }
    }
}

impl Store {
    /// Rows (an estimate) and, per column, min/max/null count as far as chunk footers that have
    /// been read know them; a table whose footers have not all been read yet has no bounds.
    pub fn statistics(&self, table: &TableDef) -> TableStatistics {
        let mut statistics = TableStatistics::empty(table);
        let mut known = vec![true; table.columns.len()];
        for range in self.lineage.ranges() {
            let version = range.load_full();
            let chunks = match &version.base.body {
                BaseBody::Insert(rows) => {
                    statistics.rows += u64::from(rows.rows());
                    statistics.inserted_bytes += rows.memory_bytes() as u64;
                    if rows.rows() > 0 {
                        known.fill(false);
                    }
                    continue;
                }
                BaseBody::Chunks(chunks) if chunks.rows == 0 => continue,
                BaseBody::Chunks(chunks) => chunks,
            };
            statistics.rows += u64::from(chunks.rows.saturating_sub(chunks.deleted));
            if !version.has_no_tail() {
                known.fill(false);
            }
            for (at, column) in table.columns.iter().enumerate() {
                let Some(chunk) = chunks.column(column.id) else {
                    known[at] = false;
                    continue;
                };
                let bytes = chunk.stored.extent.len;
                statistics.bytes += bytes;
                statistics.columns[at].bytes += bytes;
                match chunk.stored.known_bounds() {
                    Some(bounds) => {
                        let bounded = bounds.min.is_some() && bounds.max.is_some();
                        known[at] &= bounded || bounds.nulls == u64::from(chunks.rows);
                        add_bounds(&mut statistics.columns[at], bounds);
                    }
                    None => known[at] = false,
                }
            }
        }
        for (column, known) in statistics.columns.iter_mut().zip(known) {
            if !known {
                *column = ColumnStatistics {
                    bytes: column.bytes,
                    ..Default::default()
                };
            }
        }
        statistics
    }
}

fn add_bounds(statistics: &mut ColumnStatistics, bounds: &ColumnBounds) {
    *statistics.nulls.get_or_insert(0) += bounds.nulls;
    keep(&mut statistics.min, bounds.min.as_ref(), Ordering::Less);
    keep(&mut statistics.max, bounds.max.as_ref(), Ordering::Greater);
}

fn keep(bound: &mut Option<Value>, value: Option<&Value>, better: Ordering) {
    let Some(value) = value else { return };
    let replace = match bound {
        None => true,
        Some(bound) => value.compare(bound) == Some(better),
    };
    if replace {
        *bound = Some(value.clone());
    }
}
