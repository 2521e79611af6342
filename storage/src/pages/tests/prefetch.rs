//! Pages that are read ahead. The model and the crashes of the other tests prefetch at random, too.

use std::thread;

use super::held::Held;
use super::*;

/// The last page. Every eighth one is a page of the space map.
const LAST: u32 = 27;

/// A database of pages 1 to 27, durable, and a store over it without pages in memory.
fn written(budget_pages: usize) -> (SimDisk, Rig) {
    let disk = SimDisk::new(5);
    let mut rig = Rig::create(&disk, budget_pages).unwrap();
    let mut pages = Pages::new();
    let mut change = rig.store.begin(FILE);
    for n in data_pages() {
        let number = change.allocate().unwrap();
        assert_eq!(number, PageNumber(n));
        change.body_mut(number).fill(n as u8);
        pages.insert(number, Arc::new(vec![n as u8; PAGE_BODY_BYTES]));
    }
    let lsn = change.commit().unwrap();
    rig.note(lsn, pages);
    rig.checkpoint(true).unwrap();
    let rig = reopened(&disk, budget_pages, &rig);
    (disk, rig)
}

fn data_pages() -> impl Iterator<Item = u32> + Clone {
    (1..=LAST).filter(|n| !n.is_multiple_of(8))
}

fn reopened(disk: &SimDisk, budget_pages: usize, rig: &Rig) -> Rig {
    Rig::recover(&disk.after_kill(), budget_pages, rig.redo, &rig.history).unwrap()
}

fn numbers(pages: impl IntoIterator<Item = u32>) -> Vec<PageNumber> {
    pages.into_iter().map(PageNumber).collect()
}

fn requests(rig: &Rig) -> u64 {
    let stats = rig.store.read_ahead_stats();
    stats.map_or(0, |stats| stats.requests.submitted)
}

#[test]
fn adjacent_pages_are_read_by_one_request_that_nobody_waits_for() {
    let (_, rig) = written(100);
    let wanted = numbers([1, 2, 3, 9, 10, 12]);
    assert_eq!(rig.store.prefetch(FILE, &wanted), 6);
    assert_eq!((requests(&rig), rig.store.stats().reads), (3, 0));
    // The newest request is served first, so that this one waits for all.
    assert!(
        rig.read(PageNumber(2))
            .unwrap()
            .iter()
            .all(|&byte| byte == 2)
    );
    assert_eq!(rig.store.stats().reads, 6);
    for number in wanted {
        assert!(rig.read(number).unwrap()[..] == rig.pages()[&number][..]);
    }
    assert_eq!(rig.store.stats().reads, 6);
    let run = numbers(13..23);
    assert_eq!(rig.store.prefetch(FILE, &run), 10);
    assert_eq!(requests(&rig), 5, "a request has eight pages at most");
    rig.verify("after reads ahead");
}

/// Neither a page in memory nor one that is on its way is read, and no page behind the file's end.
#[test]
fn only_absent_pages_are_read() {
    let (_, rig) = written(100);
    let mut change = rig.store.begin(FILE);
    change.write(PageNumber(3)).unwrap();
    change.body_mut(PageNumber(3)).fill(99);
    change.commit().unwrap();
    assert_eq!(rig.store.prefetch(FILE, &numbers([3, 3, 5000, 4])), 4);
    assert_eq!(rig.store.prefetch(FILE, &numbers([4])), 1);
    assert_eq!(requests(&rig), 1);
    assert_eq!(rig.read(PageNumber(3)).unwrap()[0], 99);
    assert_eq!(rig.read(PageNumber(4)).unwrap()[0], 4);
    assert_eq!(rig.store.prefetch(PageFileId(99), &numbers([1])), 0);
}

/// An eighth of the memory is for pages on their way.
#[test]
fn memory_for_reads_ahead_is_bounded() {
    let (_, rig) = written(16);
    assert_eq!(rig.store.prefetch(FILE, &numbers(1..=LAST)), 2);
    let more = rig.store.prefetch(FILE, &numbers([9]));
    assert_eq!(more, 0, "all on their way");
    let read = |n| rig.read(PageNumber(n)).unwrap();
    let held: Vec<PageRead> = (1..=16).map(read).collect();
    assert_eq!(rig.store.prefetch(FILE, &numbers([20])), 0, "all latched");
    drop(held);
    assert_eq!(rig.store.prefetch(FILE, &numbers([20])), 1);
    assert_eq!(read(20)[0], 20);
    assert!(rig.store.stats().frames <= 16);
}

#[test]
fn no_page_is_written_for_a_read_ahead() {
    let (_, mut rig) = written(14);
    let mut pages = rig.pages().clone();
    for (number, body) in pages.iter_mut().take(14) {
        let mut change = rig.store.begin(FILE);
        change.write(*number).unwrap();
        change.body_mut(*number)[0] = 99;
        Arc::make_mut(body)[0] = 99;
        change.commit().unwrap();
    }
    rig.note(rig.log.end(), pages);
    assert_eq!(rig.store.prefetch(FILE, &numbers([23])), 0, "all dirty");
    assert_eq!(rig.store.stats().writes, 0);
    assert_eq!(rig.store.stats().frames, 14);
    rig.verify("dirty");
}

