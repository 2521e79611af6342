//! Definitions of indexes, and the two ways to read by them.

use crate::common::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_column::types;
use strandline_engine::catalog::index::{
    IndexDef, IndexId, IndexMethod, IndexPart, IndexState, IndexValue,
};
use strandline_engine::catalog::{KeyDef, TableDef};
use strandline_engine::*;

/// A part over a column.
pub fn part(column: u32) -> IndexPart {
    IndexPart {
        value: IndexValue::Column(ColumnId(column)),
        descending: false,
        nulls_first: false,
        operator_class: None,
    }
}

/// A definition whose number `put_index` gives.
pub fn index(name: &str, parts: Vec<IndexPart>) -> IndexDef {
    IndexDef {
        id: IndexId(0),
        name: name.into(),
        method: IndexMethod::Ordered,
        parts,
        include: Vec::new(),
        unique: false,
        nulls_not_distinct: false,
        predicate: None,
        state: IndexState::Valid,
        complete_since: CommitTs::ZERO,
        options: std::collections::BTreeMap::new(),
        comment: None,
        storage: crate::STORAGE,
        stays_in_memory: false,
        was_moved: false,
        file_number: None,
    }
}

pub fn unique(name: &str, parts: Vec<IndexPart>) -> IndexDef {
    IndexDef {
        unique: true,
        ..index(name, parts)
    }
}

/// Adds an index to a definition.
pub fn put_index(table: &mut TableDef, def: &IndexDef) -> IndexId {
    let id = IndexId(table.next_index);
    table.next_index += 1;
    table.indexes.push(Arc::new(IndexDef { id, ..def.clone() }));
    id
}

pub fn drop_index(table: &mut TableDef, name: &str) {
    table.indexes.retain(|index| index.name != name);
}

/// CREATE INDEX within a transaction.
pub fn create_in(txn: &Transaction, def: &IndexDef) -> Result<()> {
    txn.change_catalog(&mut |catalog| {
        let mut table = TableDef::clone(catalog.table("public", "t").expect("table t"));
        put_index(&mut table, def);
        catalog.put_table(table);
        Ok(())
    })
}

/// CREATE INDEX in a transaction of its own that holds the table alone.
pub fn create_alone(db: &Arc<Db>, def: &IndexDef) -> Result<()> {
    let txn = db.begin(TxnOptions::default())?;
    create_in(&txn, def)?;
    txn.commit().map(|_| ())
}

/// CREATE INDEX while writers go on.
pub fn create_online(db: &Arc<Db>, def: &IndexDef) -> Result<()> {
    db.create_index(&TxnOptions::default(), &mut |catalog| {
        let mut table = TableDef::clone(catalog.table("public", "t").expect("table t"));
        let id = put_index(&mut table, def);
        let place = (table.id, id);
        catalog.put_table(table);
        Ok(place)
    })
}

pub fn named<'a>(table: &'a TableDef, name: &str) -> &'a Arc<IndexDef> {
    let mut indexes = table.readable_indexes();
    indexes.find(|def| def.name == name).expect("an index")
}

pub fn counter(db: &Db, name: &str) -> u64 {
    let counters = db.counters();
    let found = counters.iter().find(|(counter, _)| *counter == name);
    found.expect("a counter").1
}

/// Entries of the index called `name`.
pub fn entries(db: &Arc<Db>, name: &str) -> usize {
    let table = table(db);
    let id = named(&table, name).id;
    run(db, |s| s.index_size(&table, id)).expect("size").0
}

fn values_of(table: &TableDef, batch: &arrow_array::RecordBatch, row: usize) -> Vec<Value> {
    let value = |(at, c): (usize, &strandline_engine::catalog::ColumnDef)| {
        types::value_at(c.sql_type, batch.column(at), row)
    };
    table.columns.iter().enumerate().map(value).collect()
}

/// Rows by entries alone: reads entries under a watch, then takes what they say of rows.
pub struct Covered {
    pub columns: CoveredColumns,
    watch: EntryWatch,
    rows: Vec<RowId>,
    keys: Vec<Option<KeyBytes>>,
}

