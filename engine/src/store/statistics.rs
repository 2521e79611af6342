//! Statistics that the optimizer gets without reading the table.

use super::Store;
use crate::catalog::{ColumnDef, TableDef};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{ColumnId, Value};
use strandline_table::lineage::base::{BaseBody, ChunkBase, ColumnBounds};

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

/// About the bounds of one column: values that no chunk has yet may lie outside.
#[derive(Clone, Debug, Default)]
pub struct ColumnStatistics {
    /// the least value; None: not known
    pub min: Option<Value>,
    /// the greatest value; None: not known
    pub max: Option<Value>,
    /// NULLs in chunks
    pub nulls: Option<u64>,
    /// encoded bytes
    pub bytes: u64,
}

/// The least and the greatest value of columns, by their ids, as the manifest keeps them: those of
/// integers, dates and times.
pub type KnownBounds = BTreeMap<ColumnId, (Value, Value)>;

impl TableStatistics {
    /// Of an empty table.
    pub fn empty(table: &TableDef) -> Self {
        Self {
            columns: vec![ColumnStatistics::default(); table.columns.len()],
            ..Self::default()
        }
    }
}

/// What the chunks of one column say.
#[derive(Default)]
struct Gathered {
    column: ColumnStatistics,
    /// the bounds of a chunk are not in memory
    is_partial: bool,
}

impl Gathered {
    /// Adds what the base of a range says of a column. One that was added later has its missing
    /// value there.
    fn add_base(&mut self, chunks: &ChunkBase, id: ColumnId) {
        match chunks.column(id) {
            Some(chunk) => {
                self.column.bytes += chunk.stored.extent.len;
                self.add(chunk.stored.known_bounds(), chunks.rows);
            }
            None => self.is_partial |= chunks.rows > 0,
        }
    }

    /// Adds a chunk with `rows` rows.
    fn add(&mut self, bounds: Option<&ColumnBounds>, rows: u32) {
        let column = &mut self.column;
        let is_known = bounds.is_some_and(|bounds| {
            bounds.min.is_some() && bounds.max.is_some() || bounds.nulls == u64::from(rows)
        });
        self.is_partial |= !is_known;
        if let Some(bounds) = bounds {
            *column.nulls.get_or_insert(0) += bounds.nulls;
            keep(&mut column.min, bounds.min.as_ref(), Ordering::Less);
            keep(&mut column.max, bounds.max.as_ref(), Ordering::Greater);
        }
    }

    /// With the bounds as of a checkpoint in place of those that are not in memory.
    fn complete(mut self, saved: Option<&(Value, Value)>) -> ColumnStatistics {
        if self.is_partial {
            self.column.nulls = None;
            match saved {
                Some((min, max)) => {
                    keep(&mut self.column.min, Some(min), Ordering::Less);
                    keep(&mut self.column.max, Some(max), Ordering::Greater);
                }
                None => (self.column.min, self.column.max) = (None, None),
            }
        }
        self.column
    }
}

impl Store {
    /// Rows and, per column, bounds and NULLs, without reading the table: estimates. Bounds are
    /// those of the chunk footers that are in memory, and of the newest checkpoint for the others.
    pub fn statistics(&self, table: &TableDef) -> TableStatistics {
        let mut statistics = TableStatistics::empty(table);
        let mut columns: Vec<Gathered> = Vec::new();
        columns.resize_with(table.columns.len(), Gathered::default);
        for range in self.lineage.ranges() {
            let version = range.load_full();
            let chunks = match &version.base.body {
                BaseBody::Insert(rows) => {
                    statistics.rows += u64::from(rows.rows());
                    statistics.inserted_bytes += rows.memory_bytes() as u64;
                    continue;
                }
                BaseBody::Chunks(chunks) => chunks,
            };
            statistics.rows += u64::from(chunks.rows.saturating_sub(chunks.deleted));
            for (column, gathered) in table.columns.iter().zip(&mut columns) {
                gathered.add_base(chunks, column.id);
            }
        }
        let saved = self.bounds.load();
        let complete =
            |(column, gathered): (&ColumnDef, Gathered)| gathered.complete(saved.get(&column.id));
        statistics.columns = table.columns.iter().zip(columns).map(complete).collect();
        statistics.bytes = statistics.columns.iter().map(|column| column.bytes).sum();
        statistics
    }

    /// The bounds of a checkpoint.
    pub(crate) fn set_bounds(&self, bounds: KnownBounds) {
        self.bounds.store(Arc::new(bounds));
    }

    /// The bounds of the first `columns` columns of `bodies`, the bases of all ranges at a
    /// checkpoint.
    pub(crate) fn bounds_of(
        &self,
        bodies: impl Iterator<Item = BaseBody>,
        columns: usize,
    ) -> KnownBounds {
        let mut gathered: Vec<Gathered> = Vec::new();
        gathered.resize_with(columns, Gathered::default);
        for body in bodies {
            let BaseBody::Chunks(chunks) = body else {
                continue;
            };
            for (id, gathered) in (0..).map(ColumnId).zip(&mut gathered) {
                gathered.add_base(&chunks, id);
            }
        }
        let saved = self.bounds.load();
        let known = |(id, gathered): (ColumnId, Gathered)| {
            let column = gathered.complete(saved.get(&id));
            let (min, max) = column.min.zip(column.max)?;
            (is_kept(&min) && is_kept(&max)).then_some((id, (min, max)))
        };
        let bounds = (0..).map(ColumnId).zip(gathered).filter_map(known);
        bounds.collect()
    }
}

/// Whether the manifest keeps a bound: not text, which may be long, and no floating-point number,
/// of which JSON does not have all.
fn is_kept(bound: &Value) -> bool {
    matches!(
        bound,
        Value::SmallInt(_)
            | Value::Integer(_)
            | Value::BigInt(_)
            | Value::Date(_)
            | Value::Time(_)
            | Value::Timestamp(_)
            | Value::TimestampTz(_)
    )
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn saved_bounds_stand_for_chunks_that_were_not_read() {
        let number = Value::BigInt;
        let chunk = |min: Option<i64>, max: Option<i64>, nulls| ColumnBounds {
            min: min.map(number),
            max: max.map(number),
            nulls,
        };
        let saved = (number(-2), number(9));
        let of = |chunks: &[Option<ColumnBounds>], saved: Option<&(Value, Value)>| {
            let mut gathered = Gathered::default();
            for bounds in chunks {
                gathered.add(bounds.as_ref(), 10);
            }
            let column = gathered.complete(saved);
            (column.min.zip(column.max), column.nulls)
        };
        let known = || Some(chunk(Some(1), Some(5), 2));
        let bounds = |min, max| Some((number(min), number(max)));
        let all_null = || Some(chunk(None, None, 10));
        assert_eq!(of(&[], None), (None, None));
        assert_eq!(of(&[known()], None), (bounds(1, 5), Some(2)));
        assert_eq!(
            of(&[known(), all_null()], Some(&saved)),
            (bounds(1, 5), Some(12))
        );
        assert_eq!(of(&[known(), None], None), (None, None));
        assert_eq!(of(&[known(), None], Some(&saved)), (bounds(-2, 9), None));
        let wide = Some(chunk(Some(-7), Some(3), 0));
        assert_eq!(of(&[None, wide], Some(&saved)), (bounds(-7, 9), None));
        // Not all values NULL, and no bounds.
        let unknown = Some(chunk(None, None, 1));
        assert_eq!(of(&[known(), unknown], None), (None, None));
    }
}
