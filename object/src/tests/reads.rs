//! Files that are read: ranges, windows, what is missing or damaged.

use super::*;
use object_store::ObjectStoreExt;
use strandline_base::rng::Rng;
use strandline_base::{ErrorKind, SqlState};
use strandline_device::ReadAt;

/// The ranges that were requested since request number `from`.
fn gets(store: &SimStore, from: u64) -> Vec<(u64, u64)> {
    let range = |request: &String| {
        let range = request.strip_prefix("get ")?.split(' ').next()?;
        let (start, end) = range.split_once("..")?;
        Some((start.parse().ok()?, end.parse().ok()?))
    };
    store.log(from).iter().filter_map(range).collect()
}

fn stored(store: &SimStore, len: usize) -> Arc<dyn File> {
    let options = Options {
        part_bytes: 64 << 20,
        ..options()
    };
    let device = device_with(store, options);
    let file = write(&device, "chunks-1", &content(len)).expect("write");
    let opened = device.open("chunks-1").expect("open");
    drop(file);
    opened
}

#[test]
fn neighbouring_reads_share_requests() {
    let store = SimStore::new();
    let len = 6 << 20;
    let file = stored(&store, len);
    let before = store.requests();
    let (piece, bytes) = (32 << 10, content(len));
    for at in (0..len).step_by(piece) {
        assert_eq!(read(&*file, at as u64, piece), bytes[at..at + piece]);
    }
    let gets = gets(&store, before);
    assert!(gets.len() <= 8, "{} reads took {gets:?}", len / piece);
    let fetched: u64 = gets.iter().map(|(start, end)| end - start).sum();
    assert_eq!(fetched, len as u64, "nothing is fetched twice");
    assert!(gets.iter().all(|(start, end)| end - start <= 2 << 20));
}

#[test]
fn streams_of_one_file_do_not_disturb_each_other() {
    let store = SimStore::new();
    let len = 8 << 20;
    let file = stored(&store, len);
    let before = store.requests();
    let (piece, bytes) = (64 << 10, content(len));
    for step in 0..16 {
        for stream in 0..4 {
            let at = (stream * (len / 4) + step * piece) as u64;
            let expected = &bytes[at as usize..at as usize + piece];
            assert_eq!(read(&*file, at, piece), expected);
        }
    }
    assert!(
        gets(&store, before).len() <= 20,
        "{:?}",
        gets(&store, before)
    );
}

/// One request for each read, none for what a window has, and no window for streams of batches.
#[test]
fn a_batch_fetches_what_it_asks_for() {
    let store = SimStore::new();
    let len = 6 << 20;
    let (file, bytes) = (stored(&store, len), content(len));
    assert_eq!(read(&*file, 0, 64), bytes[..64]);
    let before = store.requests();
    for from in [1 << 20, (1 << 20) + 9_000] {
        let places = [
            64,
            from,
            from + 100_000,
            from + 200_000,
            from + 300_000,
            from,
        ];
        let mut buffers = vec![vec![0; 8_000]; places.len()];
        let reads = places.iter().zip(&mut buffers);
        let mut reads: Vec<ReadAt<'_>> = reads
            .map(|(&at, buf)| ReadAt {
                offset: at as u64,
                buf,
            })
            .collect();
        file.read_batch(&mut reads).expect("read");
        for (at, buffer) in places.into_iter().zip(&buffers) {
            assert_eq!(*buffer, bytes[at..at + 8_000]);
        }
    }
    let gets = gets(&store, before);
    assert_eq!(gets.len(), 2 * 5, "{gets:?}");
    assert!(gets.iter().all(|(start, end)| end - start == 8_000));
    let mut beyond = [0; 100];
    let reads = &mut [ReadAt {
        offset: len as u64 - 50,
        buf: &mut beyond,
    }];
    let error = file.read_batch(reads).expect_err("beyond the end");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_read_elsewhere_fetches_what_it_asks_for() {
    let store = SimStore::new();
    let file = stored(&store, 4 << 20);
    let before = store.requests();
    read(&*file, 3 << 20, 100);
    read(&*file, 1 << 20, 5000);
    read(&*file, 2 << 20, 1);
    let expected = [
        (3 << 20, (3 << 20) + 100),
        (1 << 20, (1 << 20) + 5000),
        (2 << 20, (2 << 20) + 1),
    ];
    assert_eq!(gets(&store, before), expected);
}

#[test]
fn a_long_read_is_several_requests_at_the_same_time() {
    let store = SimStore::new();
    store.set_latency(Duration::from_millis(10));
    let len = 30 << 20;
    let file = stored(&store, len);
    let before = store.requests();
    assert_eq!(read(&*file, 7, len - 7), content(len)[7..]);
    let gets = gets(&store, before);
    assert_eq!(gets.len(), 8);
    assert!(gets.iter().all(|(start, end)| end - start <= 4 << 20));
}

#[test]
fn random_reads_are_right() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let store = SimStore::new();
        let len = 1 + rng.below(3 << 20) as usize;
        let (file, bytes) = (stored(&store, len), content(len));
        let mut at = 0;
        for _ in 0..200 {
            // Often where the last read has ended, or near.
            if rng.one_in(3) || at >= len {
                at = rng.below(len as u64) as usize;
            }
            let n = (rng.below(200_000) as usize).min(len - at);
            assert_eq!(read(&*file, at as u64, n), bytes[at..at + n], "seed {seed}");
            at += n + rng.below(3000) as usize;
        }
    }
}

