//! What `strandline inspect` prints.

use crate::catalog::TableDef;
use crate::catalog::index::IndexState;
use crate::db::Db;
use crate::db::RecoveryReport;
use crate::display::timestamp_text;
use std::sync::Arc;
use strandline_base::{CommitTs, Result, RowId};
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::image::RangeImage;
use strandline_table::update_run::RunRecord;

/// Sections of tables of text.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// in the order to print
    pub sections: Vec<InspectionSection>,
}

/// One table of text.
#[derive(Clone, Debug, Default)]
pub struct InspectionSection {
    /// heading
    pub title: String,
    /// column headings
    pub columns: Vec<String>,
    /// cells
    pub rows: Vec<Vec<String>>,
}

impl InspectionSection {
    fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            title: title.into(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
        }
    }
}

impl Db {
    /// Files, tables, ranges, chunks, tails and log.
    pub fn inspect(&self) -> Result<Inspection> {
        let mut sections = vec![self.inspect_database(), self.inspect_files()?];
        let catalog = self.catalog();
        sections.push(self.inspect_tables(catalog.tables.values())?);
        for table in catalog.tables.values() {
            sections.push(self.inspect_ranges(table)?);
            sections.push(self.inspect_columns(table)?);
            if !table.indexes.is_empty() {
                sections.push(self.inspect_indexes(table)?);
            }
        }
        Ok(Inspection { sections })
    }

    /// The ranges of a table laid open: what base, row map and tails hold. Reads all of it.
    pub fn lineage_of(&self, table: &TableDef) -> Result<Vec<RangeImage>> {
        let store = self.store(table.storage)?;
        let lineage = store.lineage();
        let ranges = lineage.ranges();
        ranges.iter().map(|range| lineage.image(range)).collect()
    }

    /// All records of a table's update runs: by row, newest first, old values last.
    pub fn run_records_of(&self, table: &TableDef) -> Result<Vec<RunRecord>> {
        let store = self.store(table.storage)?;
        let lineage = store.lineage();
        lineage.history_records(RowId(0), RowId(u64::MAX), CommitTs::MAX)
    }

    fn inspect_database(&self) -> InspectionSection {
        let mut section = InspectionSection::new("Database", &["property", "value"]);
        let mut put = |name: &str, value: String| section.rows.push(vec![name.into(), value]);
        put("location", self.device().location());
        let state = self.checkpoint.lock();
        put(
            "last checkpoint",
            timestamp_text(state.checkpoint_ts.0 as i64),
        );
        put("newest commit", timestamp_text(self.stable().0 as i64));
        put("recovery", recovery_text(&self.recovery));
        put("log operations replayed", replayed_text(&self.replayed));
        put("log replay starts at", state.replay_from().to_string());
        put("log ends at", self.wal.end_lsn().0.to_string());
        put(
            "manifest",
            format!(
                "{} ({} bytes)",
                self.manifest.file().0,
                self.manifest.file().1
            ),
        );
        section
    }

    fn inspect_files(&self) -> Result<InspectionSection> {
        let mut section = InspectionSection::new("Files", &["file", "bytes"]);
        for name in self.device().list()? {
            if let Ok(file) = self.device().open(&name) {
                section.rows.push(vec![name, file.len()?.to_string()]);
            }
        }
        Ok(section)
    }

