//! Files that are written: what is stored, and what is left when a request fails.

use super::*;
use object_store::ObjectStoreExt;
use strandline_base::SqlState;
use strandline_sim::StoreFault;

#[test]
fn a_small_file_is_one_conditional_put_and_read_back() {
    let store = SimStore::new();
    let device = device(&store);
    for len in [0, 1, 999, 1000] {
        let before = store.requests();
        let (name, bytes) = (format!("chunks-{len}"), content(len));
        write(&device, &name, &bytes).expect("write");
        assert_eq!(store.log(before), [format!("put {name}")]);
        assert_eq!(whole(&device, &name), bytes);
    }
    assert_eq!(stats(&device, "put").bytes, 2000);
    let names = ["chunks-0", "chunks-1", "chunks-1000", "chunks-999"];
    assert_eq!(device.list().expect("list"), names);
}

#[test]
fn a_large_file_is_uploaded_in_parts_while_it_is_written() {
    let store = SimStore::new();
    let device = device(&store);
    let bytes = content(3500);
    let file = device.create("chunks-1").expect("create");
    for (piece, at) in bytes.chunks(700).zip((0..).step_by(700)) {
        file.set_len(at + piece.len() as u64).expect("allocate");
        file.write_all_at(piece, at).expect("write");
    }
    assert!(stats(&device, "put part").requests >= 1, "before the sync");
    assert!(device.open("chunks-1").is_err(), "it is not stored yet");
    file.sync().expect("sync");
    let expected = [
        "begin chunks-1",
        "complete chunks-1",
        "head chunks-1",
        "part 0 chunks-1",
        "part 1 chunks-1",
        "part 2 chunks-1",
        "part 3 chunks-1",
    ];
    let mut log = store.log(0);
    log.sort();
    assert_eq!(log, expected);
    assert_eq!(whole(&device, "chunks-1"), bytes);
    assert_eq!(stats(&device, "put part").bytes, 3500);
    assert_eq!(store.unfinished_uploads(), 0);
    file.sync().expect("a second sync has nothing to do");
}

#[test]
fn a_length_that_was_asked_for_is_filled_with_zeros() {
    let store = SimStore::new();
    let device = device(&store);
    for len in [10, 4321] {
        let name = format!("run-{len}");
        let file = device.create(&name).expect("create");
        file.write_all_at(b"ab", 3).expect("write with a gap");
        file.set_len(len).expect("extend");
        assert_eq!(file.len().expect("len"), len);
        file.sync().expect("sync");
        let mut expected = vec![0; len as usize];
        expected[3..5].copy_from_slice(b"ab");
        assert_eq!(whole(&device, &name), expected);
    }
}

#[test]
fn a_stored_file_does_not_change() {
    let store = SimStore::new();
    let device = device(&store);
    let file = write(&device, "chunks-1", b"before").expect("write");
    for refused in [
        file.write_all_at(b"after", 0),
        file.set_len(3),
        file.set_len(9),
    ] {
        let error = refused.expect_err("it is stored");
        assert!(error.message().contains("\"chunks-1\""), "{error}");
        assert!(error.message().contains("sim://bucket/a/b"), "{error}");
    }
    file.set_len(6).expect("its length");
    device.create("chunks-1").expect_err("it exists");
    assert_eq!(whole(&device, "chunks-1"), b"before");
    // Not in order, and read too early.
    let file = device.create("chunks-2").expect("create");
    file.write_all_at(b"abc", 0).expect("write");
    file.read_exact_at(&mut [0], 0).expect_err("not stored");
    file.write_all_at(b"x", 1).expect_err("written twice");
    file.sync().expect_err("the file is lost");
    assert!(
        !store
            .log(0)
            .iter()
            .any(|request| request.contains("chunks-2"))
    );
}

#[test]
fn an_object_of_another_process_is_not_overwritten() {
    let store = SimStore::new();
    let (one, two) = (device(&store), device(&store));
    for len in [10, 2500] {
        let name = format!("chunks-{len}");
        write(&one, &name, &content(len)).expect("write");
        let error = write(&two, &name, &vec![7; len]).expect_err("it exists");
        assert_eq!(error.sqlstate(), SqlState::DUPLICATE_FILE);
        assert!(error.message().contains(&name), "{error}");
        // Equal content is another process's object too.
        two.names_forget(&name);
        write(&two, &name, &content(len)).expect_err("it exists");
        assert_eq!(whole(&one, &name), content(len));
    }
}

/// Whatever fails at whatever request: the sync reports success only for the whole object, and a
/// file without success leaves an object that is whole or nothing that is listed.
#[test]
fn each_fault_at_each_request_leaves_a_whole_object_or_none() {
    use StoreFault::{Hang, HangAfter, LoseAnswer, Refuse};
    for len in [500, 2500] {
        let bytes = content(len);
        for fault in [Refuse, LoseAnswer, Hang, HangAfter] {
            for at in 1.. {
                let store = SimStore::new();
                store.fault_at(at, fault);
                let device = device(&store);
                write(&device, "chunks-1", &bytes).expect("one fault is overcome");
                let has_ended = store.requests() < at;
                assert_eq!(whole(&device, "chunks-1"), bytes, "{fault:?} at {at}");
                if has_ended {
                    break;
                }
            }
        }
        // A store that stays away from some request on.
        for (at, is_carried_out) in (1..10).flat_map(|at| [(at, true), (at, false)]) {
            let store = SimStore::new();
            store.crash_at(at, is_carried_out, &strandline_sim::SimDisk::new(1));
            let written = write(&device(&store), "chunks-1", &bytes);
            assert_eq!(written.is_err(), store.has_crashed());
            let found = store.after_crash();
            let device = device(&found);
            match device.list().expect("list").as_slice() {
                [] => assert!(written.is_err()),
                _ => assert_eq!(whole(&device, "chunks-1"), bytes),
            }
        }
    }
}

