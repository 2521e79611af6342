//! Running a search: candidates from a key or an index, rows from candidates.

use super::condition_values::{RowBound, Values};
use super::execution::{Decided, Execution};
use super::found_rows::{ByEntry, End, FoundRows, Locking, stored};
use super::search::{IndexPath, KeyPath, Next, Path, Search};
use super::sets::{ROWS_MAX, Sets, numbers};
use super::source::Source;
use super::value::{integer, integer_value};
use crate::planning::locking::Lock;
use std::ops::Bound;
use std::sync::Arc;
use strandline_base::{Result, RowId, SqlType, Value};
use strandline_engine::catalog::TableDef;
use strandline_engine::{
    CoveredColumns, Covering, Direction, EntryWatch, GoneEntries, KeyBytes, KeyRange, RowView,
    ScanRequest, Statement,
};

/// A walk passes over so many entries for each row that is wanted, beside [`ROWS_MAX`]: of rows
/// that tests keep back, and of keys that rows have left.
const ENTRIES_PER_ROW: usize = 4;
/// Keys that rows have left which a walk passes over.
const LEFT_KEYS_MAX: usize = 4096;
/// A walk reads so many entries at a time at most.
const STEP_MAX: usize = 64;

impl IndexPath {
    /// Some: rows may be read by their entries, which are read after this.
    fn watch(&self, statement: &Statement, table: &TableDef) -> Result<Option<EntryWatch>> {
        let watch = || statement.watch_entries(table, self.index);
        self.covered.as_ref().map(|_| watch()).transpose()
    }

    /// Whether each row that has a key of the range passes.
    fn is_exact(&self, search: &Search) -> bool {
        let used = self.points.len() + usize::from(matches!(self.next, Next::Test(_)));
        let has_others = !search.rows.is_empty() || search.residual.is_some();
        search.tests.len() == used && !has_others
    }

    /// So many more entries are tried if each row that has a key of the range passes: keys that
    /// rows have left, as a queue leaves them behind.
    fn left_keys(&self, search: &Search) -> usize {
        match self.is_exact(search) {
            true => LEFT_KEYS_MAX,
            false => 0,
        }
    }

    /// So many of `offset` rows a walk may pass over by their entries alone.
    fn skipped(&self, search: &Search, offset: usize) -> usize {
        match self.is_exact(search) && search.sort.is_none() {
            true => offset,
            false => 0,
        }
    }

    /// How rows are read by entries.
    fn covering<'a>(&'a self, watch: Option<&'a EntryWatch>) -> Option<Covering<'a>> {
        let columns = self.covered.as_ref()?;
        watch.map(|watch| Covering { columns, watch })
    }

