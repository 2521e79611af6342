//! Gathering candidates: walks over indexes that end once they have found too many rows.

use super::Access;
use super::condition::Conjunction;
use super::intervals::Interval;
use super::places::Place;
use super::ranges::{IndexRanges, parts_restricted, text_of, with};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::{ColumnId, Result, RowId};
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::index::IndexDef;
use strandline_engine::{CoveredColumns, Direction, EntryWatch, KeyBytes};

/// Entries that are read of an index at a time.
const CHUNK: usize = 1024;
/// A scan looks up so many values of a key at most.
const KEYS_MAX: usize = 4096;
/// So few candidates are fetched rather than looked for in a second index.
const FEW: usize = 256;
/// An estimate may be off by this factor: a range of which more seems to be there than this many
/// times the limit is not walked over.
const ESTIMATE_FACTOR: usize = 2;
/// A second index is walked over so many times as many entries as there are candidates: to read an
/// entry costs a fraction of what it costs to fetch a row.
const ENTRIES_PER_CANDIDATE: usize = 8;
/// To take a row's values from its entry costs a fraction of what it costs to fetch the row: so
/// many are worth one that is fetched.
const COVERED_PER_FETCH: usize = 2;

/// Rows that have all that a scan looks for, and perhaps others.
pub struct Candidates {
    /// ascending, each once
    pub rows: Vec<RowId>,
    /// entries read of indexes
    pub entries: usize,
    /// which indexes were asked, and for what
    pub text: String,
    /// Some: the entries have the values of what the scan reads
    pub covered: Option<CoveredEntries>,
}

/// The entries of candidates in one index.
pub struct CoveredEntries {
    /// per row its entry; None: it has several
    pub keys: Vec<Option<KeyBytes>>,
    /// made before the entries were read
    pub watch: EntryWatch,
    index: Arc<IndexDef>,
}

impl CoveredEntries {
    /// Where the entries of the rows of `table` have `columns`; None: they do not have them all.
    pub fn columns(&self, table: &TableDef, columns: &[ColumnId]) -> Option<CoveredColumns> {
        CoveredColumns::of(table, &self.index, columns)
    }
}

impl Access {
    /// The candidates for `condition`, perhaps with their entries; None: no index serves it with at
    /// most `limit` entries.
    pub(super) fn gather(
        &self,
        condition: &Conjunction,
        limit: usize,
    ) -> Result<Option<Candidates>> {
        self.gather_from(condition, limit, true)
    }

    /// `is_whole`: the candidates are those of the scan, so that their entries are of use.
    fn gather_from(
        &self,
        condition: &Conjunction,
        limit: usize,
        is_whole: bool,
    ) -> Result<Option<Candidates>> {
        let mut found: Vec<Candidates> = Vec::new();
        let mut limit = limit;
        let mut keep = |candidates: Candidates, limit: &mut usize| {
            let most = candidates.rows.len().saturating_mul(ENTRIES_PER_CANDIDATE);
            *limit = (*limit).min(most);
            let enough = match candidates.covered {
                Some(_) => FEW * COVERED_PER_FETCH,
                None => FEW,
            };
            let few = candidates.rows.len() <= enough;
            found.push(candidates);
            few
        };
        let mut done = false;
        let mut used = BTreeSet::new();
        for key in &self.keys {
            if done {
                break;
            }
            if let Some(candidates) = self.of_key(*key, condition, limit)? {
                done = keep(candidates, &mut limit);
            }
        }
        for place in &condition.places {
            if done {
                break;
            }
            if let Some(candidates) = self.of_place(place, limit)? {
                done = keep(candidates, &mut limit);
            }
        }
        for (parts, index) in self.by_parts_restricted(condition, is_whole) {
            let columns = index.parts.iter().take(parts);
            let columns = columns.filter_map(|part| self.terms.id_of(part));
            let columns: BTreeSet<_> = columns.collect();
            // One that another index has been asked for in full tells nothing more.
            if done || columns.is_subset(&used) {
                continue;
            }
            let covers = is_whole && self.covers(index);
            if let Some(candidates) = self.of_index(index, condition, limit, covers)? {
                done = keep(candidates, &mut limit);
                used.extend(columns);
            }
        }
        for alternatives in &condition.any {
            if done {
                break;
            }
            if let Some(candidates) = self.of_any(alternatives, limit)? {
                done = keep(candidates, &mut limit);
            }
        }
        Ok(cheapest(found))
    }