impl Covered {
    /// The entries of a range, for the columns of the key's parts. None: they do not have them.
    pub fn read(
        statement: &Statement,
        (table, def): (&Arc<TableDef>, &IndexDef),
        range: &KeyRange,
    ) -> Option<Self> {
        let columns = def.parts.iter().filter_map(|part| match &part.value {
            IndexValue::Column(id) => Some(*id),
            IndexValue::Expression(_) => None,
        });
        let columns = CoveredColumns::of(table, def, &columns.collect::<Vec<_>>())?;
        let watch = statement.watch_entries(table, def.id).expect("a watch");
        let mut entries = statement
            .index_cursor(table, def.id, range, Direction::Forward)
            .expect("a cursor");
        let mut found = Vec::new();
        while entries.next_chunk(50, &mut found).expect("a chunk") {}
        let mut found: Vec<_> = found.into_iter().map(|(key, row)| (row, key)).collect();
        found.sort_unstable();
        let mut covered = Self {
            columns,
            watch,
            rows: Vec::new(),
            keys: Vec::new(),
        };
        for own in found.chunk_by(|a, b| a.0 == b.0) {
            covered.rows.push(own[0].0);
            covered
                .keys
                .push((own.len() == 1).then(|| own[0].1.clone()));
        }
        Some(covered)
    }

    /// Compares what entries say with what the rows say. How many rows there are, and how many of
    /// them were fetched.
    pub fn check(&self, view: &RowView, context: &str) -> (usize, usize) {
        let covering = Covering {
            columns: &self.columns,
            watch: &self.watch,
        };
        let found = view.fetch_covered(&self.rows, &self.keys, &covering);
        let (ids, batch, fetched) = found.expect("rows");
        let expected = view.fetch(&self.rows, self.columns.columns());
        let (expected_ids, expected) = expected.expect("rows");
        assert_eq!(ids, expected_ids, "{context}");
        assert_eq!(batch, expected, "{context}");
        (ids.len(), fetched)
    }
}

/// All columns of the rows that entries within a range lead to, unordered; chunks of `chunk`.
pub fn candidates(
    statement: &Statement,
    view: &RowView,
    (table, def): (&Arc<TableDef>, &IndexDef),
    range: &KeyRange,
    chunk: usize,
) -> Vec<Vec<Value>> {
    let mut rows = statement
        .index_cursor(table, def.id, range, Direction::Forward)
        .expect("a cursor");
    let mut found = Vec::new();
    while rows.next_chunk(chunk, &mut found).expect("a chunk") {}
    if let Some(covered) = Covered::read(statement, (table, def), range) {
        covered.check(view, &def.name);
    }
    let rows: BTreeSet<RowId> = found.into_iter().map(|(_, row)| row).collect();
    let rows: Vec<RowId> = rows.into_iter().collect();
    let columns: Vec<ColumnId> = table.columns.iter().map(|c| c.id).collect();
    let (ids, batch) = view.fetch(&rows, &columns).expect("fetch");
    assert_eq!(ids.len(), batch.num_rows());
    (0..ids.len())
        .map(|row| values_of(table, &batch, row))
        .collect()
}

/// The same in the index's order, each row once: an entry counts if its key is that of the row's
/// visible version.
pub fn in_order(
    statement: &Statement,
    view: &RowView,
    (table, def): (&Arc<TableDef>, &IndexDef),
    (range, direction): (&KeyRange, Direction),
    chunk: usize,
) -> Vec<Vec<Value>> {
    let keys = statement.index_keys(table, def.id).expect("keys");
    let mut rows = statement
        .index_cursor(table, def.id, range, direction)
        .expect("a cursor");
    let columns: Vec<ColumnId> = table.columns.iter().map(|c| c.id).collect();
    let (mut found, mut out, mut more) = (Vec::new(), Vec::new(), true);
    while more {
        found.clear();
        more = rows.next_chunk(chunk, &mut found).expect("a chunk");
        let rows: Vec<RowId> = found.iter().map(|(_, row)| *row).collect();
        let (ids, batch) = view.fetch(&rows, &columns).expect("fetch");
        let mut visible = ids.iter().enumerate().peekable();
        for (key, row) in &found {
            // Rows that are not visible are left out.
            let Some((at, _)) = visible.next_if(|(_, id)| *id == row) else {
                continue;
            };
            let values = values_of(table, &batch, at);
            if keys.encode(&key_of(table, def, &values)) == *key {
                out.push(values);
            }
        }
    }
    out
}

/// The key of a row, by its columns.
pub fn key_of(table: &TableDef, def: &IndexDef, row: &[Value]) -> Vec<Value> {
    let part = |part: &IndexPart| match &part.value {
        IndexValue::Column(id) => row[table.position(*id).expect("a column")].clone(),
        IndexValue::Expression(_) => unreachable!("over columns only"),
    };
    def.parts.iter().map(part).collect()
}

pub fn sorted(mut rows: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    rows.sort_by_key(|row| format!("{row:?}"));
    rows
}