/// Of pages that were read ahead and pages that were read once, the unused ones leave first.
#[test]
fn unused_pages_are_the_first_victims() {
    let (disk, rig) = written(16);
    let log = rig.log.clone();
    let disk = disk.after_kill();
    let store = PageStore::new(disk.device(), log, settings(16));
    store.open_file(FILE).unwrap();
    let read = |n| drop(store.read(FILE, PageNumber(n), Access::Sequential).unwrap());
    (1..=4).for_each(read);
    for from in (5..16).step_by(2) {
        assert_eq!(store.prefetch(FILE, &numbers(from..from + 2)), 2);
    }
    store.prefetch(FILE, &[]);
    read(8);
    let reads = store.stats().reads;
    assert_eq!(reads, 16);
    // 5, 6 and 7 are the oldest of eleven unused ones, of which four may stay.
    (17..=19).for_each(read);
    (1..=4).for_each(read);
    (8..=16).for_each(read);
    assert_eq!(
        store.stats().reads,
        reads + 3,
        "only unused pages have left"
    );
    assert_eq!(store.read_ahead_stats().unwrap().unused, 3);
}

#[test]
fn errors_of_reads_ahead_are_those_of_the_later_reads() {
    let (disk, rig) = written(100);
    let damaged = PageNumber(6);
    let place = 6 * PAGE_BYTES as u64 + 5000;
    let disk = disk.after_kill();
    disk.flip_bits(&page_file_name(FILE), place, 1);
    let rig = Rig::recover(&disk, 100, rig.redo, &rig.history).unwrap();
    assert_eq!(rig.store.prefetch(FILE, &numbers(4..9)), 5);
    let error = rig.read(damaged).expect_err("damaged");
    assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
    for n in [4, 5, 7] {
        assert_eq!(rig.read(PageNumber(n)).unwrap()[0], n as u8);
    }
    disk.fail_reads(&page_file_name(FILE));
    assert_eq!(rig.store.prefetch(FILE, &numbers(10..13)), 3);
    assert_eq!(
        rig.read(PageNumber(11)).unwrap_err().sqlstate(),
        SqlState::IO_ERROR
    );
    disk.mend_reads();
    for n in 10..13 {
        assert_eq!(rig.read(PageNumber(n)).unwrap()[0], n as u8);
    }
    disk.flip_bits(&page_file_name(FILE), place, 1);
    rig.verify("mended");
}

/// A file that is dropped, and a store that is dropped, with reads on their way.
#[test]
fn reads_on_their_way_outlive_file_and_store() {
    let (_, rig) = written(100);
    rig.store.prefetch(FILE, &numbers(1..9));
    rig.store.drop_file(FILE).unwrap();
    assert!(rig.read(PageNumber(3)).is_err());
    assert_eq!(rig.store.stats().frames, 0);
    rig.store.create_file(PageFileId(8)).unwrap();
    rig.store.prefetch(PageFileId(8), &numbers([0]));
    drop(
        rig.store
            .read(PageFileId(8), PageNumber(0), Access::Random)
            .unwrap(),
    );
    let (_, rig) = written(100);
    rig.store.prefetch(FILE, &numbers(1..9));
    drop(rig);
}

/// A page is read ahead from where its newest version is, also if that is the SSD cache.
#[test]
fn the_newest_version_is_read_in_every_mode() {
    for (seed, mode) in [None, Some(Mode::Pc), Some(Mode::Pc2), Some(Mode::Lc)]
        .into_iter()
        .enumerate()
    {
        let seed = seed as u64;
        let disk = SimDisk::new(seed);
        let mut rig = Rig::create_with(&disk, 8, mode).unwrap();
        let rng = &mut Rng::new(seed);
        for step in 0..400 {
            let known: Vec<PageNumber> = rig.pages().keys().copied().collect();
            let wanted = known
                .into_iter()
                .filter(|_| rng.one_in(3))
                .collect::<Vec<_>>();
            rig.store.prefetch(FILE, &wanted);
            let stepped = rig.step(rng, true);
            stepped.unwrap_or_else(|e| panic!("{mode:?}, step {step}: {e}"));
        }
        rig.verify(&format!("{mode:?}"));
        let stats = rig.store.read_ahead_stats().unwrap();
        // Most pages are in the cache, if there is one.
        assert!(stats.pages > 20 || mode.is_some(), "{mode:?}: {stats:?}");
    }
}

/// Threads that read all pages at random, ahead or not, in a memory that holds a third of them.
#[test]
fn reads_ahead_and_evictions_of_threads() {
    let (disk, rig) = written(8);
    for is_held in [true, false] {
        let device: Arc<dyn strandline_device::Device> = match is_held {
            true => Held::new(disk.device()),
            false => disk.device(),
        };
        let store = PageStore::new(device, rig.log.clone(), settings(8));
        store.open_file(FILE).unwrap();
        let store = &store;
        thread::scope(|scope| {
            for seed in 0..3 {
                scope.spawn(move || {
                    let rng = &mut Rng::new(seed);
                    let numbers: Vec<u32> = data_pages().collect();
                    for _ in 0..200 {
                        let number = PageNumber(numbers[rng.below(24) as usize]);
                        if rng.one_in(3) {
                            store.prefetch(FILE, &[number, PageNumber(number.0 ^ 1)]);
                            continue;
                        }
                        let page = store.read(FILE, number, Access::Random).unwrap();
                        assert!(page[1..].iter().all(|&byte| byte == number.0 as u8));
                    }
                });
            }
            scope.spawn(move || {
                for n in data_pages().cycle().take(100) {
                    let mut change = store.begin(FILE);
                    change.write(PageNumber(n)).unwrap();
                    // The byte that no reader looks at.
                    change.body_mut(PageNumber(n))[0] ^= 1;
                    change.commit().unwrap();
                }
            });
        });
        let stats = store.stats();
        assert!(stats.frames <= 8 + 2, "{stats:?}");
    }
}