#[test]
fn a_lost_answer_is_cleared_up_by_reading_back() {
    for fault in [StoreFault::LoseAnswer, StoreFault::HangAfter] {
        let store = SimStore::new();
        store.fault_at(1, fault);
        let device = device(&store);
        write(&device, "chunks-1", b"content").expect("write");
        let log = store.log(0);
        let expected = [
            "put chunks-1",
            "put chunks-1",
            "head chunks-1",
            "get 0..7 chunks-1",
        ];
        assert_eq!(log, expected);
    }
    // Another object of the same length is not taken for ours.
    let store = SimStore::new();
    let path = Path::from("a/b/chunks-1");
    let other = store.objects().put(&path, "CONTENT".into());
    futures::executor::block_on(other).expect("put");
    store.fault_at(1, StoreFault::Refuse);
    let error = write(&device(&store), "chunks-1", b"content").expect_err("it exists");
    assert_eq!(error.sqlstate(), SqlState::DUPLICATE_FILE);
}

#[test]
fn another_object_is_not_removed_with_the_file_that_met_it() {
    for len in [7, 2500] {
        let (store, bytes) = (SimStore::new(), content(len));
        let (one, two) = (device(&store), device(&store));
        let file = two.create("chunks-1").expect("create");
        file.write_all_at(&bytes, 0).expect("write");
        write(&one, "chunks-1", b"content of another").expect("write");
        let error = file.sync().expect_err("it exists");
        assert_eq!(error.sqlstate(), SqlState::DUPLICATE_FILE);
        two.remove("chunks-1").expect("remove");
        assert_eq!(stats(&two, "delete").requests, 0);
        assert_eq!(whole(&one, "chunks-1"), b"content of another");
    }
    // If the read-back fails the object may be ours: the error does not say that it is another's.
    let store = SimStore::new();
    store.fault_at(1, StoreFault::LoseAnswer);
    for request in 3..20 {
        store.fault_at(request, StoreFault::Refuse);
    }
    let device = device(&store);
    let error = write(&device, "chunks-1", b"content").expect_err("unknown");
    assert_eq!(error.sqlstate(), SqlState::IO_ERROR);
    device.remove("chunks-1").expect_err("unreachable");
    assert_eq!(stats(&device, "delete").requests, 3, "it may be ours");
}

#[test]
fn a_file_that_is_given_up_leaves_no_upload_and_no_object() {
    let store = SimStore::new();
    let device = device(&store);
    let file = device.create("chunks-1").expect("create");
    file.write_all_at(&content(2500), 0).expect("write");
    assert_eq!(store.unfinished_uploads(), 1);
    drop(file);
    device.remove("chunks-1").expect("remove");
    // The abort runs in the background; the next request of the device comes after it.
    device.list().expect("list");
    assert_eq!(store.unfinished_uploads(), 0);
    assert!(device.list().expect("list").is_empty());
    assert_eq!(stats(&device, "delete").requests, 0, "there was no object");
    write(&device, "chunks-1", b"again").expect("the name is free");
}

#[test]
fn a_failed_part_loses_the_file_and_later_uses_say_why() {
    let store = SimStore::new();
    let device = device(&store);
    let file = device.create("chunks-1").expect("create");
    file.write_all_at(&content(1500), 0).expect("write");
    store.set_unreachable(true);
    let error = (2..20)
        .find_map(|n| file.write_all_at(&content(1000), n * 1000).err())
        .expect("parts fail");
    assert_eq!(error.sqlstate(), SqlState::IO_ERROR);
    for part in [
        "\"chunks-1\"",
        "sim://bucket/a/b",
        "3 attempts",
        "unreachable",
    ] {
        assert!(error.message().contains(part), "{error}");
    }
    assert!(error.hint().is_some());
    store.set_unreachable(false);
    let again = file.sync().expect_err("it is lost");
    assert_eq!(again.message(), error.message());
    device.remove("chunks-1").expect("remove");
    assert!(device.list().expect("list").is_empty());
}

#[test]
fn parts_in_flight_of_all_files_are_bounded() {
    let store = SimStore::new();
    store.set_latency(Duration::from_millis(50));
    let device = device(&store);
    let device = &device;
    std::thread::scope(|scope| {
        for n in 0..6 {
            scope.spawn(move || {
                let name = format!("chunks-{n}");
                write(device, &name, &content(5000 + n)).expect("write");
                assert_eq!(whole(device, &name), content(5000 + n));
            });
        }
    });
    assert!(store.parts_in_flight_max() <= options().parts_in_flight);
    assert_eq!(device.list().expect("list").len(), 6);
}
