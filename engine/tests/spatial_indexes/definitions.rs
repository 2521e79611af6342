//! Definitions of R-trees: what is refused, and by which error.

use crate::common::*;
use crate::places::*;
use crate::support::*;
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::catalog::index::{IndexDef, IndexPart, IndexStorage};
use strandline_engine::*;

fn database() -> (Arc<MemoryDevice>, Arc<Db>) {
    let device = Arc::new(MemoryDevice::new());
    let db = open(device.clone(), &clock()).expect("open");
    create_places(&db, HistoryPolicy::None);
    (device, db)
}

#[test]
fn definitions_that_no_rtree_can_have_are_refused() {
    let (device, db) = database();
    let def = || rtree("t_p", P);
    let with_part = |change: fn(&mut IndexPart)| {
        let mut def = def();
        change(&mut def.parts[0]);
        def
    };
    let unsupported = SqlState::FEATURE_NOT_SUPPORTED;
    let unique = IndexDef {
        unique: true,
        ..def()
    };
    let including = IndexDef {
        include: vec![ColumnId(0)],
        ..def()
    };
    let two_parts = IndexDef {
        parts: vec![part(P), part(B)],
        ..def()
    };
    let stored = |storage| IndexDef { storage, ..def() };
    for (def, state, told) in [
        (unique, unsupported, "unique"),
        (including, unsupported, "included columns"),
        (two_parts, unsupported, "multicolumn"),
        (
            with_part(|part| part.descending = true),
            unsupported,
            "ASC/DESC",
        ),
        (
            with_part(|part| part.nulls_first = true),
            unsupported,
            "NULLS FIRST",
        ),
        (
            stored(IndexStorage::Memory),
            SqlState::INVALID_PARAMETER_VALUE,
            "'memory'",
        ),
        (
            stored(IndexStorage::Levels),
            SqlState::INVALID_PARAMETER_VALUE,
            "'levels'",
        ),
        (
            rtree("t_k", 0),
            SqlState::UNDEFINED_OBJECT,
            "data type bigint",
        ),
    ] {
        for create in [create_alone, create_online] {
            let error = create(&db, &def).expect_err(told);
            assert_eq!(error.sqlstate(), state, "{error}");
            assert!(error.message().contains(told), "{error}");
            assert!(error.hint().is_some(), "{error}");
        }
    }
    assert_eq!(table(&db).indexes.len(), 0);
    assert_eq!(files(&*device, "pages-").len(), 0);
}

/// Rows without a place have no entries; the check and the searches agree with that.
#[test]
fn rows_without_a_place_have_no_entries() {
    let (_, db) = database();
    create_alone(&db, &rtree("t_p", P)).expect("create");
    for k in 0..10 {
        insert(&db, &[Value::BigInt(k), Value::Null, Value::Null]);
    }
    assert_eq!(entries(&db, "t_p"), 0);
    assert_places_sound(&db, "no place");
    let t = table(&db);
    let moved = run(&db, |s| {
        s.point_update(
            &t,
            0,
            &[Value::BigInt(3)],
            &[(ColumnId(P), point(1.0, 2.0))],
        )
    });
    assert!(moved.expect("an update"));
    assert_eq!(entries(&db, "t_p"), 1);
    create_online(&db, &rtree("t_b", B)).expect("create");
    assert_eq!(entries(&db, "t_b"), 0);
    assert_places_sound(&db, "one place");
}

#[test]
fn a_name_and_a_comment_change_without_a_new_file() {
    let (device, db) = database();
    insert(&db, &place(1, 1.0, 1.0));
    create_alone(&db, &rtree("t_p", P)).expect("create");
    let number = named(&table(&db), "t_p").file_number;
    assert!(number.is_some());
    alter(&db, |t| {
        let def = Arc::make_mut(&mut t.indexes[0]);
        def.name = "places".into();
        def.comment = Some("where".into());
    });
    assert_eq!(named(&table(&db), "places").file_number, number);
    assert_places_sound(&db, "renamed");
    alter(&db, |t| drop_index(t, "places"));
    for _ in 0..2 {
        db.checkpoint(true).expect("checkpoint");
    }
    assert_eq!(files(&*device, "pages-").len(), 0);
}
