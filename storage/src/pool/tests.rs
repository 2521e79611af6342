//! The budget, second chances, and handles that come and go.

use super::*;

/// Two frames are read repeatedly while a scan loads ten times the budget, once each.
#[test]
fn stays_within_budget_and_spares_what_is_read() {
    let pool = Pool::new(1000);
    let handles: Vec<FrameHandle<u32>> = (0..100).map(|_| FrameHandle::new(&pool)).collect();
    for (i, handle) in handles.iter().enumerate() {
        let got = handle.get_or_load(|| Ok((i as u32, 100))).expect("load");
        assert_eq!(*got, i as u32);
        assert!(pool.used_bytes() <= 1000, "used {}", pool.used_bytes());
        assert!(handle.is_filled(), "the newest frame was evicted");
        for read in &handles[..2.min(i + 1)] {
            assert!(read.get().is_some(), "evicted at {i} although read");
        }
    }
    assert!(!handles[2].is_filled(), "a cold frame stayed");
    assert_eq!(pool.used_bytes(), 1000);
    assert_eq!(pool.misses(), 100);
    drop(handles);
    assert_eq!(pool.used_bytes(), 0);
}

#[test]
fn a_frame_read_once_more_is_spared_once() {
    let pool = Pool::new(300);
    let handles: Vec<FrameHandle<u32>> = (0..7).map(|_| FrameHandle::new(&pool)).collect();
    let load = |at: usize| handles[at].get_or_load(|| Ok((0, 100))).map(drop);
    let filled = || -> Vec<usize> { (0..7).filter(|&i| handles[i].is_filled()).collect() };
    (0..3).for_each(|at| load(at).expect("load"));
    handles[0].get();
    load(3).expect("load");
    assert_eq!(filled(), [0, 2, 3]);
    (4..6).for_each(|at| load(at).expect("load"));
    assert_eq!(filled(), [0, 4, 5], "its turn has not come");
    load(6).expect("load");
    assert_eq!(filled(), [4, 5, 6], "not read again");
}

#[test]
fn a_frame_larger_than_half_the_budget_is_not_kept() {
    let pool = Pool::new(100);
    let handle = FrameHandle::new(&pool);
    assert_eq!(*handle.get_or_load(|| Ok((7u8, 51))).expect("load"), 7);
    assert!(!handle.is_filled());
    assert_eq!(pool.used_bytes(), 0);
}

/// Merges continually replace chunks and their handles, even if the pool is never full.
#[test]
fn the_ring_forgets_handles_that_are_dropped() {
    let pool = Pool::new(1 << 20);
    let kept: Vec<FrameHandle<u8>> = (0..100).map(|_| FrameHandle::new(&pool)).collect();
    let load =
        |handle: &FrameHandle<u8>| handle.get_or_load(|| Ok((1, 1))).map(drop).expect("load");
    kept.iter().for_each(load);
    let entries = || pool.ring.lock().len();
    for round in 0..10_000 {
        load(&FrameHandle::new(&pool));
        let entries = entries();
        assert!((100..=201).contains(&entries), "{entries} after {round}");
    }
    assert!(kept.iter().all(FrameHandle::is_filled));
    // The last drops remove the remaining entries, without any load.
    drop(kept);
    assert!(entries() <= DROPPED_MIN as usize, "{}", entries());
    assert_eq!(pool.filled.load(Ordering::Relaxed), 0);
    assert_eq!(pool.dropped.load(Ordering::Relaxed), entries() as isize);
}

/// Dropped entries that the hand finds are counted once, on every path of removal.
#[test]
fn the_hand_takes_dropped_handles_out() {
    let pool = Pool::new(100);
    for _ in 0..50 {
        let handle: FrameHandle<u8> = FrameHandle::new(&pool);
        handle.get_or_load(|| Ok((1, 1))).expect("load");
    }
    let handles: Vec<FrameHandle<u8>> = (0..200).map(|_| FrameHandle::new(&pool)).collect();
    for handle in &handles {
        handle.get_or_load(|| Ok((1, 1))).expect("load");
    }
    assert_eq!(pool.ring.lock().len(), 100);
    assert_eq!(pool.filled.load(Ordering::Relaxed), 100);
    assert_eq!(pool.dropped.load(Ordering::Relaxed), 0);
}

#[test]
fn others_take_of_the_budget() {
    let pool = Pool::new(1000);
    let handles: Vec<FrameHandle<u8>> = (0..10).map(|_| FrameHandle::new(&pool)).collect();
    let load =
        |handle: &FrameHandle<u8>| handle.get_or_load(|| Ok((1, 100))).map(drop).expect("load");
    handles.iter().for_each(load);
    assert_eq!(pool.used_bytes(), 1000);
    for (bytes, left) in [(400, 600), (5000, 200), (0, 300)] {
        pool.taken_bytes().store(bytes, Ordering::Relaxed);
        load(&handles[0]);
        load(&FrameHandle::new(&pool));
        assert!(pool.used_bytes() <= left, "{} of {left}", pool.used_bytes());
    }
}

#[test]
fn what_is_lent_is_given_at_once_and_comes_back() {
    let pool = Pool::new(1000);
    let handles: Vec<FrameHandle<u8>> = (0..10).map(|_| FrameHandle::new(&pool)).collect();
    let load =
        |handle: &FrameHandle<u8>| handle.get_or_load(|| Ok((1, 100))).map(drop).expect("load");
    handles.iter().for_each(load);
    pool.lend(400);
    assert_eq!((pool.used_bytes(), pool.budget_bytes()), (600, 600));
    // Beside key indexes, down to the part that stays with the pool.
    pool.taken_bytes().store(200, Ordering::Relaxed);
    pool.lend(500);
    assert_eq!((pool.used_bytes(), pool.budget_bytes()), (300, 300));
    pool.lend(5000);
    assert_eq!((pool.used_bytes(), pool.budget_bytes()), (200, 250));
    pool.lend(0);
    pool.taken_bytes().store(0, Ordering::Relaxed);
    handles.iter().for_each(load);
    assert_eq!(pool.used_bytes(), 1000);
}

#[test]
fn a_failed_load_leaves_the_handle_empty() {
    let pool = Pool::new(100);
    let handle: FrameHandle<u8> = FrameHandle::new(&pool);
    assert!(
        handle
            .get_or_load(|| Err(strandline_base::Error::internal("x")))
            .is_err()
    );
    assert_eq!(*handle.get_or_load(|| Ok((1, 1))).expect("load"), 1);
}
