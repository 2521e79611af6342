//! A table `t (k bigint primary key, p point, b box)`, random places, and the comparison of what
//! indexes over `p` and `b` find with what scans find.

use crate::common::*;
use crate::support::{index, part, scanned, sorted};
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_base::{BoxCorners, Point};
use strandline_column::types::value_at;
use strandline_engine::catalog::index::{IndexDef, IndexMethod};
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;

/// The column of points.
pub const P: u32 = 1;
/// The column of boxes.
pub const B: u32 = 2;

pub fn create_places(db: &Arc<Db>, history: HistoryPolicy) {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let created = txn.change_catalog(&mut |catalog| {
        let columns = vec![
            column(0, "k", SqlType::BigInt, true),
            column(P, "p", SqlType::Point, false),
            column(B, "b", SqlType::Box, false),
        ];
        let table = definition(catalog, columns, history);
        catalog.put_table(table);
        Ok(())
    });
    created.expect("create table");
    txn.commit().expect("commit");
}

/// An R-tree over a column.
pub fn rtree(name: &str, column: u32) -> IndexDef {
    IndexDef {
        method: IndexMethod::Spatial,
        ..index(name, vec![part(column)])
    }
}

pub fn point(x: f64, y: f64) -> Value {
    Value::Point(Point::new([x, y]))
}

/// A row whose box is a unit square at its point.
pub fn place(k: i64, x: f64, y: f64) -> [Value; 3] {
    let square = BoxCorners::new([x, y], [x + 1.0, y + 1.0]);
    [Value::BigInt(k), point(x, y), Value::Box(square)]
}

/// The place of a value; None: NULL.
pub fn rect_of(value: &Value) -> Option<Rect> {
    match value {
        Value::Point(point) => Some(Rect::point(point.coordinates())),
        Value::Box(corners) => Some(Rect::new(corners.high(), corners.low())),
        Value::Null => None,
        other => panic!("no place: {other:?}"),
    }
}

/// Few different numbers, so that places are equal, and numbers with an order of their own.
fn coordinate(rng: &mut Rng) -> f64 {
    match rng.below(24) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => -0.0,
        3 => -1e300,
        n => (n as f64 - 12.0) / 2.0,
    }
}

pub fn random_corner(rng: &mut Rng) -> [f64; 2] {
    [coordinate(rng), coordinate(rng)]
}

pub fn random_point(rng: &mut Rng) -> Value {
    match rng.one_in(7) {
        true => Value::Null,
        false => Value::Point(Point::new(random_corner(rng))),
    }
}

pub fn random_box(rng: &mut Rng) -> Value {
    match rng.one_in(7) {
        true => Value::Null,
        false => Value::Box(BoxCorners::new(random_corner(rng), random_corner(rng))),
    }
}

fn random_query(rng: &mut Rng) -> SpatialQuery {
    let (a, b) = (random_corner(rng), random_corner(rng));
    let rect = match rng.one_in(3) {
        true => Rect::point(a),
        false => Rect::new(a, b),
    };
    match rng.below(5) {
        0 => SpatialQuery::All,
        1 => SpatialQuery::Overlaps(rect),
        2 => SpatialQuery::Contains(rect),
        3 => SpatialQuery::ContainedIn(rect),
        _ => SpatialQuery::Equals(rect),
    }
}

fn rows_in(table: &TableDef, batch: &arrow_array::RecordBatch) -> Vec<Vec<Value>> {
    let row = |at: usize| {
        let columns = table.columns.iter().enumerate();
        let values = columns.map(|(c, def)| value_at(def.sql_type, batch.column(c), at));
        values.collect()
    };
    (0..batch.num_rows()).map(row).collect()
}

fn all_columns(table: &TableDef) -> Vec<ColumnId> {
    table.columns.iter().map(|column| column.id).collect()
}

/// The rows that fulfil `query`, by an index over `column`.
pub fn found_at(
    (statement, view): (&Statement, &RowView),
    (table, def): (&Arc<TableDef>, &IndexDef),
    (column, query): (u32, &SpatialQuery),
) -> Vec<Vec<Value>> {
    let mut ids = Vec::new();
    let is_all = statement.rows_at(table, def.id, query, (usize::MAX, &mut ids));
    assert!(is_all.expect("a search"));
    ids.sort_unstable();
    ids.dedup();
    let (_, batch) = view.fetch(&ids, &all_columns(table)).expect("rows");
    let mut rows = rows_in(table, &batch);
    rows.retain(|row| is_at(row, column, query));
    sorted(rows)
}

