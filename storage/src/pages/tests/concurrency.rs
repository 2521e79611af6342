//! Threads that move amounts between pages: every reader of all pages sees the same sum.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

const PAGES: u32 = 10;
const EACH: u64 = 1000;

fn amount(body: &[u8]) -> u64 {
    u64::from_le_bytes(body[..8].try_into().unwrap())
}

/// The sum over pages that are latched together, in ascending order.
fn sum(store: &PageStore, numbers: &[PageNumber]) -> u64 {
    let read = |number: &PageNumber| store.read(FILE, *number, Access::Random).unwrap();
    let pages: Vec<PageRead> = numbers.iter().map(read).collect();
    pages.iter().map(|page| amount(page)).sum()
}

fn transfer(store: &Arc<PageStore>, numbers: &[PageNumber], rng: &mut Rng) {
    let mut pair = [0, 1].map(|_| rng.below(u64::from(PAGES)) as usize);
    pair.sort_unstable();
    let [from, to] = pair.map(|at| numbers[at]);
    let mut change = store.begin(FILE);
    change.write(from).unwrap();
    change.write(to).unwrap();
    let moved = rng.below(10).min(amount(change.body(from)));
    for (number, gets) in [(from, false), (to, true)] {
        let body = change.body_mut(number);
        let now = amount(body);
        let after = if gets { now + moved } else { now - moved };
        body[..8].copy_from_slice(&after.to_le_bytes());
    }
    if rng.one_in(3) {
        let scratch = change.allocate().unwrap();
        if rng.one_in(2) {
            change.free(scratch).unwrap();
        } else {
            change.body_mut(scratch).fill(1);
        }
    }
    if !rng.one_in(5) {
        change.commit().unwrap();
    }
}

#[test]
fn concurrent_changes_are_atomic() {
    concurrent_changes(None);
}

#[test]
fn concurrent_changes_are_atomic_through_the_cache() {
    concurrent_changes(Some(Mode::Pc));
    concurrent_changes(Some(Mode::Lc));
}

fn concurrent_changes(cache: Option<Mode>) {
    let disk = SimDisk::new(1);
    let rig = Rig::create_with(&disk, 4, cache).unwrap();
    let mut change = rig.store.begin(FILE);
    let numbers: Vec<PageNumber> = (0..PAGES)
        .map(|_| {
            let number = change.allocate().unwrap();
            change.body_mut(number)[..8].copy_from_slice(&EACH.to_le_bytes());
            number
        })
        .collect();
    change.commit().unwrap();
    let total = EACH * u64::from(PAGES);
    let is_over = AtomicBool::new(false);
    let redo = thread::scope(|scope| {
        let changers: Vec<_> = (0..3)
            .map(|seed| {
                let (store, numbers) = (&rig.store, &numbers);
                scope.spawn(move || {
                    let rng = &mut Rng::new(seed);
                    (0..150).for_each(|_| transfer(store, numbers, rng));
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                rig.store.prefetch(FILE, &numbers);
                assert_eq!(sum(&rig.store, &numbers), total);
                thread::yield_now();
            }
        });
        let steps = scope.spawn(|| {
            while let Some(cache) = rig.store.cache()
                && !is_over.load(Ordering::Relaxed)
            {
                cache.step().unwrap();
                cache.clean_idle(2).unwrap();
            }
        });
        let checkpoints = scope.spawn(|| {
            let mut redo = Lsn(0);
            while !is_over.load(Ordering::Relaxed) {
                redo = rig.store.checkpoint().unwrap();
                thread::yield_now();
            }
            redo
        });
        let ends: Vec<_> = changers.into_iter().map(|changer| changer.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
        reader.join().unwrap();
        steps.join().unwrap();
        checkpoints.join().unwrap()
    });
    assert_eq!(sum(&rig.store, &numbers), total);
    rig.log.make_durable(rig.log.end()).unwrap();
    for style in 0..3 {
        let disk = disk.after_crash(style);
        let found = Rig::recover_with(&disk, 4, redo, &rig.history, cache).unwrap();
        assert_eq!(sum(&found.store, &numbers), total, "style {style}");
        let before = rig.store.check(FILE).unwrap();
        assert_eq!(found.store.check(FILE).unwrap().used, before.used);
    }
}

/// A change that commits while an older image is written leaves the page dirty, and evictable only
/// once the newer image is written.
#[test]
fn a_change_during_a_write_is_written_later() {
    let rig = Rig::create(&SimDisk::new(1), 8).unwrap();
    let mut change = rig.store.begin(FILE);
    let number = change.allocate().unwrap();
    change.commit().unwrap();
    let id = PageId { file: FILE, number };
    let frame = rig.store.cached(id).unwrap();
    let older = frame.begin_store().expect("dirty");
    let mut change = rig.store.begin(FILE);
    change.write(number).unwrap();
    change.body_mut(number)[0] = 1;
    let lsn = change.commit().unwrap();
    assert!(older.lsn < lsn);
    frame.end_store(false);
    assert_eq!(frame.dirty_lsn(), Some(lsn));
    let newer = frame.begin_store().expect("dirty still");
    assert_eq!((newer.lsn, newer.body[0]), (lsn, 1));
    frame.end_store(false);
    assert!(frame.begin_store().is_none());
}