    /// The keys that begin with `prefix` and whose next part passes its test; of a row test, those
    /// that pass it.
    fn range(&self, prefix: &[Value], sets: &Sets<'_>) -> KeyRange {
        let mut range = self.range_of_test(prefix, sets);
        let row = self.row.and_then(|(at, columns)| {
            let bound = sets.rows.get(at)?;
            self.range_of_row(prefix, bound, columns)
        });
        if let Some(row) = row {
            range.from = range.from.max(row.from);
            range.before = match (range.before, row.before) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        range
    }

    fn range_of_test(&self, prefix: &[Value], sets: &Sets<'_>) -> KeyRange {
        let (lower, upper) = match self.next {
            Next::Open => return self.keys.prefix(prefix),
            Next::NotNull => (Bound::Unbounded, Bound::Unbounded),
            Next::Test(test) => match &sets.values[test] {
                Values::Within(lower, upper) => (lower.as_ref(), upper.as_ref()),
                Values::Points(_) => return self.keys.prefix(prefix),
            },
        };
        match self.next_descending {
            false => self.keys.range(prefix, lower, upper),
            true => self.keys.range(prefix, upper, lower),
        }
    }

    /// A range that has the keys behind `prefix` that pass a row test of the next `columns` parts,
    /// with one bound. None: it is not known.
    fn range_of_row(&self, prefix: &[Value], bound: &RowBound, columns: usize) -> Option<KeyRange> {
        let known = bound.known();
        let (last, first) = known[..columns.min(known.len())].split_last()?;
        // Rows that agree in these columns may pass by the others.
        let is_whole = first.len() + 1 == bound.values.len();
        let side = match is_whole && !bound.inclusive {
            true => Bound::Excluded(last),
            false => Bound::Included(last),
        };
        let mut equal = prefix.to_vec();
        equal.extend_from_slice(first);
        let is_begin = bound.is_lower != self.next_descending;
        Some(match is_begin {
            true => KeyRange {
                before: None,
                ..self.keys.range(&equal, side, Bound::Unbounded)
            },
            false => KeyRange {
                from: None,
                ..self.keys.range(&equal, Bound::Unbounded, side)
            },
        })
    }
}

impl Execution<'_> {
    /// The rows of a search, one after the other, of each the columns that it reads.
    pub(super) fn find(
        &self,
        statement: &Arc<Statement>,
        table: &Arc<TableDef>,
        search: &Search,
        lock: Option<Lock>,
    ) -> Decided<Vec<Value>> {
        let slice = &search.slice;
        let (Some(limit), Some(offset)) = (self.count(&slice.limit), self.count(&slice.offset))
        else {
            return Ok(None);
        };
        let offset = offset.unwrap_or(0);
        let most = limit.map(|limit| limit.saturating_add(offset));
        let Some(sets) = self
            .sets(search)
            .filter(|_| most.is_none_or(|n| n <= ROWS_MAX))
        else {
            return Ok(None);
        };
        let locking = lock.map(|lock| Locking {
            statement,
            table,
            lock,
        });
        let locking = locking.as_ref();
        let read = (statement.as_ref(), table);
        let mut skipped = 0;
        let found = match (&search.path, search.path.walk()) {
            (Path::Index(path), Some(direction)) => {
                if locking.is_none() {
                    skipped = path.skipped(search, offset);
                }
                walk_over(read, &sets, (path, direction), (skipped, most), locking)?
            }
            (Path::Key(path), Some(direction)) => {
                count_over(read, &sets, (path, direction), most, locking)?
            }
            _ => self.gathered(statement, table, &sets, (most, locking))?,
        };
        let Some(mut found) = found.filter(|_| !sets.are_undecided()) else {
            return Ok(None);
        };
        let width = search.reads.len();
        let (most, offset) = (most.map(|most| most - skipped), offset - skipped);
        found.truncate(most.map_or(found.len(), |most| most.saturating_mul(width)));
        found.drain(..offset.saturating_mul(width).min(found.len()));
        Ok(Some(found))
    }

    /// A number of rows; `Some(None)`: no limit.
    fn count(&self, source: &Option<Source>) -> Option<Option<usize>> {
        let Some(source) = source else {
            return Some(None);
        };
        let datum = self.datum(source)?;
        match datum.value.is_null() {
            true => Some(None),
            false => usize::try_from(integer(&datum.value)?).ok().map(Some),
        }
    }