fn is_at(row: &[Value], column: u32, query: &SpatialQuery) -> bool {
    rect_of(&row[column as usize]).is_some_and(|rect| query.holds(&rect))
}

/// Up to `at_most` rows nearest to `from`: those whose visible version has the entry's key.
pub fn nearest(
    (statement, view): (&Statement, &RowView),
    (table, def): (&Arc<TableDef>, &IndexDef),
    (from, at_most): ([f64; 2], usize),
) -> Vec<Vec<Value>> {
    let keys = statement.row_keys(table, def.id).expect("keys");
    let mut entries = statement
        .nearest_entries(table, def.id, from)
        .expect("entries");
    let (mut found, mut chunk, mut more) = (Vec::new(), Vec::new(), true);
    while more && found.len() < at_most {
        chunk.clear();
        more = entries.next_chunk(7, &mut chunk).expect("a chunk");
        assert!(chunk.len() == 7 || !more);
        for (key, row) in &chunk {
            let (_, own) = view.fetch(&[*row], keys.columns()).expect("a row");
            let own = keys.of_rows(own.columns(), own.num_rows()).expect("keys");
            if own.first().is_some_and(|own| own.as_ref() == Some(key)) {
                let (_, batch) = view.fetch(&[*row], &all_columns(table)).expect("a row");
                found.extend(rows_in(table, &batch));
            }
        }
    }
    found.truncate(at_most);
    found
}

/// Both indexes find what a scan has found, `rows`: by random conditions and by distance.
pub fn assert_places_agree(
    reader: (&Statement, &RowView),
    table: &Arc<TableDef>,
    rows: &[Vec<Value>],
    (rng, context): (&mut Rng, &str),
) {
    let (statement, view) = reader;
    for def in &table.indexes {
        let is_seen = view.ts() >= def.complete_since;
        if !is_seen || !statement.has_index(table, def.id) {
            continue;
        }
        let (at, column) = ((table, &**def), def.key_columns()[0].0);
        let context = format!("{context}: index {}", def.name);
        for _ in 0..8 {
            let query = random_query(rng);
            let wanted = rows.iter().filter(|row| is_at(row, column, &query));
            let wanted = sorted(wanted.cloned().collect());
            let found = found_at(reader, at, (column, &query));
            assert_eq!(found, wanted, "{context}: {query:?}");
        }
        let from = random_corner(rng);
        let rect = |row: &Vec<Value>| rect_of(&row[column as usize]);
        let with_place = rows.iter().filter(|row| rect(row).is_some());
        let mut by_distance: Vec<f64> = with_place
            .clone()
            .filter_map(rect)
            .map(|rect| rect.distance(from))
            .collect();
        by_distance.sort_by(f64::total_cmp);
        let at_most = rng.below(2 * by_distance.len() as u64 + 1) as usize;
        for at_most in [at_most, usize::MAX] {
            let found = nearest(reader, at, (from, at_most));
            let distances = found
                .iter()
                .filter_map(rect)
                .map(|r| r.distance(from).to_bits());
            let wanted = by_distance.iter().take(at_most).map(|d| d.to_bits());
            assert!(distances.eq(wanted), "{context}: from {from:?}: {found:?}");
        }
        let all = sorted(nearest(reader, at, (from, usize::MAX)));
        assert_eq!(all, sorted(with_place.cloned().collect()), "{context}");
    }
}

/// What the indexes find is what a scan finds, and the check finds nothing. All can be used.
pub fn assert_places_sound(db: &Arc<Db>, what: &str) {
    let t = table(db);
    let statement = db.begin(TxnOptions::default()).expect("begin");
    let statement = statement.begin_statement().expect("statement");
    let rows = scanned(&statement, &t);
    let view = statement.view(&t).expect("view");
    for def in &t.indexes {
        assert!(statement.sees_index(&t, def.id), "{what}: {}", def.name);
    }
    for def in &t.indexes {
        let held = |at_most| {
            let mut ids = Vec::new();
            let found = statement.rows_at(&t, def.id, &SpatialQuery::All, (at_most, &mut ids));
            (found.expect("a search"), ids.len())
        };
        let (is_all, all) = held(usize::MAX);
        assert!(is_all, "{what}: {}", def.name);
        // A bound ends the search, and the search says so.
        assert_eq!(held(all), (true, all), "{what}: {}", def.name);
        assert_eq!(held(all / 2), (all == 0, all / 2), "{what}: {}", def.name);
    }
    let mut rng = Rng::new(rows.len() as u64);
    assert_places_agree((&statement, &view), &t, &rows, (&mut rng, what));
    assert_eq!(db.check().expect("check"), Vec::<String>::new(), "{what}");
}