/// What a scan finds, sorted.
pub fn scanned(statement: &Statement, table: &Arc<TableDef>) -> Vec<Vec<Value>> {
    sorted(scan_values(statement, table))
}

/// Every index gives what `rows` says, which a scan has found, in both directions and in order.
pub fn assert_indexes_agree(
    statement: &Statement,
    view: &RowView,
    table: &Arc<TableDef>,
    rows: &[Vec<Value>],
    context: &str,
) {
    for def in table.readable_indexes() {
        let at = (table, &**def);
        if !statement.has_index(table, def.id) || view.ts() < def.complete_since {
            continue;
        }
        let all = KeyRange::default();
        let found = candidates(statement, view, at, &all, 7);
        assert_eq!(sorted(found), rows, "{context}: index {}", def.name);
        let keys = statement.index_keys(table, def.id).expect("keys");
        let encoded = |row: &Vec<Value>| keys.encode(&key_of(table, def, row));
        let forward = in_order(statement, view, at, (&all, Direction::Forward), 5);
        assert!(forward.is_sorted_by_key(encoded), "{context}: {}", def.name);
        assert_eq!(sorted(forward.clone()), rows, "{context}: in order");
        let backward = in_order(statement, view, at, (&all, Direction::Backward), 3);
        let is_sorted = backward.iter().rev().map(encoded).is_sorted();
        assert!(is_sorted, "{context}: {}", def.name);
        assert_eq!(sorted(backward), rows, "{context}: backward");
        let keys_of_rows = rows.iter().chain(&forward).take(2 * rows.len());
        assert_keys_lead_to_rows(statement, view, at, keys_of_rows, context);
        // One key: its rows, whatever entries of other versions lie there.
        for row in rows.iter().step_by(5) {
            let key = key_of(table, def, row);
            let range = keys.prefix(&key[..1]);
            let found = candidates(statement, view, at, &range, 2);
            let is_same = |other: &&Vec<Value>| key_of(table, def, other)[0] == key[0];
            let expected: Vec<_> = rows.iter().filter(is_same).cloned().collect();
            let found = found.into_iter().filter(|row| is_same(&row)).collect();
            assert_eq!(sorted(found), sorted(expected), "{context}: {key:?}");
        }
    }
}

/// A key of a constraint leads to its row, whether or not an earlier look has left a hint. A view
/// of another moment than the statement's is left out.
fn assert_keys_lead_to_rows<'r>(
    statement: &Statement,
    view: &RowView,
    (table, def): (&Arc<TableDef>, &IndexDef),
    rows: impl Iterator<Item = &'r Vec<Value>>,
    context: &str,
) {
    let is_of_def = |key: &KeyDef| key.ordered.as_ref().is_some_and(|own| own.id == def.id);
    let Some(key) = table.keys.iter().position(is_of_def) else {
        return;
    };
    if view.ts() != statement.snapshot_ts() {
        return;
    }
    let columns: Vec<ColumnId> = table.columns.iter().map(|c| c.id).collect();
    for row in rows {
        let values = key_of(table, def, row);
        if values.iter().any(Value::is_null) {
            continue;
        }
        let (mut found, mut ids) = (Vec::new(), Vec::new());
        let is_found = statement.point_get(table, key, &values, &columns, &mut found);
        assert!(is_found.expect("get"), "{context}: {} {values:?}", def.name);
        assert_eq!(&found, row, "{context}: {}", def.name);
        statement
            .rows_of_key(table, key, &values, &mut ids)
            .expect("rows");
        let (_, batch) = view.fetch(&ids, &columns).expect("fetch");
        let fetched = (0..batch.num_rows()).map(|at| values_of(table, &batch, at));
        assert!(
            fetched.into_iter().any(|fetched| fetched == *row),
            "{context}"
        );
    }
}

/// What every index finds is what a scan finds, and the check finds nothing. All can be used.
pub fn assert_sound(db: &Arc<Db>, what: &str) {
    let t = table(db);
    let statement = db.begin(TxnOptions::default()).expect("begin");
    let statement = statement.begin_statement().expect("statement");
    let rows = scanned(&statement, &t);
    let view = statement.view(&t).expect("view");
    for def in t.readable_indexes() {
        let (is_there, is_seen) = (
            statement.has_index(&t, def.id),
            statement.sees_index(&t, def.id),
        );
        assert!(is_there && is_seen, "{what}: {}", def.name);
    }
    assert_indexes_agree(&statement, &view, &t, &rows, what);
    assert_eq!(db.check().expect("check"), Vec::<String>::new(), "{what}");
}
