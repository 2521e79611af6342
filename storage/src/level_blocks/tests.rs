use super::*;
use std::sync::Arc;
use strandline_base::ErrorKind;
use strandline_device::{Device, MemoryDevice};

fn device() -> MemoryDevice {
    MemoryDevice::default()
}

#[test]
fn blocks_and_images_come_back() {
    let device = device();
    let blocks = FileBlocks::open(&device, "tree", 16).unwrap();
    assert_eq!(blocks.image().unwrap(), None);
    assert_eq!(blocks.allocate(3).unwrap(), [0, 1, 2]);
    blocks
        .write(&[(0, vec![7; 16]), (1, vec![8; 16]), (2, vec![9; 16])])
        .unwrap();
    blocks.sync().unwrap();
    blocks.put_image(b"first").unwrap();
    blocks.put_image(b"the second").unwrap();
    blocks.put_image(b"3").unwrap();
    let again = FileBlocks::open(&device, "tree", 16).unwrap();
    assert_eq!(again.image().unwrap().unwrap(), b"3");
    again.set_used(&[0, 2]);
    assert_eq!(again.used(), 2);
    assert_eq!(again.allocate(2).unwrap(), [1, 3]);
    assert_eq!(again.read(2).unwrap(), [9; 16]);
}

/// Damage of any byte of the newer image gives the older one, and of both an error.
#[test]
fn a_damaged_image_is_found() {
    let device = device();
    let blocks = FileBlocks::open(&device, "tree", 16).unwrap();
    blocks.put_image(b"older").unwrap();
    blocks.put_image(b"newer").unwrap();
    let newer = device.open("tree-image0").unwrap();
    let length = newer.len().unwrap();
    for at in 0..length {
        let mut byte = [0];
        newer.read_exact_at(&mut byte, at).unwrap();
        newer.write_all_at(&[byte[0] ^ 4], at).unwrap();
        assert_eq!(blocks.image().unwrap().unwrap(), b"older", "byte {at}");
        newer.write_all_at(&byte, at).unwrap();
    }
    newer.write_all_at(b"x", 0).unwrap();
    let older = device.open("tree-image1").unwrap();
    older.write_all_at(b"x", 0).unwrap();
    assert!(blocks.image().is_err());
}

/// An image that was written but not synced when the process ended is used by the next one, which
/// frees its old blocks. So it must not be lost by a crash afterwards.
#[test]
fn an_image_that_an_opening_uses_is_durable() {
    let disk = strandline_sim::SimDisk::new(1);
    let blocks = FileBlocks::open(&*disk.device(), "tree", 16).unwrap();
    blocks.put_image(b"durable").unwrap();
    disk.fail_sync(1);
    assert!(blocks.put_image(b"newer").is_err());
    let killed = disk.after_kill();
    let again = FileBlocks::open(&*killed.device(), "tree", 16).unwrap();
    let found = again.image().unwrap().unwrap();
    for seed in 0..8 {
        let crashed = killed.after_crash(seed);
        let blocks = FileBlocks::open(&*crashed.device(), "tree", 16).unwrap();
        assert_eq!(blocks.image().unwrap().unwrap(), found, "seed {seed}");
    }
}

#[test]
fn nothing_is_written_after_a_failed_sync() {
    for fails_image in [false, true] {
        let disk = strandline_sim::SimDisk::new(1);
        let blocks = FileBlocks::open(&*disk.device(), "tree", 16).unwrap();
        blocks.put_image(b"image").unwrap();
        disk.fail_sync(1);
        let failed = match fails_image {
            true => blocks.put_image(b"newer"),
            false => blocks.sync(),
        };
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Closed);
        assert!(blocks.check_usable().is_err());
        assert!(blocks.write(&[(0, vec![1; 16])]).is_err());
        assert!(blocks.sync().is_err() && blocks.put_image(b"again").is_err());
        let newest = blocks.image().unwrap().unwrap();
        assert_eq!(newest == b"image", !fails_image);
    }
}

#[test]
fn names_of_level_files_are_told_from_others() {
    let id = LevelFileId(0xfe);
    let names = file_names(&level_file_name(id));
    assert!(names.iter().all(|name| level_file_id(name) == Some(id)));
    for other in [
        "levels-1",
        "levels-000000fe-image2",
        "levels-000000fé",
        "pages-000000fe",
    ] {
        assert_eq!(level_file_id(other), None, "{other}");
    }
}

/// Several blocks come in the order in which they are asked for, neighbours in one read, all
/// reads at the same time; with a queue that is in use, and without one, too.
#[test]
fn several_blocks_are_read_at_the_same_time() {
    let device: Arc<dyn Device> = Arc::new(device());
    let blocks = FileBlocks::open(&*device, "tree", 4096).unwrap();
    let numbers = blocks.allocate(40).unwrap();
    let content = |number: u64| vec![number as u8; 4096];
    let written: Vec<_> = numbers.iter().map(|n| (*n, content(*n))).collect();
    blocks.write(&written).unwrap();
    let wanted = [30, 7, 3, 4, 5, 31, 20];
    let expected: Vec<_> = wanted.map(content).into();
    assert_eq!(blocks.read_many(&wanted).unwrap(), expected);
    let queue = BlockQueue::new(device);
    let blocks = blocks.with_queue(queue.clone());
    assert_eq!(blocks.read_many(&wanted).unwrap(), expected);
    let stats = queue.stats().unwrap();
    assert_eq!((stats.submitted, stats.outstanding_max), (4, 4));
    let descending: Vec<u64> = (0..40).rev().collect();
    let all = blocks.read_many(&descending).unwrap();
    assert!(all.into_iter().eq(descending.into_iter().map(content)));
    assert_eq!(
        queue.stats().unwrap().submitted,
        4 + 5,
        "8 blocks are one read"
    );
    assert!(blocks.read_many(&[3, 4, 900]).is_err());
    assert_eq!(
        blocks.read_many(&wanted).unwrap(),
        expected,
        "after an error"
    );
    queue.while_in_use(|| assert_eq!(blocks.read_many(&wanted).unwrap(), expected));
}
