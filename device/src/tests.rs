//! What every device promises, checked on all, and what only the operating system's can show.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use strandline_base::{ErrorKind, SqlState};

use super::*;

fn on_every_device(check: impl Fn(&dyn Device)) {
    check(&MemoryDevice::new());
    let [fast, capacity] = [(); 2].map(|()| Arc::new(MemoryDevice::new()));
    check(&TieredDevice::new(fast, capacity, "").unwrap());
    let directory = tempfile::tempdir().unwrap();
    check(&OsDevice::open(directory.path()).unwrap());
}

fn read(file: &dyn File, offset: u64, n: usize) -> Vec<u8> {
    let mut out = vec![0xee; n];
    file.read_exact_at(&mut out, offset).unwrap();
    out
}

#[test]
fn bytes_are_read_back_at_their_place() {
    on_every_device(|device| {
        let file = device.create("a").unwrap();
        assert!(file.is_empty().unwrap());
        file.read_exact_at(&mut [], 0).unwrap();
        file.write_all_at(b"xyz", 200_000).unwrap();
        assert_eq!(file.len().unwrap(), 200_003);
        assert_eq!(read(&*file, 199_998, 5), [0, 0, b'x', b'y', b'z']);
        // Across the borders of the memory device's pages.
        let long: Vec<u8> = (0..150_000u32).map(|i| (i % 251) as u8).collect();
        file.write_all_at(&long, 60_000).unwrap();
        assert_eq!(file.len().unwrap(), 210_000);
        assert_eq!(read(&*file, 60_000, long.len()), long);
        file.sync().unwrap();
        let again = device.open("a").unwrap();
        assert_eq!(again.name(), "a");
        assert_eq!(read(&*again, 60_000, long.len()), long);
    });
}

#[test]
fn a_batch_of_reads_has_the_bytes_of_each() {
    on_every_device(|device| {
        let file = device.create("a").unwrap();
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync().unwrap();
        let places = [(200_000, 70_000), (5, 10), (0, 0), (7, 8_192), (299_999, 1)];
        let mut buffers = places.map(|(_, len)| vec![0xee; len]);
        let reads = places.iter().zip(&mut buffers);
        let mut reads: Vec<ReadAt<'_>> = reads
            .map(|(&(offset, _), buf)| ReadAt { offset, buf })
            .collect();
        file.read_batch(&mut []).unwrap();
        file.read_batch(&mut reads).unwrap();
        for ((offset, len), buffer) in places.into_iter().zip(&buffers) {
            let at = offset as usize;
            assert_eq!(*buffer, bytes[at..at + len]);
        }
        let (mut one, mut beyond) = ([0; 4], [0; 4]);
        let mut reads = [(0, &mut one), (299_998, &mut beyond)].map(|(offset, buf)| ReadAt {
            offset,
            buf: buf.as_mut_slice(),
        });
        let error = file.read_batch(&mut reads).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    });
}

#[test]
fn reading_past_the_end_is_corruption_with_file_and_offset() {
    on_every_device(|device| {
        let file = device.create("a").unwrap();
        file.write_all_at(&[1; 100], 0).unwrap();
        for (offset, n) in [(0, 101), (100, 1), (99, 2), (5_000, 1)] {
            let error = file.read_exact_at(&mut vec![0; n], offset).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let message = error.message();
            assert!(message.contains("a\""), "{message}");
            assert!(message.contains(&format!("offset {offset}")), "{message}");
            assert!(message.contains("ends at 100"), "{message}");
        }
        file.read_exact_at(&mut [], 100).unwrap();
    });
}

#[test]
fn set_len_cuts_and_extends_with_zeros() {
    on_every_device(|device| {
        let file = device.create("a").unwrap();
        file.write_all_at(&[7; 70_000], 0).unwrap();
        file.set_len(10).unwrap();
        assert_eq!(file.len().unwrap(), 10);
        file.set_len(100_000).unwrap();
        assert_eq!(file.len().unwrap(), 100_000);
        let mut expected = vec![0; 100_000];
        expected[..10].fill(7);
        assert_eq!(read(&*file, 0, 100_000), expected);
        file.set_len(100_000).unwrap();
        file.set_len(0).unwrap();
        assert!(file.is_empty().unwrap());
    });
}