#[test]
fn reads_beyond_the_end_are_refused_without_a_request() {
    let store = SimStore::new();
    let file = stored(&store, 100);
    let before = store.requests();
    for (offset, n) in [(0, 101), (100, 1), (99, 2), (u64::MAX, 1)] {
        let error = file
            .read_exact_at(&mut vec![0; n], offset)
            .expect_err("too far");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains("chunks-1"), "{error}");
    }
    file.read_exact_at(&mut [], 100).expect("nothing");
    assert_eq!(store.requests(), before);
}

#[test]
fn a_missing_object_is_damage_and_names_it() {
    let store = SimStore::new();
    let file = stored(&store, 100);
    let path = Path::from("a/b/chunks-1");
    futures::executor::block_on(store.objects().delete(&path)).expect("delete");
    let error = file.read_exact_at(&mut [0; 10], 0).expect_err("missing");
    assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
    for part in ["\"chunks-1\"", "sim://bucket/a/b", "missing"] {
        assert!(error.message().contains(part), "{error}");
    }
    let unknown = device(&store).open("chunks-1").expect_err("missing");
    assert_eq!(unknown.sqlstate(), SqlState::UNDEFINED_FILE);
    // One that was cut by other hands.
    let shorter = store.objects().put(&path, "short".into());
    futures::executor::block_on(shorter).expect("put");
    let error = file.read_exact_at(&mut [0; 10], 0).expect_err("shorter");
    assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
}

#[test]
fn a_removed_name_reads_as_its_next_object() {
    let store = SimStore::new();
    let device = device(&store);
    for seed in [1, 2] {
        write(&device, "tier", &[seed; 100]).expect("write");
        // The rest is kept as a window.
        let file = device.open("tier").expect("open");
        assert_eq!(read(&*file, 0, 10), [seed; 10]);
        assert_eq!(read(&*file, 10, 90), [seed; 90]);
        device.remove("tier").expect("remove");
    }
}

fn started(file: &dyn File, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
    let started = file.start_read(offset, len).expect("started");
    Ok((*started.wait()?).as_ref().to_vec())
}

#[test]
fn started_reads_are_right_and_take_what_they_ask_for() {
    let store = SimStore::new();
    let len = 9 << 20;
    let (file, bytes) = (stored(&store, len), content(len));
    let before = store.requests();
    for (offset, n) in [(0, 1), (7, 100), (len - 1, 1), (3, 4 << 20), (0, len)] {
        let read = started(&*file, offset as u64, n as u64).expect("read");
        assert_eq!(read, bytes[offset..offset + n]);
    }
    let gets = gets(&store, before);
    assert_eq!(gets.len(), 4 + 3, "{gets:?}");
    for (offset, n) in [(0, 0), (0, len as u64 + 1), (len as u64, 1), (u64::MAX, 1)] {
        assert!(file.start_read(offset, n).is_none(), "{offset} {n}");
    }
    let unsynced = device(&store).create("chunks-2").expect("create");
    unsynced.write_all_at(&[1; 10], 0).expect("write");
    assert!(unsynced.start_read(0, 10).is_none(), "not stored yet");
    assert_eq!(store.requests() - before, 7);
}

#[test]
fn a_started_read_has_the_error_of_its_last_attempt() {
    let store = SimStore::new();
    let file = stored(&store, 5 << 20);
    store.fault_at(store.requests() + 1, strandline_sim::StoreFault::Refuse);
    started(&*file, 0, 5 << 20).expect("the second attempt");
    store.set_unreachable(true);
    let error = started(&*file, 0, 5 << 20).expect_err("unreachable");
    assert_eq!(error.sqlstate(), SqlState::IO_ERROR);
}

/// On the real clock: requests that wait for others would time out on a paused one.
#[test]
fn a_started_read_requests_all_at_once_and_ends_when_it_is_dropped() {
    let store = SimStore::new();
    let options = Options {
        part_bytes: 64 << 20,
        ..Options::default()
    };
    let shared: Arc<dyn crate::Store> = Arc::new(store.clone());
    let device = ObjectDevice::new(shared, Path::from("a/b"), "sim://", options).expect("device");
    let len = 24 << 20;
    let file = write(&device, "chunks-1", &content(len)).expect("write");
    store.gather_gets("chunks-", 6);
    assert_eq!(started(&*file, 0, len as u64).expect("read"), content(len));
    assert_eq!(store.gets_in_flight_max(), 6);
    store.gather_gets("chunks-", 1000);
    let dropped = file.start_read(0, len as u64).expect("started");
    while store.gets_in_flight() < 6 {
        std::thread::yield_now();
    }
    drop(dropped);
    while store.gets_in_flight() > 0 {
        std::thread::yield_now();
    }
}