    fn gathered(
        &self,
        statement: &Arc<Statement>,
        table: &Arc<TableDef>,
        sets: &Sets<'_>,
        (most, locking): (Option<usize>, Option<&Locking<'_>>),
    ) -> Decided<Vec<Value>> {
        let path = match &sets.search.path {
            Path::Index(path) if statement.sees_index(table, path.index) => Some(path),
            Path::Index(_) => return Ok(None),
            Path::Key(_) | Path::Either(_) => None,
        };
        let watch = path.map(|path| path.watch(statement, table)).transpose()?;
        let watch = watch.flatten();
        let Some(entries) = self.entries(statement, table, sets)? else {
            return Ok(None);
        };
        let covering = path.and_then(|path| path.covering(watch.as_ref()));
        let view = statement.view(table)?;
        let mut rows = FoundRows::new(&view, sets);
        for own in entries.chunk_by(|a, b| a.0 == b.0) {
            let [(row, key), ..] = own else { continue };
            // A row under several keys is read itself.
            let key = key.as_ref().filter(|_| own.len() == 1);
            let is_found = match covering.as_ref().zip(key) {
                Some((covering, key)) => rows.read_entry(*row, key, covering)?,
                None => None,
            };
            if is_found.map_or_else(|| rows.read(*row), Ok)? {
                rows.keep(*row);
            }
        }
        let sort = sets.search.sort.as_ref();
        if !sort.is_none_or(|sort| rows.sort(0, sort)) || sets.are_undecided() {
            return Ok(None);
        }
        if let Some(locking) = locking {
            rows.lock(0, locking, most.unwrap_or(usize::MAX))?;
        }
        Ok(Some(rows.into_values()))
    }

    /// The rows that may pass a search's tests, ascending; None: they are many.
    pub(super) fn candidates(
        &self,
        statement: &Statement,
        table: &Arc<TableDef>,
        sets: &Sets<'_>,
    ) -> Decided<Vec<RowId>> {
        let entries = self.entries(statement, table, sets)?;
        Ok(entries.map(|entries| {
            let mut rows: Vec<RowId> = entries.into_iter().map(|(row, _)| row).collect();
            rows.dedup();
            rows
        }))
    }

    /// The same rows with their entries; None: the path has no keys that give values.
    fn entries(
        &self,
        statement: &Statement,
        table: &Arc<TableDef>,
        sets: &Sets<'_>,
    ) -> Decided<Vec<(RowId, Option<KeyBytes>)>> {
        let mut entries = Vec::new();
        if sets.is_empty() {
            return Ok(Some(entries));
        }
        let mut rows = Vec::new();
        let parts = match &sets.search.path {
            Path::Key(path) => path.parts.as_slice(),
            Path::Index(path) => path.points.as_slice(),
            Path::Either(_) => &[],
        };
        let Some(keys) = sets.combinations(parts) else {
            return Ok(None);
        };
        match &sets.search.path {
            Path::Either(_) => {
                for side in &sets.sides {
                    let Some(found) = self.entries(statement, table, side)? else {
                        return Ok(None);
                    };
                    entries.extend(found.into_iter().map(|(row, _)| (row, None)));
                }
            }
            Path::Key(KeyPath { key, .. }) => {
                for values in &keys {
                    statement.rows_of_key(table, *key, values, &mut rows)?;
                    statement.note_key(table, *key, values)?;
                }
                entries.extend(rows.into_iter().map(|row| (row, None)));
            }
            Path::Index(path) => {
                if !statement.sees_index(table, path.index) {
                    return Ok(None);
                }
                if path.points.len() == path.keys.parts().len() {
                    for values in &keys {
                        rows.clear();
                        statement.rows_of_index_key(table, path.index, values, &mut rows)?;
                        let key = path.covered.as_ref().map(|_| path.keys.encode(values));
                        entries.extend(rows.iter().map(|row| (*row, key.clone())));
                    }
                } else {
                    note(statement, table, sets)?;
                    for prefix in &keys {
                        let range = path.range(prefix, sets);
                        let most = ROWS_MAX.saturating_sub(entries.len());
                        if !few(statement, table, path, &range, most, &mut entries)? {
                            return Ok(None);
                        }
                    }
                }
            }
        }
        entries.sort_unstable();
        entries.dedup();
        Ok((entries.len() <= ROWS_MAX).then_some(entries))
    }
}

/// A serializable transaction notes what a scan with the same tests would read.
fn note(statement: &Statement, table: &TableDef, sets: &Sets<'_>) -> Result<()> {
    if !statement.transaction().notes_reads() {
        return Ok(());
    }
    let request = ScanRequest {
        columns: stored(&sets.search.reads).to_vec(),
        prune: sets.predicates(),
        ..ScanRequest::default()
    };
    statement.note_read(table, &request)
}

/// Appends the entries of a range; false if there are more than `most`.
fn few(
    statement: &Statement,
    table: &Arc<TableDef>,
    path: &IndexPath,
    range: &KeyRange,
    most: usize,
    found: &mut Vec<(RowId, Option<KeyBytes>)>,
) -> Result<bool> {
    let estimated = statement.index_estimate(table, path.index, range)?;
    if estimated.is_some_and(|entries| entries > most) {
        return Ok(false);
    }
    let mut entries = statement.index_cursor(table, path.index, range, Direction::Forward)?;
    let mut chunk = Vec::new();
    entries.next_chunk(most.saturating_add(1), &mut chunk)?;
    let is_few = chunk.len() <= most;
    found.extend(chunk.into_iter().map(|(key, row)| (row, Some(key))));
    Ok(is_few)
}

/// The rows that OFFSET passes over by their entries alone.
struct Skipped {
    left: usize,
    /// some columns, of which there are none
    nothing: Option<CoveredColumns>,
}

impl Skipped {
    fn new(table: &TableDef, path: &IndexPath, left: usize) -> Self {
        let index = table.index(path.index).filter(|_| left > 0);
        let nothing = index.and_then(|index| CoveredColumns::of(table, index, &[]));
        Self { left, nothing }
    }

