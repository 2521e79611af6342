//! The data that `strandline inspect` prints.

use crate::catalog::TableDef;
use crate::catalog::index::IndexState;
use crate::db::Db;
use crate::db::RecoveryReport;
use crate::display::timestamp_text;
use crate::store::find_readable_index;
use crate::store::{RangeForm, RangeImage, RunRecord};
use std::sync::Arc;
use strandline_base::Result;
use strandline_device::{Device, Tier};
use strandline_index::LevelSide;
use strandline_storage::kept_log::kept_log_name;

/// Bytes of an index's entry that are printed.
const ENTRY_BYTES_SHOWN: usize = 24;

/// Numbers of unreadable blocks that are printed of a level.
const NUMBERS_SHOWN: usize = 20;

/// Sections of tables of text.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// in printing order
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
        if self.device().tiers().is_some() {
            sections.push(self.inspect_tiers()?);
        }
        sections.extend(self.inspect_block_cache());
        sections.extend(self.inspect_kept_logs());
        let catalog = self.catalog();
        sections.push(self.inspect_tables(catalog.tables.values())?);
        for table in catalog.tables.values() {
            sections.push(self.inspect_ranges(table)?);
            sections.push(self.inspect_columns(table)?);
            if table.readable_indexes().next().is_some() {
                sections.push(self.inspect_indexes(table)?);
                sections.extend(self.inspect_levels(table)?);
            }
        }
        Ok(Inspection { sections })
    }

    /// The ranges of a table as plain data: base, row map and tails, all of which it reads.
    pub fn lineage_of(&self, table: &TableDef) -> Result<Vec<RangeImage>> {
        self.store(table.storage)?.images()
    }

    /// All records of a table's update runs: by row, newest first, old values last.
    pub fn run_records_of(&self, table: &TableDef) -> Result<Vec<RunRecord>> {
        self.store(table.storage)?.run_records()
    }

    fn inspect_database(&self) -> InspectionSection {
        let mut section = InspectionSection::new("Database", &["property", "value"]);
        let mut put = |name: &str, value: String| section.rows.push(vec![name.into(), value]);
        put("location", self.device().location());
        if let Some(tiers) = self.device().tiers() {
            let name = match tiers.is_written_once(Tier::Capacity) {
                true => "object store",
                false => "capacity directory",
            };
            put(name, tiers.device_of(Tier::Capacity).location());
        }
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
        let tiers = self.device().tiers();
        let columns = ["file", "bytes", "tier"];
        let columns = match tiers {
            Some(_) => &columns[..],
            None => &columns[..2],
        };
        let mut section = InspectionSection::new("Files", columns);
        for name in self.device().list()? {
            let Ok(file) = self.device().open(&name) else {
                continue;
            };
            let tier = tiers.map(|tiers| match tiers.tier_of(&name) {
                Tier::Fast => "fast",
                Tier::Capacity => "capacity",
            });
            let mut row = vec![name, file.len()?.to_string()];
            row.extend(tier.map(str::to_string));
            section.rows.push(row);
        }
        Ok(section)
    }

    /// The directories, and the caches between them.
    fn inspect_tiers(&self) -> Result<InspectionSection> {
        let columns = ["tier", "location", "mode", "bytes", "room", "newer bytes"];
        let mut section = InspectionSection::new("Tiers", &columns);
        let number = |count: Option<u64>| count.map_or("-".to_string(), |n| n.to_string());
        for counts in self.tier_counts()? {
            section.rows.push(vec![
                counts.name.to_string(),
                counts.location,
                counts.mode.unwrap_or("-").to_string(),
                counts.bytes.to_string(),
                number(counts.bytes_max),
                number(counts.fresh_bytes),
            ]);
        }
        Ok(section)
    }

    /// The segments of the block cache, if there is one, in the order of their writing.
    fn inspect_block_cache(&self) -> Option<InspectionSection> {
        let columns = ["segment", "number", "blocks", "bytes"];
        let mut section = InspectionSection::new("Block cache", &columns);
        for segment in self.shared.files.block_cache()?.segments() {
            section.rows.push(vec![
                segment.slot.to_string(),
                segment.number.to_string(),
                segment.blocks.to_string(),
                segment.bytes.to_string(),
            ]);
        }
        Some(section)
    }

    /// The parts of the log that are kept for closed-off tables, if there are any.
    fn inspect_kept_logs(&self) -> Option<InspectionSection> {
        let columns = ["table", "file", "bytes", "through"];
        let mut section = InspectionSection::new("Kept logs", &columns);
        let kept_logs = self.checkpoint.lock().kept_logs.clone();
        for (storage, log) in kept_logs {
            for file in log.files {
                section.rows.push(vec![
                    self.table_name(storage),
                    kept_log_name(file.id),
                    file.bytes.to_string(),
                    timestamp_text(log.through.0 as i64),
                ]);
            }
        }
        (!section.rows.is_empty()).then_some(section)
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
            let store = self.any_store(table.storage)?;
            let statistics = self.statistics(table);
            let ranges = store.ranges();
            let pending = ranges.iter().map(|range| range.summary().pending);
            let pending: u64 = pending.map(u64::from).sum();
            let (runs, run_bytes) = store.run_size();
            section.rows.push(vec![
                format!("{}.{}", table.schema, table.name),
                statistics.rows.to_string(),
                ranges.len().to_string(),
                statistics.bytes.to_string(),
                pending.to_string(),
                runs.to_string(),
                run_bytes.to_string(),
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
        for range in self.any_store(table.storage)?.ranges() {
            let summary = range.summary();
            let form = match summary.form {
                RangeForm::Insert { .. } => "insert",
                RangeForm::Chunks => "chunks",
            };
            let merged = match summary.merged_through.0 {
                0 => "-".to_string(),
                ts => timestamp_text(ts as i64),
            };
            section.rows.push(vec![
                range.no().to_string(),
                form.to_string(),
                summary.rows.to_string(),
                summary.deleted.to_string(),
                summary.pending.to_string(),
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
            "storage",
            "complete since",
        ];
        let title = format!("Indexes of {}.{}", table.schema, table.name);
        let mut section = InspectionSection::new(title, &columns);
        let store = self.any_store(table.storage)?;
        for def in table.readable_indexes() {
            let index = find_readable_index(&store, table, def.id);
            let is_usable = index.as_ref().is_none_or(|index| index.is_usable());
            let state = match def.state {
                IndexState::Building => "building",
                IndexState::Valid if is_usable => "valid",
                IndexState::Valid => "unusable",
            };
            let index = index.as_deref();
            let since = match def.complete_since.0 {
                0 => "-".to_string(),
                ts => timestamp_text(ts as i64),
            };
            section.rows.push(vec![
                def.name.clone(),
                state.to_string(),
                def.unique.to_string(),
                index.map_or(0, |index| index.index.len()).to_string(),
                index.map_or(0, |index| index.bytes()).to_string(),
                index
                    .and_then(|index| index.files_in_words())
                    .unwrap_or_else(|| "memory".to_string()),
                since,
            ]);
        }
        Ok(section)
    }

    /// The heads and levels of a table's indexes in levels, if there are any; reads all blocks.
    fn inspect_levels(&self, table: &TableDef) -> Result<Option<InspectionSection>> {
        let columns = [
            "index",
            "level",
            "side",
            "blocks",
            "filter blocks",
            "entries",
            "fences",
            "fill",
            "wavefront",
            "unreadable blocks",
        ];
        let title = format!("Levels of {}.{}", table.schema, table.name);
        let mut section = InspectionSection::new(title, &columns);
        let store = self.any_store(table.storage)?;
        for def in table.readable_indexes() {
            let index = find_readable_index(&store, table, def.id);
            let Some(figures) = index.and_then(|index| index.level_figures()) else {
                continue;
            };
            for level in &figures.levels {
                let wavefront = figures.wavefront.as_deref();
                section.rows.push(vec![
                    def.name.clone(),
                    level.level.to_string(),
                    match level.side {
                        LevelSide::Only => "-".to_string(),
                        LevelSide::New => "new".to_string(),
                        LevelSide::Old => "old".to_string(),
                    },
                    level.blocks.to_string(),
                    level.filter_blocks.to_string(),
                    level.data_entries.to_string(),
                    level.fences.to_string(),
                    match level.capacity_bytes {
                        0 => "-".to_string(),
                        all => format!("{} %", level.used_bytes.saturating_mul(100) / all),
                    },
                    match (level.side, wavefront) {
                        (LevelSide::New, Some(wavefront)) => entry_text(wavefront),
                        _ => "-".to_string(),
                    },
                    numbers_text(&level.unreadable),
                ]);
            }
        }
        Ok((!section.rows.is_empty()).then_some(section))
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
        let store = self.any_store(table.storage)?;
        for column in &table.columns {
            let stored = store.column_chunks(column.id)?;
            let per_row = match stored.rows {
                0 => 0.0,
                rows => stored.bytes as f64 / rows as f64,
            };
            section.rows.push(vec![
                column.name.clone(),
                column.sql_type.to_string(),
                stored.chunks.to_string(),
                stored.bytes.to_string(),
                format!("{per_row:.2}"),
                stored.codecs.into_iter().collect::<Vec<_>>().join(", "),
            ]);
        }
        Ok(section)
    }
}

fn recovery_text(report: &RecoveryReport) -> String {
    format!(
        "{} ms: {} log records ({} bytes), {} row operations, {} run records, {} ranges, \
         {} rows entered again, {} threads",
        report.micros.div_ceil(1000),
        report.log_records,
        report.log_bytes,
        report.row_operations,
        report.run_records,
        report.ranges,
        report.entered_rows,
        report.threads,
    )
}

/// The first bytes of an index's entry, in hexadecimal.
fn entry_text(entry: &[u8]) -> String {
    let shown = entry.iter().take(ENTRY_BYTES_SHOWN);
    let shown: String = shown.map(|byte| format!("{byte:02x}")).collect();
    match entry.len() > ENTRY_BYTES_SHOWN {
        true => format!("{shown}…"),
        false => shown,
    }
}

/// The first numbers of blocks.
fn numbers_text(numbers: &[u64]) -> String {
    let shown = numbers.iter().take(NUMBERS_SHOWN);
    let shown: Vec<_> = shown.map(u64::to_string).collect();
    match (
        numbers.len().saturating_sub(NUMBERS_SHOWN),
        shown.join(", "),
    ) {
        (0, shown) if shown.is_empty() => "-".to_string(),
        (0, shown) => shown,
        (more, shown) => format!("{shown} and {more} more"),
    }
}

/// The kinds of log operations that recovery replayed, each with its number.
fn replayed_text(replayed: &[(&str, u64)]) -> String {
    let met = replayed.iter().filter(|(_, count)| *count > 0);
    let met: Vec<_> = met.map(|(kind, count)| format!("{kind} {count}")).collect();
    match met.is_empty() {
        true => "none".into(),
        false => met.join(", "),
    }
}