#[test]
fn names_are_created_renamed_removed_and_listed() {
    on_every_device(|device| {
        for name in ["b", "a", "c"] {
            device
                .create(name)
                .unwrap()
                .write_all_at(name.as_bytes(), 0)
                .unwrap();
        }
        assert_eq!(device.list().unwrap(), ["a", "b", "c"]);
        device.create("a").unwrap_err();
        let held = device.open("b").unwrap();
        device.rename("a", "b").unwrap();
        assert_eq!(device.list().unwrap(), ["b", "c"]);
        assert_eq!(read(&*device.open("b").unwrap(), 0, 1), b"a");
        assert_eq!(read(&*held, 0, 1), b"b", "an open handle keeps its file");
        let removed = device.open("c").unwrap();
        device.remove("c").unwrap();
        assert_eq!(read(&*removed, 0, 1), b"c");
        device.sync_directory().unwrap();
        for error in [
            device.open("c").unwrap_err(),
            device.remove("c").unwrap_err(),
            device.rename("c", "d").unwrap_err(),
        ] {
            assert_eq!(error.sqlstate(), SqlState::UNDEFINED_FILE);
            assert!(error.message().contains("c\""), "{error}");
        }
    });
}

#[test]
fn second_lock_is_refused_until_the_first_is_dropped() {
    on_every_device(|device| {
        let guard = device.lock().unwrap();
        let error = device.lock().err().expect("the lock is held");
        assert_eq!(error.sqlstate(), SqlState::OBJECT_IN_USE);
        let holder = format!("in use by process {}", std::process::id());
        assert!(error.message().contains(&holder), "{error}");
        assert!(error.message().contains(&device.location()), "{error}");
        drop(guard);
        drop(device.lock().unwrap());
        assert_eq!(device.list().unwrap(), [LOCK_FILE]);
    });
}

/// On a full disk a database must open, so that space can be freed.
#[test]
fn a_lock_holds_though_its_file_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join(LOCK_FILE)).unwrap();
    let device = OsDevice::open(directory.path()).unwrap();
    let guard = device.lock().unwrap();
    device.lock().err().expect("the lock is held");
    drop(guard);
    drop(device.lock().unwrap());
}

/// Names the directory that a child process of the next test locks.
const CHILD_DIRECTORY: &str = "STRANDLINE_TEST_LOCK_DIRECTORY";

#[test]
fn lock_names_its_process_and_dies_with_it() {
    if let Ok(directory) = std::env::var(CHILD_DIRECTORY) {
        let _guard = OsDevice::open(directory).unwrap().lock().unwrap();
        println!("\nlocked");
        // Until killed: the parent never writes.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "tests::lock_names_its_process_and_dies_with_it",
        ])
        .env(CHILD_DIRECTORY, directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap() == "locked"),
        "the child has locked"
    );
    let device = OsDevice::open(directory.path()).unwrap();
    let error = device.lock().err().expect("the child holds the lock");
    assert!(
        error
            .message()
            .contains(&format!("by process {}", child.id())),
        "{error}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    drop(device.lock().unwrap());
}

#[test]
fn a_duplicate_in_memory_goes_its_own_way() {
    let device = MemoryDevice::new();
    let file = device.create("a").unwrap();
    file.write_all_at(b"before", 70_000).unwrap();
    let _lock = device.lock().unwrap();
    let copy = device.duplicate();
    file.write_all_at(b"after!", 70_000).unwrap();
    copy.create("b").unwrap();
    assert_eq!(read(&*copy.open("a").unwrap(), 70_000, 6), b"before");
    assert_eq!(read(&*device.open("a").unwrap(), 70_000, 6), b"after!");
    assert!(device.open("b").is_err());
    copy.lock().unwrap();
}

#[test]
fn missing_directory_is_created_with_its_parents() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("one/two/three");
    let device = OsDevice::open(&path).unwrap();
    assert_eq!(device.location(), path.display().to_string());
    assert_eq!(device.list().unwrap(), Vec::<String>::new());
    // Subdirectories are not files of the device.
    assert_eq!(
        OsDevice::open(directory.path()).unwrap().list().unwrap(),
        Vec::<String>::new()
    );
}

#[test]
fn path_that_is_no_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"x").unwrap();
    let error = OsDevice::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error
            .message()
            .contains("is a file, not a database directory"),
        "{error}"
    );
    assert!(
        error.message().contains(&path.display().to_string()),
        "{error}"
    );
    let below = OsDevice::open(path.join("below")).unwrap_err();
    assert!(below.message().contains("below"), "{below}");
}

#[test]
fn directory_without_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        return; // root may do everything
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o555)).unwrap();
    let error = OsDevice::open(directory.path()).unwrap_err();
    assert_eq!(error.sqlstate(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    let named = format!(
        "no permission to read and write \"{}\"",
        directory.path().display()
    );
    assert!(error.message().contains(&named), "{error}");
}
