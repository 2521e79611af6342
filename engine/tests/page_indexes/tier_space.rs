//! Space on both tiers: what is loaded and deleted again and again takes no more than once.

use crate::common::*;
use crate::machine::{Machine, Place, in_places};
use crate::support::*;
use std::sync::Arc;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

/// Rounds of loading and deleting.
const ROUNDS: i64 = 100;
/// Rows of a round.
const ROWS: i64 = 500;

fn used_bytes(machine: &Machine) -> u64 {
    machine.disks().map(|disk| disk.used_bytes()).sum()
}

/// Inserts new rows, or deletes them; afterwards a checkpoint merges and cuts the log.
fn change(db: &Arc<Db>, keys: std::ops::Range<i64>, is_insert: bool) -> Result<()> {
    let t = table(db);
    run(db, |s| {
        for k in keys {
            if is_insert {
                s.point_insert(&t, &row(k, k % 7, &format!("{}{k}", "text ".repeat(60))))?;
            } else {
                s.point_delete(&t, 0, &[Value::BigInt(k)])?;
            }
        }
        Ok(())
    })?;
    db.checkpoint(true)?;
    // The second one removes what the first one has left to readers.
    db.checkpoint(true).map(drop)
}

/// All files of both disks, with the rows of a round and without them.
fn a_hundred_rounds_take_the_space_of_one(place: Place) {
    let (machine, wall) = (Machine::new(1, place), clock());
    let db = machine.open(&wall).expect("open");
    create_table(&db, HistoryPolicy::None);
    create_alone(&db, &index("t_a", vec![part(1)])).expect("create");
    create_alone(&db, &index("t_b", vec![part(2)])).expect("create");
    let mut one = u64::MAX / 13;
    for round in 0..ROUNDS {
        let keys = round * ROWS..(round + 1) * ROWS;
        wall.advance(1_000);
        change(&db, keys.clone(), true).expect("insert");
        let loaded = used_bytes(&machine);
        wall.advance(1_000);
        change(&db, keys, false).expect("delete");
        let emptied = used_bytes(&machine);
        if round == 0 {
            one = loaded;
        }
        let what = format!("{place:?}, round {round}: {loaded}, {emptied} of {one}");
        assert!(loaded.max(emptied) * 10 <= one * 13, "{what}");
    }
    assert_sound(&db, "after all rounds");
}

in_places! {
    two_directories = Place::TwoDirectories,
    pc = Place::Cached(SsdCacheMode::Pc);
    [a_hundred_rounds_take_the_space_of_one]
}
