//! Windows without a device: their reads are the test's.

use super::*;
use strandline_base::{Error, Result};

/// A read that has this outcome.
#[derive(Debug)]
struct Done(Result<Vec<u8>>);

impl StartedRead for Done {
    fn wait(self: Box<Self>) -> Result<ReadBytes> {
        Ok(Box::new(self.0?))
    }
}

fn done(bytes: Vec<u8>) -> Option<Box<dyn StartedRead>> {
    Some(Box::new(Done(Ok(bytes))))
}

fn extent(offset: u64, len: u64) -> Extent {
    Extent { offset, len }
}

fn read(windows: &Windows, file: u64, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut memory = vec![0xee; len];
    windows.read(file, offset, &mut memory).then_some(memory)
}

#[test]
fn a_window_serves_what_lies_within_it_while_its_owner_lives() {
    let (windows, pool) = (Windows::default(), Pool::new(1 << 20));
    let bytes: Vec<u8> = (0..100).collect();
    let start = || done(bytes.clone());
    let window = windows.start((7, extent(1000, 100)), 0, &pool, start);
    let window = window.expect("room");
    assert_eq!(read(&windows, 7, 1000, 100), Some(bytes.clone()));
    assert_eq!(read(&windows, 7, 1010, 5), Some(vec![10, 11, 12, 13, 14]));
    assert_eq!(read(&windows, 7, 1099, 1), Some(vec![99]));
    for (file, offset, len) in [(7, 999, 2), (7, 1099, 2), (7, 0, 10), (8, 1010, 5)] {
        assert_eq!(read(&windows, file, offset, len), None);
        assert!(!windows.has(file, extent(offset, len as u64)));
    }
    assert!(windows.has(7, extent(1000, 100)));
    assert!(!window.has_failed());
    assert_eq!(pool.taken_bytes().load(Ordering::Relaxed), 100);
    drop(window);
    assert_eq!(read(&windows, 7, 1010, 5), None);
    assert!(!windows.has(7, extent(1000, 100)));
    assert_eq!(pool.taken_bytes().load(Ordering::Relaxed), 0);
}

#[test]
fn a_failed_window_serves_nothing() {
    let (windows, pool) = (Windows::default(), Pool::new(1 << 20));
    let outcomes = [Err(Error::internal("no answer")), Ok(vec![1; 9])];
    for outcome in outcomes {
        let start = || Some(Box::new(Done(outcome)) as Box<dyn StartedRead>);
        let window = windows.start((7, extent(0, 10)), 0, &pool, start);
        let window = window.expect("room");
        assert_eq!(read(&windows, 7, 0, 10), None, "failed, or too short");
        assert_eq!(read(&windows, 7, 0, 10), None, "again");
        drop(window);
    }
    let window = windows.start((7, extent(0, 10)), 0, &pool, || None);
    assert!(window.is_none(), "no read was started");
    assert_eq!(pool.taken_bytes().load(Ordering::Relaxed), 0);
}

/// Half of the share of all windows for the first scan, half of the rest for the second.
#[test]
fn windows_stay_within_their_share_of_the_pool() {
    let (windows, pool) = (Windows::default(), Pool::new(8 << 20));
    let start = |at: usize, own: usize| {
        let start = || done(vec![0; 1000]);
        windows.start((7, extent(at as u64 * 1000, 1000)), own, &pool, start)
    };
    let fill = || {
        let mut own = Vec::new();
        while let Some(window) = start(own.len(), own.len() * 1000) {
            own.push(window);
        }
        own
    };
    let first = fill();
    assert_eq!(first.len(), (1 << 20) / 1000);
    let second = fill();
    assert_eq!(second.len(), ((2 << 20) - first.len() * 1000) / 2 / 1000);
    let taken = pool.taken_bytes().load(Ordering::Relaxed);
    assert_eq!(taken, (first.len() + second.len()) * 1000);
    assert!(taken <= 2 << 20);
    drop(first);
    assert!(
        start(0, second.len() * 1000).is_some(),
        "room for the second"
    );
    drop(second);
    assert_eq!(pool.taken_bytes().load(Ordering::Relaxed), 0);
    assert_eq!(fill().len(), (1 << 20) / 1000);
    // Memory that others take reduces the share.
    pool.taken_bytes().store(4 << 20, Ordering::Relaxed);
    assert_eq!(fill().len(), (1 << 19) / 1000);
}

#[test]
fn a_window_too_long_for_its_share_is_not_started() {
    let (windows, pool) = (Windows::default(), Pool::new(8 << 20));
    for len in [(1 << 20) + 1, u64::MAX / 2, u64::MAX] {
        let start = || -> Option<Box<dyn StartedRead>> { panic!("no read is started") };
        assert!(
            windows
                .start((7, extent(0, len)), 0, &pool, start)
                .is_none()
        );
    }
}

#[test]
fn adjacent_extents_are_joined_up_to_the_longest_window() {
    assert_eq!(joined(Vec::new()), []);
    let near = joined(vec![extent(500, 10), extent(64, 100), extent(164, 336)]);
    assert_eq!(near, [extent(64, 446)]);
    let gap = GAP_BYTES;
    let close = joined(vec![extent(0, 10), extent(10 + gap, 10)]);
    assert_eq!(close, [extent(0, 20 + gap)]);
    let far = vec![extent(0, 10), extent(11 + gap, 10)];
    assert_eq!(joined(far.clone()), far);
    let overlapping = joined(vec![extent(0, 100), extent(50, 20), extent(90, 20)]);
    assert_eq!(overlapping, [extent(0, 110)]);
    let mib = 1 << 20;
    let pieces: Vec<Extent> = (0..10).map(|at| extent(at * mib, mib)).collect();
    let expected = [
        extent(0, 4 * mib),
        extent(4 * mib, 4 * mib),
        extent(8 * mib, 2 * mib),
    ];
    assert_eq!(joined(pieces), expected);
    let long = vec![extent(0, 9 * mib), extent(9 * mib, 1)];
    assert_eq!(joined(long.clone()), long, "a long one stays alone");
    let within = joined(vec![extent(0, 9 * mib), extent(mib, 1)]);
    assert_eq!(within, [extent(0, 9 * mib)]);
}

/// Readers on many threads wait for the same window, which others drop meanwhile.
#[test]
fn readers_share_a_window() {
    let (windows, pool) = (Windows::default(), Pool::new(1 << 20));
    for _ in 0..50 {
        let start = || done((0..200).collect());
        let window = windows.start((7, extent(0, 200)), 0, &pool, start);
        std::thread::scope(|threads| {
            for at in 0..4_usize {
                let windows = &windows;
                threads.spawn(move || {
                    if let Some(bytes) = read(windows, 7, at as u64 * 50, 50) {
                        assert_eq!(
                            bytes,
                            (at as u8 * 50..at as u8 * 50 + 50).collect::<Vec<_>>()
                        );
                    }
                });
            }
            threads.spawn(move || drop(window));
        });
        assert_eq!(pool.taken_bytes().load(Ordering::Relaxed), 0);
    }
}