    fn inspect_tables<'a>(
        &self,
        tables: impl Iterator<Item = &'a Arc<TableDef>>,
    ) -> Result<InspectionSection> {
        let columns = [
            "table",
            "rows",
            "ranges",
            "encoded bytes",
            "pending records",
            "runs",
            "run bytes",
        ];
        let mut section = InspectionSection::new("Tables", &columns);
        for table in tables {
            let store = self.store(table.storage)?;
            let lineage = store.lineage();
            let statistics = self.statistics(table);
            let ranges = lineage.ranges();
            let pending: u64 = ranges
                .iter()
                .flat_map(|r| r.load_full().tails.clone())
                .flatten()
                .map(|t| u64::from(t.pending()))
                .sum();
            let runs = lineage.runs();
            section.rows.push(vec![
                format!("{}.{}", table.schema, table.name),
                statistics.rows.to_string(),
                ranges.len().to_string(),
                statistics.bytes.to_string(),
                pending.to_string(),
                runs.len().to_string(),
                runs.iter().map(|r| r.bytes()).sum::<u64>().to_string(),
            ]);
        }
        Ok(section)
    }

    fn inspect_ranges(&self, table: &TableDef) -> Result<InspectionSection> {
        let columns = [
            "range",
            "form",
            "rows",
            "deleted",
            "pending records",
            "merged through",
        ];
        let mut section = InspectionSection::new(
            format!("Ranges of {}.{}", table.schema, table.name),
            &columns,
        );
        for range in self.store(table.storage)?.lineage().ranges().iter() {
            let version = range.load_full();
            let pending: u32 = version.tails.iter().flatten().map(|t| t.pending()).sum();
            let (form, rows, deleted) = match &version.base.body {
                BaseBody::Insert(rows) => ("insert", rows.rows(), 0),
                BaseBody::Chunks(chunks) => ("chunks", chunks.rows, chunks.deleted),
            };
            let merged = match version.base.merged_through().0 {
                0 => "-".to_string(),
                ts => timestamp_text(ts as i64),
            };
            section.rows.push(vec![
                range.no().to_string(),
                form.to_string(),
                rows.to_string(),
                deleted.to_string(),
                pending.to_string(),
                merged,
            ]);
        }
        Ok(section)
    }

    fn inspect_indexes(&self, table: &TableDef) -> Result<InspectionSection> {
        let columns = [
            "index",
            "state",
            "unique",
            "entries",
            "bytes",
            "complete since",
        ];
        let title = format!("Indexes of {}.{}", table.schema, table.name);
        let mut section = InspectionSection::new(title, &columns);
        let store = self.store(table.storage)?;
        for def in &table.indexes {
            let state = match def.state {
                IndexState::Building => "building",
                IndexState::Valid => "valid",
            };
            let index = store.secondary_index(def.id);
            let index = index.as_ref().map(|index| &index.index);
            let since = match def.complete_since.0 {
                0 => "-".to_string(),
                ts => timestamp_text(ts as i64),
            };
            section.rows.push(vec![
                def.name.clone(),
                state.to_string(),
                def.unique.to_string(),
                index.map_or(0, |index| index.len()).to_string(),
                index.map_or(0, |index| index.memory_bytes()).to_string(),
                since,
            ]);
        }
        Ok(section)
    }

    fn inspect_columns(&self, table: &TableDef) -> Result<InspectionSection> {
        let columns = [
            "column",
            "type",
            "chunks",
            "encoded bytes",
            "bytes per row",
            "codec",
        ];
        let title = format!("Chunks of {}.{}", table.schema, table.name);
        let mut section = InspectionSection::new(title, &columns);
        let ranges = self.store(table.storage)?.lineage().ranges();
        for column in &table.columns {
            let (mut chunks, mut bytes, mut rows) = (0u64, 0u64, 0u64);
            let mut codecs = std::collections::BTreeSet::new();
            for range in ranges.iter() {
                let version = range.load_full();
                let BaseBody::Chunks(base) = &version.base.body else {
                    continue;
                };
                let Some(chunk) = base.column(column.id) else {
                    continue;
                };
                chunks += 1;
                bytes += chunk.stored.extent.len;
                rows += u64::from(base.rows);
                codecs.insert(chunk.stored.footer()?.codec().to_string());
            }
            let per_row = if rows == 0 {
                0.0
            } else {
                bytes as f64 / rows as f64
            };
            section.rows.push(vec![
                column.name.clone(),
                column.sql_type.to_string(),
                chunks.to_string(),
                bytes.to_string(),
                format!("{per_row:.2}"),
                codecs.into_iter().collect::<Vec<_>>().join(", "),
            ]);
        }
        Ok(section)
    }
}

fn recovery_text(report: &RecoveryReport) -> String {
    format!(
        "{} ms: {} log records ({} bytes), {} row operations, {} run records, {} ranges, \
         {} threads",
        report.micros.div_ceil(1000),
        report.log_records,
        report.log_bytes,
        report.row_operations,
        report.run_records,
        report.ranges,
        report.threads,
    )
}

/// Kinds of log operations that recovery met, each with its number.
fn replayed_text(replayed: &[(&str, u64)]) -> String {
    let met = replayed.iter().filter(|(_, count)| *count > 0);
    let met: Vec<_> = met.map(|(kind, count)| format!("{kind} {count}")).collect();
    match met.is_empty() {
        true => "none".into(),
        false => met.join(", "),
    }
}
