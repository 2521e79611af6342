//! Attempts, timeouts, names and counters.

use super::*;
use object_store::ObjectStoreExt;
use strandline_base::SqlState;
use strandline_device::Tier;
use strandline_sim::StoreFault;

#[test]
fn a_request_is_repeated_a_bounded_number_of_times() {
    let store = SimStore::new();
    let device = device(&store);
    write(&device, "chunks-1", &content(100)).expect("write");
    let file = device.open("chunks-1").expect("open");
    store.set_unreachable(true);
    let before = store.requests();
    let error = file
        .read_exact_at(&mut [0; 10], 50)
        .expect_err("unreachable");
    assert_eq!(error.sqlstate(), SqlState::IO_ERROR);
    assert_eq!(store.requests() - before, 3);
    let get = stats(&device, "get");
    assert_eq!(
        (get.requests, get.retries, get.errors, get.bytes),
        (3, 2, 1, 0)
    );
    store.set_unreachable(false);
    assert_eq!(read(&*file, 50, 10), content(100)[50..60]);
    let get = stats(&device, "get");
    assert_eq!((get.requests, get.retries, get.errors), (4, 2, 1));
    for refused in [device.list().err(), device.remove("chunks-1").err()] {
        assert!(refused.is_none());
    }
}

#[test]
fn a_store_without_answers_ends_in_a_timeout_that_says_so() {
    let store = SimStore::new();
    let device = device(&store);
    write(&device, "chunks-1", &content(100)).expect("write");
    let file = device.open("chunks-1").expect("open");
    for request in 2..20 {
        store.fault_at(request, StoreFault::Hang);
    }
    let error = file.read_exact_at(&mut [0; 10], 0).expect_err("no answer");
    assert_eq!(error.sqlstate(), SqlState::IO_ERROR);
    assert!(error.message().contains("no answer within"), "{error}");
    assert!(error.message().contains("\"chunks-1\""), "{error}");
    // Two whole attempts of 30 s each are the operation's 60 s.
    let get = stats(&device, "get");
    assert_eq!((get.requests, get.timeouts, get.errors), (2, 2, 1));
}

#[test]
fn a_slow_store_is_waited_for() {
    let store = SimStore::new();
    store.set_latency(Duration::from_secs(29));
    let device = device(&store);
    write(&device, "chunks-1", &content(2500)).expect("write");
    assert_eq!(whole(&device, "chunks-1"), content(2500));
    assert_eq!(stats(&device, "get").retries, 0);
}

#[test]
fn names_are_those_directly_below_the_prefix() {
    let store = SimStore::new();
    for path in ["a/b/x", "a/b/y", "a/b/c/z", "a/bc", "b/x", "x"] {
        let location = Path::from(path);
        let put = store.objects().put(&location, path.into());
        futures::executor::block_on(put).expect("put");
    }
    let device = device(&store);
    assert_eq!(device.list().expect("list"), ["x", "y"]);
    let before = store.requests();
    assert_eq!(device.open("x").expect("open").len().expect("len"), 5);
    assert_eq!(store.requests(), before, "a listed length is known");
    device.remove("x").expect("remove");
    device
        .remove("x")
        .expect("a missing name is removed already");
    assert_eq!(device.list().expect("list"), ["y"]);
    let error = device.open("x").expect_err("removed");
    assert_eq!(error.sqlstate(), SqlState::UNDEFINED_FILE);
    let error = device.rename("y", "z").expect_err("not renamed");
    assert_eq!(error.sqlstate(), SqlState::FEATURE_NOT_SUPPORTED);
    device.create("w").expect("create");
    assert_eq!(device.list().expect("list"), ["w", "y"]);
    device.sync_directory().expect("nothing to do");
    assert!(device.is_written_once(Tier::Capacity));
}

#[test]
fn names_that_another_process_has_stored_and_removed_are_seen() {
    let store = SimStore::new();
    let (one, two) = (device(&store), device(&store));
    write(&one, "chunks-1", b"content").expect("write");
    assert_eq!(whole(&two, "chunks-1"), b"content");
    assert_eq!(store.log(1)[0], "head chunks-1");
    one.remove("chunks-1").expect("remove");
    assert!(two.list().expect("list").is_empty(), "and that it is gone");
}

#[test]
fn a_device_is_locked_once() {
    let device = device(&SimStore::new());
    let lock = device.lock().expect("free");
    let error = device.lock().err().expect("held");
    assert_eq!(error.sqlstate(), SqlState::OBJECT_IN_USE);
    drop(lock);
    device.lock().expect("free again");
}

#[test]
fn files_outlive_their_device() {
    let store = SimStore::new();
    let device = device(&store);
    let file = write(&device, "chunks-1", b"content").expect("write");
    let unfinished = device.create("chunks-2").expect("create");
    unfinished.write_all_at(&content(2500), 0).expect("write");
    drop(device);
    assert_eq!(read(&*file, 0, 7), b"content");
    drop(file);
    drop(unfinished);
}
