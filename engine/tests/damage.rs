//! Damaged files: every flipped bit of a chunk file or a run is found by `check`, and no read
//! answers wrongly meanwhile.

mod common;

use common::*;
use strandline_base::rng::Rng;
use strandline_device::Device;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_sim::SimDisk;

/// Moments of a table with chunks, row metadata and runs, all of them on the disk.
fn build(disk: &SimDisk) -> Vec<(CommitTs, State)> {
    let db = open(disk.device(), &clock()).expect("open");
    let (t, _) = create_table(&db, HistoryPolicy::Forever);
    let mut state = State::new();
    let mut moments = Vec::new();
    for round in 0..3i64 {
        for k in 0..40 {
            let text = format!("text {round} of row {k}, long enough for a view");
            if round == 0 {
                insert(&db, &row(k, k, &text));
            } else if k % (round + 1) == 0 {
                let set = [
                    (ColumnId(1), Value::BigInt(round)),
                    (ColumnId(2), text.as_str().into()),
                ];
                run(&db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set)).expect("update");
            } else {
                continue;
            }
            state.insert(k, (Some(if round == 0 { k } else { round }), text));
        }
        moments.push((db.stable(), state.clone()));
        // One merge: a second one would leave parts of the first file that nothing refers to.
        db.checkpoint(round == 0).expect("checkpoint");
    }
    db.close().expect("close");
    moments
}

/// What a damaged database may do: refuse to open, refuse a read, or answer rightly.
fn is_found(disk: &SimDisk, moments: &[(CommitTs, State)], what: &str) -> bool {
    let Ok(db) = open(disk.device(), &clock()) else {
        return true;
    };
    let t = table(&db);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    for (ts, expected) in moments {
        let scan = statement.scan_as_of(&t, *ts, request()).expect("as of");
        let batches: Result<Vec<_>> = (0..scan.units()).map(|unit| scan.read_unit(unit)).collect();
        if batches.is_ok() {
            assert_eq!(&scan_all(&scan), expected, "{what}: as of {ts}");
        }
    }
    db.check().map_or(true, |damage| !damage.is_empty())
}

#[test]
fn every_flipped_bit_is_found() {
    let disk = SimDisk::new(1);
    let moments = build(&disk);
    let clean = disk.after_kill();
    assert!(
        !is_found(&clean, &moments, "no damage"),
        "damage where there is none"
    );
    let names = disk.device().list().expect("list");
    let mut rng = Rng::new(7);
    let mut tried = 0;
    for name in names
        .iter()
        .filter(|n| n.starts_with("chunks-") || n.starts_with("run-"))
    {
        let bytes = disk.content(name).expect("a file").len() as u64;
        // Every byte of the header, then some of the rest.
        let offsets = (0..bytes.min(64)).chain((0..60).map(|_| rng.below(bytes)));
        for offset in offsets.collect::<Vec<_>>() {
            let damaged = disk.after_kill();
            damaged.flip_bits(name, offset, 1 << rng.below(8));
            let what = format!("{name} at {offset} of {bytes}");
            if is_padding(&disk, name, offset) {
                continue;
            }
            assert!(is_found(&damaged, &moments, &what), "{what}: not found");
            tried += 1;
        }
    }
    assert!(tried > 200, "only {tried} places");
}

/// Zeros between two blobs of a chunk file belong to none.
fn is_padding(disk: &SimDisk, name: &str, offset: u64) -> bool {
    let content = disk.content(name).expect("a file");
    let next = (offset as usize | 7) + 1;
    name.starts_with("chunks-")
        && offset >= 64
        && content[offset as usize..next.min(content.len())]
            .iter()
            .all(|b| *b == 0)
}