    /// Whether the entries of an index have the values of what the scan reads.
    fn covers(&self, index: &IndexDef) -> bool {
        CoveredColumns::of(&self.table, index, &self.read).is_some()
    }

    /// The usable indexes whose first part is restricted, those first of which more parts are;
    /// among equals those that cover what the scan reads, if it `is_whole`.
    fn by_parts_restricted(
        &self,
        condition: &Conjunction,
        is_whole: bool,
    ) -> Vec<(usize, &Arc<IndexDef>)> {
        let mut indexes: Vec<(usize, &Arc<IndexDef>)> = self
            .ordered()
            .map(|index| {
                let parts = parts_restricted(index, &self.terms, &condition.columns);
                (parts, index)
            })
            .filter(|(parts, _)| *parts > 0)
            .collect();
        indexes
            .sort_by_cached_key(|(parts, index)| Reverse((*parts, is_whole && self.covers(index))));
        indexes
    }

    fn of_index(
        &self,
        index: &Arc<IndexDef>,
        condition: &Conjunction,
        limit: usize,
        covers: bool,
    ) -> Result<Option<Candidates>> {
        let limit = match covers {
            true => limit.saturating_mul(COVERED_PER_FETCH),
            false => limit,
        };
        let keys = self.statement.index_keys(&self.indexed, index.id)?;
        let Some(ranges) = IndexRanges::new(index, &keys, &self.terms, &condition.columns) else {
            return Ok(None);
        };
        let watch = self.statement.watch_entries(&self.indexed, index.id)?;
        let (mut rows, mut chunk) = (Vec::new(), Vec::new());
        let mut keyed = Vec::new();
        let mut entries_read = 0_usize;
        for range in &ranges.ranges {
            self.statement.transaction().check_cancelled()?;
            let (table, statement) = (&self.indexed, &self.statement);
            let estimated = statement.index_estimate(table, index.id, range)?;
            let left = limit.saturating_sub(entries_read);
            if estimated.is_some_and(|n| n / ESTIMATE_FACTOR > left) {
                return Ok(None);
            }
            let mut entries = statement.index_cursor(table, index.id, range, Direction::Forward)?;
            let mut may_be_more = true;
            while may_be_more {
                let left = limit.saturating_sub(entries_read);
                let at_most = CHUNK.min(left.saturating_add(1));
                chunk.clear();
                may_be_more = entries.next_chunk(at_most, &mut chunk)?;
                entries_read += chunk.len();
                match covers {
                    true => keyed.extend(chunk.drain(..).map(|(key, row)| (row, key))),
                    false => rows.extend(chunk.iter().map(|(_, row)| *row)),
                }
                if entries_read > limit {
                    return Ok(None);
                }
            }
        }
        let text = text_of(&ranges.columns, &self.terms, &condition.columns);
        let found = Candidates {
            entries: entries_read,
            rows,
            text: format!("{} ({text})", index.name),
            covered: None,
        };
        Ok(Some(match covers {
            true => found.with_entries(keyed, watch, index),
            false => found.sorted(),
        }))
    }

    /// The candidates by an R-tree over the term of a place.
    fn of_place(&self, place: &Place, limit: usize) -> Result<Option<Candidates>> {
        let Some(index) = self.over_place(place.term) else {
            return Ok(None);
        };
        let mut rows = Vec::new();
        let (table, statement) = (&self.indexed, &self.statement);
        if !statement.rows_at(table, index.id, &place.query, (limit, &mut rows))? {
            return Ok(None);
        }
        let term = self.terms.text(place.term);
        let found = Candidates {
            entries: rows.len(),
            rows,
            text: format!("{} ({term} {})", index.name, place.text),
            covered: None,
        };
        Ok(Some(found.sorted()))
    }

