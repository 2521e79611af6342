//! Slots that several threads append to one page, and LIDBlocks that are moved beside adders and
//! readers.

use crate::explore;
use shuttle::thread;
use std::sync::Arc;
use strandline_base::sync::Mutex;
use strandline_base::{CommitTs, Result, RowId, Value};
use strandline_device::MemoryDevice;
use strandline_index::{
    AccessMethod, BlockKind, Direction, KeyBytes, KeyRange, LidForm, LidIndex, NODE_BYTES_MIN,
    PagedIndexSettings, PartOrder,
};
use strandline_storage::pages::{
    Access, PageFileId, PageLog, PageNumber, PageSettings, PageStore, SlotWrite,
};
use strandline_storage::wal::Lsn;

const FILES: (PageFileId, PageFileId) = (PageFileId(1), PageFileId(2));

/// The log: records with their ends.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<(Lsn, Vec<u8>)>>);

impl PageLog for Log {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        let mut records = self.0.lock();
        let end = Lsn(records.last().map_or(8, |(end, _)| end.0) + record.len() as u64);
        records.push((end, record.to_vec()));
        Ok(end)
    }
    fn make_durable(&self, _through: Lsn) -> Result<()> {
        Ok(())
    }
    fn end(&self) -> Lsn {
        self.0.lock().last().map_or(Lsn(8), |(end, _)| *end)
    }
}

fn store_on(device: &Arc<MemoryDevice>, log: &Arc<Log>) -> Arc<PageStore> {
    PageStore::new(device.clone(), log.clone(), PageSettings::default())
}

fn append(store: &Arc<PageStore>, page: PageNumber, byte: u8) -> Lsn {
    let choose = &mut |body: &[u8]| {
        let offset = body.iter().position(|byte| *byte == 0)?;
        Some(SlotWrite {
            offset,
            bytes: vec![byte],
        })
    };
    let lsn = store.append_slot(FILES.1, page, choose).expect("in memory");
    lsn.expect("there is room")
}

/// Three appenders, a checkpoint, and a change of the whole page. Whoever has appended reads its
/// slot. A page with an LSN has every slot up to this LSN and no later one, in memory and in the
/// file; so redo from the checkpoint's begin, up to any record, gives exactly the slots up to it.
#[test]
fn relayed_pages_have_what_their_lsn_says() {
    explore(|| {
        let (device, log) = (Arc::new(MemoryDevice::default()), Arc::new(Log::default()));
        let store = store_on(&device, &log);
        store.create_file(FILES.1).expect("in memory");
        let mut change = store.begin(FILES.1);
        let page = change.allocate().expect("in memory");
        change.commit().expect("in memory");
        let appenders: Vec<_> = (1..=3_u8)
            .map(|byte| {
                let store = store.clone();
                thread::spawn(move || {
                    let lsn = append(&store, page, byte);
                    let read = store.read(FILES.1, page, Access::Random);
                    let read = read.expect("in memory");
                    assert!(read.lsn() >= lsn && read[..4].contains(&byte));
                    (lsn, byte)
                })
            })
            .collect();
        let changer = {
            let store = store.clone();
            thread::spawn(move || {
                let mut change = store.begin(FILES.1);
                change.write(page).expect("in memory");
                let body = change.body_mut(page);
                let free = body.iter().position(|byte| *byte == 0).expect("room");
                body[free] = 4;
                (change.commit().expect("in memory"), 4)
            })
        };
        let redo = store.checkpoint().expect("in memory");
        let mut slots: Vec<(Lsn, u8)> = appenders
            .into_iter()
            .map(|appender| appender.join().expect("no appender panics"))
            .collect();
        slots.push(changer.join().expect("it does not panic"));
        let records = log.0.lock().clone();
        for cut in records
            .iter()
            .map(|(end, _)| *end)
            .filter(|end| *end >= redo)
        {
            // What the file has is not newer than the log: the checkpoint was the last to write.
            let written = slots.iter().filter(|(lsn, _)| *lsn <= redo).count();
            let store = store_on(&device, &Arc::default());
            store.open_file(FILES.1).expect("in memory");
            let behind = records.iter().filter(|(end, _)| *end > redo && *end <= cut);
            for (end, record) in behind {
                store.replay(record, *end).expect("whole");
            }
            store.check_usable(FILES.1).expect("nothing is missing");
            let read = store.read(FILES.1, page, Access::Random).expect("whole");
            let kept = slots.iter().filter(|(lsn, _)| *lsn <= cut);
            let kept: Vec<u8> = kept.map(|(_, byte)| *byte).collect();
            assert!(kept.len() >= written);
            let found = read.iter().filter(|byte| **byte != 0);
            let is_later = read.lsn() > cut;
            assert!(
                is_later || found.clone().count() == kept.len(),
                "{kept:?} {cut:?} {redo:?}"
            );
            assert!(kept.iter().all(|byte| read.contains(byte)), "{kept:?}");
        }
    });
}

fn index(kind: BlockKind, entries: usize) -> Arc<LidIndex> {
    with_memory(kind, entries, usize::MAX)
}

