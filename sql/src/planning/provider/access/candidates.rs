//! Gathering candidates: walks over indexes that end once they have found too many rows.

use super::Access;
use super::condition::Conjunction;
use super::intervals::Interval;
use super::ranges::{IndexRanges, parts_restricted, text_of, with};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use strandline_base::{Result, RowId};
use strandline_engine::Direction;
use strandline_engine::catalog::index::IndexDef;

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

/// Rows that have all that a scan looks for, and perhaps others.
pub struct Candidates {
    /// ascending, each once
    pub rows: Vec<RowId>,
    /// entries read of indexes
    pub entries: usize,
    /// which indexes were asked, and for what
    pub text: String,
}

impl Access {
    /// The candidates for `condition`; None: no index serves it with at most `limit` entries.
    pub(super) fn gather(
        &self,
        condition: &Conjunction,
        limit: usize,
    ) -> Result<Option<Candidates>> {
        let mut found: Vec<Candidates> = Vec::new();
        let mut limit = limit;
        let mut keep = |candidates: Candidates, limit: &mut usize| {
            let most = candidates.rows.len().saturating_mul(ENTRIES_PER_CANDIDATE);
            *limit = (*limit).min(most);
            let few = candidates.rows.len() <= FEW;
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
        for (parts, index) in self.by_parts_restricted(condition) {
            let columns = index.parts.iter().take(parts);
            let columns = columns.filter_map(|part| self.terms.id_of(part));
            let columns: BTreeSet<_> = columns.collect();
            // One that another index has been asked for in full tells nothing more.
            if done || columns.is_subset(&used) {
                continue;
            }
            if let Some(candidates) = self.of_index(index, condition, limit)? {
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
        Ok(intersection(found))
    }

    /// The usable indexes whose first part is restricted, those first of which more parts are.
    fn by_parts_restricted(&self, condition: &Conjunction) -> Vec<(usize, &IndexDef)> {
        let mut indexes: Vec<_> = self
            .usable()
            .map(|index| {
                let parts = parts_restricted(index, &self.terms, &condition.columns);
                (parts, index)
            })
            .filter(|(parts, _)| *parts > 0)
            .collect();
        indexes.sort_by_key(|(parts, _)| Reverse(*parts));
        indexes
    }

    fn of_index(
        &self,
        index: &IndexDef,
        condition: &Conjunction,
        limit: usize,
    ) -> Result<Option<Candidates>> {
        let keys = self.statement.index_keys(&self.indexed, index.id)?;
        let Some(ranges) = IndexRanges::new(index, &keys, &self.terms, &condition.columns) else {
            return Ok(None);
        };
        let (mut rows, mut chunk) = (Vec::new(), Vec::new());
        for range in &ranges.ranges {
            self.statement.transaction().check_cancelled()?;
            let (table, statement) = (&self.indexed, &self.statement);
            let estimated = statement.index_estimate(table, index.id, range)?;
            if estimated.is_some_and(|n| n / ESTIMATE_FACTOR > limit.saturating_sub(rows.len())) {
                return Ok(None);
            }
            let mut entries = statement.index_cursor(table, index.id, range, Direction::Forward)?;
            let mut may_be_more = true;
            while may_be_more {
                let at_most = CHUNK.min(limit.saturating_sub(rows.len()).saturating_add(1));
                chunk.clear();
                may_be_more = entries.next_chunk(at_most, &mut chunk)?;
                rows.extend(chunk.iter().map(|(_, row)| *row));
                if rows.len() > limit {
                    return Ok(None);
                }
            }
        }
        let entries = rows.len();
        rows.sort_unstable();
        rows.dedup();
        let text = text_of(&ranges.columns, &self.terms, &condition.columns);
        Ok(Some(Candidates {
            rows,
            entries,
            text: format!("{} ({text})", index.name),
        }))
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
        let entries = rows.len();
        rows.sort_unstable();
        rows.dedup();
        let text = text_of(&def.columns, &self.terms, &condition.columns);
        Ok((entries <= limit).then(|| Candidates {
            rows,
            entries,
            text: format!("{} ({text})", def.name),
        }))
    }

    /// The candidates of any of the alternatives.
    fn of_any(&self, alternatives: &[Conjunction], limit: usize) -> Result<Option<Candidates>> {
        let mut rows = Vec::new();
        let mut entries = 0;
        let mut texts: Vec<String> = Vec::new();
        for alternative in alternatives {
            let Some(found) = self.gather(alternative, limit.saturating_sub(entries))? else {
                return Ok(None);
            };
            rows.extend(found.rows);
            entries += found.entries;
            texts.push(found.text);
        }
        rows.sort_unstable();
        rows.dedup();
        Ok(Some(Candidates {
            rows,
            entries,
            text: texts.join(" OR "),
        }))
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
