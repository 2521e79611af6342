//! What an opening would lose, told before it.

use super::*;

/// None: nothing. Some(None): any file may be too old.
fn lost(machine: &Machine, was_used: bool) -> Option<Option<Vec<u64>>> {
    let found = SsdCache::find_loss(&*machine.device(), &settings(8), was_used).unwrap();
    found.map(|loss| loss.files.map(|files| files.into_iter().collect()))
}

fn put(disk: &SimDisk, name: &str, content: Option<&[u8]>) {
    let device = disk.device();
    if disk.content(name).is_some() {
        device.remove(name).unwrap();
    }
    if let Some(content) = content {
        device
            .create(name)
            .unwrap()
            .write_all_at(content, 0)
            .unwrap();
    }
}

#[test]
fn a_loss_names_the_files_that_the_marker_has() {
    let machine = Machine::new(3);
    assert_eq!(lost(&machine, false), None, "there has never been a cache");
    assert_eq!(lost(&machine, true), Some(None), "there is none any more");
    drop(machine.open(8));
    let first = machine.large.content(MARKER_FILE).unwrap();
    assert_eq!(lost(&machine, true), None);
    let cache = machine.open(8);
    evict_dirty(&cache, block(2, 0), 1);
    checkpoint(&cache);
    // Nothing of it is lost: the log has it.
    evict_dirty(&cache, block(1, 0), 1);
    drop(cache);
    assert_eq!(lost(&machine, true), None, "all is there");
    let newest = machine.large.content(MARKER_FILE).unwrap();
    let directory = machine.fast.content(DIRECTORY_FILE).unwrap();
    put(&machine.fast, DIRECTORY_FILE, None);
    assert_eq!(lost(&machine, false), Some(Some(vec![2])));
    put(&machine.fast, DIRECTORY_FILE, Some(&directory));
    // An older marker does not know what the cache has got since.
    put(&machine.large, MARKER_FILE, Some(&first));
    assert_eq!(lost(&machine, false), Some(None));
    put(&machine.large, MARKER_FILE, None);
    assert_eq!(lost(&machine, false), Some(None));
    put(&machine.large, MARKER_FILE, Some(&newest));
    assert_eq!(lost(&machine, true), None, "put back");
}

#[test]
fn a_clean_cache_is_no_loss() {
    let machine = Machine::new(1);
    let cache = machine.open(8);
    evict_clean(&cache, block(1, 0), 0);
    checkpoint(&cache);
    drop(cache);
    put(&machine.fast, DIRECTORY_FILE, None);
    assert_eq!(lost(&machine, true), None);
    put(&machine.fast, SLOTS_FILE, None);
    assert_eq!(lost(&machine, true), None);
}