    /// Whether the row of an entry is there, which is then passed over; None: it is to be read.
    fn pass(
        &mut self,
        view: &RowView,
        (bytes, row): (&KeyBytes, RowId),
        watch: Option<&EntryWatch>,
    ) -> Result<Option<bool>> {
        let Some((columns, watch)) = self.nothing.as_ref().zip(watch) else {
            return Ok(None);
        };
        if self.left == 0 {
            return Ok(None);
        }
        let covering = Covering { columns, watch };
        let is_there = view.read_entry(row, bytes, &covering, &mut [])?;
        self.left -= usize::from(is_there == Some(true));
        Ok(is_there)
    }
}

/// The keys that a walk goes over, of which a serializable transaction notes the reading.
fn walked(
    (statement, table): (&Statement, &Arc<TableDef>),
    sets: &Sets<'_>,
    path: &IndexPath,
    most: Option<usize>,
) -> Decided<KeyRange> {
    let Some(prefix) = sets
        .combinations(&path.points)
        .and_then(|mut keys| keys.pop())
    else {
        return Ok(None);
    };
    if !statement.sees_index(table, path.index) {
        return Ok(None);
    }
    let range = path.range(&prefix, sets);
    if most.is_none() {
        let estimated = statement.index_estimate(table, path.index, &range)?;
        if estimated.is_none_or(|entries| entries > ROWS_MAX) {
            return Ok(None);
        }
    }
    note(statement, table, sets)?;
    Ok(Some(range))
}

/// The first rows of an index's order, `most` at most, without the first `skipped` of them. Where
/// the index orders only by the first columns wanted, the rows that agree in these are sorted
/// before more are read.
fn walk_over(
    read @ (statement, table): (&Statement, &Arc<TableDef>),
    sets: &Sets<'_>,
    (path, direction): (&IndexPath, Direction),
    (skipped, most): (usize, Option<usize>),
    locking: Option<&Locking<'_>>,
) -> Decided<Vec<Value>> {
    if sets.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let Some(range) = walked(read, sets, path, most)? else {
        return Ok(None);
    };
    let view = statement.view(table)?;
    let mut rows = FoundRows::new(&view, sets);
    let most = most.unwrap_or(usize::MAX);
    let mut end = End::new(most - skipped.min(most), locking);
    let mut skipped = Skipped::new(table, path, skipped);
    let mut watch = match &skipped.nothing {
        Some(_) => Some(statement.watch_entries(table, path.index)?),
        None => path.watch(statement, table)?,
    };
    // Jobs that were taken from a queue, say.
    let mut gone = GoneEntries::default();
    let entries = statement.index_cursor(table, path.index, &range, direction)?;
    let mut entries = entries.as_of(view.ts());
    if let Some(sort) = &sets.search.sort {
        end.sort = Some((sort, path.ordered));
    }
    let mut left = tries(most) + path.left_keys(sets.search);
    let mut step = most.clamp(1, STEP_MAX);
    let mut chunk = Vec::new();
    let mut may_be_more = true;
    while !end.is_reached(&rows) && may_be_more {
        if left == 0 {
            statement.leave_out(table, path.index, gone)?;
            return Ok(None);
        }
        chunk.clear();
        if let Some(watch) = &mut watch {
            watch.renew();
        }
        may_be_more = entries.next_chunk(step.min(left), &mut chunk)?;
        left -= chunk.len();
        step = (2 * step).min(STEP_MAX);
        let covering = path.covering(watch.as_ref());
        for (bytes, row) in &chunk {
            // Keys that are cut have no order among themselves.
            if bytes.is_cut() {
                return Ok(None);
            }
            if let Some(is_there) = skipped.pass(&view, (bytes, *row), watch.as_ref())? {
                gone.note(bytes, *row, !is_there);
                continue;
            }
            let found = rows.read_by(*row, bytes, path, covering.as_ref())?;
            if sets.are_undecided() {
                return Ok(None);
            }
            gone.note(bytes, *row, found == ByEntry::Gone);
            if found == ByEntry::Found && skipped.left > 0 {
                skipped.left -= 1;
            } else if found == ByEntry::Found && !end.take(&mut rows, *row)? {
                break;
            }
        }
    }
    statement.leave_out(table, path.index, gone)?;
    Ok(end.settle(&mut rows)?.then(|| rows.into_values()))
}

/// So many entries or numbers are tried for `most` rows.
fn tries(most: usize) -> usize {
    match most {
        usize::MAX => ROWS_MAX,
        most => ROWS_MAX + most * ENTRIES_PER_ROW,
    }
}

/// The first rows in the order of a key's numbers, which are looked up one after the other.
fn count_over(
    (statement, table): (&Statement, &Arc<TableDef>),
    sets: &Sets<'_>,
    (path, direction): (&KeyPath, Direction),
    most: Option<usize>,
    locking: Option<&Locking<'_>>,
) -> Decided<Vec<Value>> {
    if sets.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let Some((mut key, range, sql_type)) = first_key(path, sets) else {
        return Ok(None);
    };
    let place = sets.search.test_places[path.parts[range]];
    let (first, last) = match &sets.values[path.parts[range]] {
        Values::Within(lower, upper) => match numbers(lower.as_ref(), upper.as_ref(), sql_type) {
            Some(numbers) => numbers,
            None => return Ok(None),
        },
        Values::Points(_) => return Ok(None),
    };
    let most = most.unwrap_or(usize::MAX);
    let mut left = tries(most);
    let count = i128::from(last) - i128::from(first) + 1;
    if most == usize::MAX && count > left as i128 {
        return Ok(None);
    }
    note(statement, table, sets)?;
    let view = statement.view(table)?;
    let mut rows = FoundRows::new(&view, sets);
    let mut end = End::new(most, locking);
    let mut found = Vec::new();
    let mut numbers = first..=last;
    while !end.is_reached(&rows) {
        let next = match direction {
            Direction::Forward => numbers.next(),
            Direction::Backward => numbers.next_back(),
        };
        let Some(next) = next else { break };
        if left == 0 {
            return Ok(None);
        }
        left -= 1;
        let Some(number) = integer_value(next, sql_type) else {
            return Ok(None);
        };
        key[range] = number;
        found.clear();
        statement.rows_of_key(table, path.key, &key, &mut found)?;
        for row in &found {
            // A row that had this number may have another one of the range now.
            let is_found = rows.read(*row)? && *rows.value(place) == key[range];
            if sets.are_undecided() {
                return Ok(None);
            }
            if is_found && !end.take(&mut rows, *row)? {
                break;
            }
        }
    }
    Ok(Some(rows.into_values()))
}

/// The values of a key's columns without the number, whose place among them and type come with
/// them.
fn first_key(path: &KeyPath, sets: &Sets<'_>) -> Option<(Vec<Value>, usize, SqlType)> {
    let range = path.range?;
    let sql_type = sets.search.tests.get(*path.parts.get(range)?)?.sql_type;
    let key = path
        .parts
        .iter()
        .enumerate()
        .map(|(at, test)| match at == range {
            true => Some(Value::Null),
            false => sets.points(*test).first().cloned(),
        });
    Some((key.collect::<Option<_>>()?, range, sql_type))
}