/// An index with memory of so many bytes for its blocks.
fn with_memory(kind: BlockKind, entries: usize, memory: usize) -> Arc<LidIndex> {
    let store = store_on(&Arc::default(), &Arc::default());
    let oldest = Arc::new(|| CommitTs::ZERO);
    let mut settings = PagedIndexSettings::new(vec![PartOrder::default()], oldest);
    settings.node_bytes = NODE_BYTES_MIN;
    let form = LidForm {
        kind,
        entries,
        key_bytes: 12,
    };
    let index = LidIndex::create(store, FILES, settings, form).expect("in memory");
    Arc::new(index.with_block_memory(memory))
}

fn key(index: &LidIndex, v: i64) -> KeyBytes {
    index.encode(&[Value::BigInt(v)])
}

fn rows(index: &LidIndex, v: i64) -> Vec<u64> {
    let mut rows = Vec::new();
    let looked = index.lookup(&key(index, v), &mut rows);
    looked.expect("in memory");
    rows.into_iter().map(|row| row.0).collect()
}

fn add(index: &LidIndex, v: i64, row: u64) {
    index.add(&key(index, v), RowId(row)).expect("in memory");
}

/// Entries that stay are seen by every lookup and every cursor while blocks are filled, moved and
/// made again; an entry that was retired and added again is there at the end. With memory for one
/// block the changes of a second value go into the tree.
#[test]
fn moves_lose_nothing() {
    let kinds = [
        (BlockKind::Sparse, usize::MAX),
        (BlockKind::Dense, usize::MAX),
        (BlockKind::Dense, 1),
    ];
    for (kind, memory) in kinds {
        explore(move || {
            let index = with_memory(kind, 2, memory);
            add(&index, 1, 1);
            add(&index, 2, 1);
            let mover = {
                let index = index.clone();
                thread::spawn(move || index.vacuum().expect("in memory"))
            };
            let adder = {
                let index = index.clone();
                thread::spawn(move || {
                    add(&index, 1, 2);
                    let retired = index.retire(&key(&index, 2), RowId(1), CommitTs::ZERO);
                    retired.expect("in memory");
                    assert_eq!(rows(&index, 2), [0; 0]);
                    add(&index, 2, 1);
                    assert_eq!(rows(&index, 2), [1]);
                })
            };
            assert!(rows(&index, 1).contains(&1));
            let cursor = index.cursor(&KeyRange::default(), Direction::Forward);
            let mut cursor = cursor.expect("ordered");
            let seen = std::iter::from_fn(|| cursor.next().expect("in memory"));
            let seen: Vec<_> = seen.collect();
            assert!(seen.contains(&(key(&index, 1), RowId(1))), "{seen:?}");
            assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
            mover.join().expect("it does not panic");
            adder.join().expect("it does not panic");
            assert_eq!((rows(&index, 1), rows(&index, 2)), (vec![1, 2], vec![1]));
            let mut damage = Vec::new();
            index.check(&mut damage).expect("in memory");
            assert_eq!(damage, Vec::<String>::new());
            index.vacuum().expect("in memory");
            assert_eq!((index.len(), index.blocks()), (3, 0));
        });
    }
}

/// A unique key is given to two rows, one of them by a load, while blocks are moved.
#[test]
fn of_two_adders_beside_a_move_one_sees_the_other() {
    explore(|| {
        let index = index(BlockKind::Sparse, 2);
        add(&index, 5, 1);
        let adders = [10, 20].map(|row| {
            let index = index.clone();
            thread::spawn(move || {
                let mut others = Vec::new();
                let is_new = index.insert(&key(&index, 5), RowId(row), &mut others);
                assert!(is_new.expect("in memory"));
                assert!(others.contains(&RowId(1)));
                others
            })
        });
        index.vacuum().expect("in memory");
        let [a, b] = adders.map(|adder| adder.join().expect("no adder panics"));
        let sees = (a.contains(&RowId(20)), b.contains(&RowId(10)));
        assert!(sees.0 ^ sees.1, "{a:?} {b:?}");
        assert_eq!(rows(&index, 5), [1, 10, 20]);
    });
}

/// An entry that the tree and a block have is retired while the block is moved, and a reader
/// removes it lazily: nothing brings it back.
#[test]
fn what_is_retired_stays_gone_beside_a_move() {
    explore(|| {
        let index = index(BlockKind::Sparse, 2);
        add(&index, 1, 1);
        index.vacuum().expect("in memory");
        add(&index, 1, 1);
        let mover = {
            let index = index.clone();
            thread::spawn(move || index.vacuum().expect("in memory"))
        };
        let retired = index.retire(&key(&index, 1), RowId(1), CommitTs::ZERO);
        retired.expect("in memory");
        assert_eq!(rows(&index, 1), [0; 0]);
        mover.join().expect("it does not panic");
        assert_eq!(rows(&index, 1), [0; 0]);
        index.vacuum().expect("in memory");
        assert_eq!((index.len(), index.blocks()), (0, 0));
    });
}
