//! Files without a database: their memory, and which of them are removed.

use super::*;
use strandline_base::ManualClock;
use strandline_device::MemoryDevice;
use strandline_storage::wal::WalSettings;

/// The files of an empty device, and the pool whose memory they share.
fn files() -> (Arc<dyn Device>, Arc<IndexFiles>, Arc<Pool>) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let txns = TxnManager::new(Arc::new(ManualClock::new(1)), CommitTs(1));
    let pool = Pool::new(1 << 20);
    let database = Database {
        device: &device,
        id: 1,
        pair: None,
        was_cached: false,
    };
    let files = IndexFiles::new(&database, &Settings::default(), &txns, &pool);
    let files = files.expect("no files");
    let settings = WalSettings {
        segment_bytes: 1 << 16,
    };
    let wal = Wal::create(device.clone(), settings, 1).expect("a log");
    files.attach(&Arc::new(wal));
    (device, files, pool)
}

fn create(files: &Arc<IndexFiles>) -> (PagedIndex, HeldFile) {
    files.create(vec![PartOrder::default()]).expect("a file")
}

fn ids(device: &dyn Device) -> Vec<u32> {
    let names = device.list().expect("names");
    let ids = names.iter().filter_map(|name| page_file_id(name));
    ids.map(|id| id.0).collect()
}

#[test]
fn the_pages_of_a_file_are_the_pools_while_there_is_the_file() {
    let (device, files, pool) = files();
    assert_eq!(pool.used_bytes(), 0);
    let both = (create(&files), create(&files));
    let of_both = pool.page_bytes();
    assert!(of_both > 0 && pool.used_bytes() == of_both);
    drop(both);
    assert!(files.has_unused());
    files.remove_unused(&BTreeSet::new());
    assert_eq!(pool.used_bytes(), 0);
    let taken = pool.taken_bytes().load(Ordering::Relaxed);
    assert_eq!(taken, files.taken_bytes());
    assert!(ids(&*device).is_empty() && !files.has_unused());
}

#[test]
fn a_file_that_is_held_or_named_is_not_removed() {
    let (device, files, _) = files();
    let (held, named, unused) = (create(&files), create(&files), create(&files));
    let name = BTreeSet::from([named.1.id()]);
    drop((named, unused));
    files.remove_unused(&name);
    assert_eq!(ids(&*device), [1, 2]);
    files.remove_unused(&BTreeSet::new());
    assert_eq!(ids(&*device), [1]);
    drop(held);
    files.remove_unused(&BTreeSet::new());
    assert_eq!(ids(&*device), [0; 0]);
}

#[test]
fn a_lost_file_is_told_as_long_as_it_is_named() {
    let (_, files, _) = files();
    let (_index, held) = create(&files);
    files.note_lost(held.id(), Error::corrupt("a file", "lost"));
    let name = BTreeSet::from([held.id()]);
    files.remove_unused(&name);
    assert!(files.lost().contains_key(&held.id()) && files.has_unused());
    files.remove_unused(&BTreeSet::new());
    assert!(files.lost().is_empty() && !files.has_unused());
}