    /// The candidates by the hash index of a key, if all its columns have known values.
    fn of_key(
        &self,
        key: usize,
        condition: &Conjunction,
        limit: usize,
    ) -> Result<Option<Candidates>> {
        let Some(def) = self.indexed.keys.get(key) else {
            return Ok(None);
        };
        let most = limit.min(KEYS_MAX);
        let mut keys = vec![Vec::with_capacity(def.columns.len())];
        for id in &def.columns {
            let known = condition.columns.get(id).filter(|known| !known.null);
            let points = known.map(|known| known.values.iter().map(Interval::point));
            let points = points.and_then(Iterator::collect::<Option<Vec<_>>>);
            let Some(points) = points.filter(|p| keys.len().saturating_mul(p.len()) <= most) else {
                return Ok(None);
            };
            let longer = keys
                .iter()
                .flat_map(|key| points.iter().map(|point| with(key, point)));
            keys = longer.collect();
        }
        let mut rows = Vec::with_capacity(keys.len());
        for values in &keys {
            self.statement
                .rows_of_key(&self.indexed, key, values, &mut rows)?;
        }
        let text = text_of(&def.columns, &self.terms, &condition.columns);
        let found = Candidates {
            entries: rows.len(),
            rows,
            text: format!("{} ({text})", def.name),
            covered: None,
        };
        Ok((found.entries <= limit).then(|| found.sorted()))
    }

    /// The candidates of any of the alternatives.
    fn of_any(&self, alternatives: &[Conjunction], limit: usize) -> Result<Option<Candidates>> {
        let mut rows = Vec::new();
        let mut entries = 0;
        let mut texts: Vec<String> = Vec::new();
        for alternative in alternatives {
            let left = limit.saturating_sub(entries);
            let Some(found) = self.gather_from(alternative, left, false)? else {
                return Ok(None);
            };
            rows.extend(found.rows);
            entries += found.entries;
            texts.push(found.text);
        }
        let found = Candidates {
            rows,
            entries,
            text: texts.join(" OR "),
            covered: None,
        };
        Ok(Some(found.sorted()))
    }
}

impl Candidates {
    /// With the rows in order, each once.
    fn sorted(mut self) -> Self {
        self.rows.sort_unstable();
        self.rows.dedup();
        self
    }

    /// With the rows of these entries, read under `watch`, and their keys.
    fn with_entries(
        mut self,
        mut entries: Vec<(RowId, KeyBytes)>,
        watch: EntryWatch,
        index: &Arc<IndexDef>,
    ) -> Self {
        entries.sort_unstable();
        let mut keys: Vec<Option<KeyBytes>> = Vec::with_capacity(entries.len());
        self.rows.reserve_exact(entries.len());
        for (row, key) in entries {
            match keys.last_mut().filter(|_| self.rows.last() == Some(&row)) {
                Some(known) if known.as_ref() == Some(&key) => {}
                Some(known) => *known = None,
                None => {
                    self.rows.push(row);
                    keys.push(Some(key));
                }
            }
        }
        self.covered = Some(CoveredEntries {
            keys,
            watch,
            index: index.clone(),
        });
        self
    }
}

/// The candidates that cost least of those that are in all lists; None: there is no list.
fn cheapest(mut found: Vec<Candidates>) -> Option<Candidates> {
    if found.len() < 2 {
        return found.pop();
    }
    let covered = found.iter_mut().find(|list| list.covered.is_some());
    let covered = covered.map(|list| {
        let plain = Candidates {
            rows: list.rows.clone(),
            entries: list.entries,
            text: list.text.clone(),
            covered: None,
        };
        std::mem::replace(list, plain)
    });
    let common = intersection(found)?;
    match covered {
        Some(covered) if covered.rows.len() <= common.rows.len() * COVERED_PER_FETCH => {
            Some(Candidates {
                entries: common.entries,
                ..covered
            })
        }
        _ => Some(common),
    }
}

/// The rows that are in all lists; None: there is no list.
fn intersection(mut found: Vec<Candidates>) -> Option<Candidates> {
    found.sort_by_key(|candidates| candidates.rows.len());
    let mut lists = found.into_iter();
    let mut common = lists.next()?;
    for other in lists {
        let before = common.rows.len();
        let mut others = other.rows.iter().peekable();
        common.rows.retain(|row| {
            while others.next_if(|other| *other < row).is_some() {}
            others.peek() == Some(&row)
        });
        common.entries += other.entries;
        if common.rows.len() < before {
            common.text = format!("{} AND {}", common.text, other.text);
        }
    }
    Some(common)
}
