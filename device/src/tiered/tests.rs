use super::*;
use crate::{MemoryDevice, path_of};
use strandline_base::SqlState;

/// A device that counts the syncs of its directory, which fail while `fails` is not 0.
#[derive(Debug, Default)]
struct Counting {
    inner: MemoryDevice,
    location: &'static str,
    syncs: AtomicU64,
    fails: AtomicU64,
}

impl Counting {
    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}

impl Device for Counting {
    crate::forward!(inner: create open remove rename list lock);

    fn location(&self) -> String {
        self.location.to_owned()
    }

    fn sync_directory(&self) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        match self.fails.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(Error::invalid(SqlState::IO_ERROR, "injected")),
        }
    }
}

fn tiers() -> (Arc<Counting>, Arc<Counting>, TieredDevice) {
    let at = |location| {
        Arc::new(Counting {
            location,
            ..Counting::default()
        })
    };
    let (fast, capacity) = (at("here"), at("there"));
    let device = TieredDevice::new(fast.clone(), capacity.clone(), "there").expect("tiers");
    (fast, capacity, device)
}

fn create(device: &dyn Device, tier: Tier, name: &str) {
    let file = device.create_on(tier, name).expect("create");
    file.write_all_at(name.as_bytes(), 0).expect("write");
}

#[test]
fn a_file_is_on_its_tier_and_found_by_name() {
    let (fast, capacity, device) = tiers();
    create(&device, Tier::Fast, "wal-1");
    create(&device, Tier::Capacity, "chunks-2");
    assert_eq!(fast.list().expect("list"), ["wal-1"]);
    assert_eq!(capacity.list().expect("list"), ["chunks-2"]);
    assert_eq!(device.list().expect("list"), ["chunks-2", "wal-1"]);
    for (name, tier) in [("wal-1", Tier::Fast), ("chunks-2", Tier::Capacity)] {
        assert_eq!(device.tier_of(name), tier);
        let mut bytes = vec![0; name.len()];
        let file = device.open(name).expect("open");
        file.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!(bytes, name.as_bytes());
    }
    device.rename("chunks-2", "chunks-3").expect("rename");
    assert_eq!(device.tier_of("chunks-3"), Tier::Capacity);
    assert_eq!(capacity.list().expect("list"), ["chunks-3"]);
    device.remove("chunks-3").expect("remove");
    assert!(capacity.list().expect("list").is_empty());
    assert_eq!(device.list().expect("list"), ["wal-1"]);
    // The name is free again, on either tier.
    create(&device, Tier::Fast, "chunks-3");
    assert_eq!(device.tier_of("chunks-3"), Tier::Fast);
    assert!(path_of(&device, "wal-1").ends_with("/wal-1"));
}

#[test]
fn a_missing_file_is_named_on_the_tier_where_it_belongs() {
    let (_, capacity, device) = tiers();
    create(&device, Tier::Fast, "run-1");
    create(&device, Tier::Capacity, "chunks-2");
    assert_eq!(path_of(&device, "run-1"), "here/run-1");
    assert_eq!(path_of(&device, "chunks-2"), "there/chunks-2");
    // By another process; then found by an opening.
    capacity.remove("chunks-2").expect("removed");
    let error = device.open("chunks-2").expect_err("missing");
    assert!(error.message().contains("chunks-2"), "{error}");
    drop(device.lock().expect("opened again"));
    assert_eq!(path_of(&device, "chunks-2"), "there/chunks-2");
    let error = device.open("chunks-2").expect_err("missing");
    assert_eq!(error.sqlstate(), SqlState::UNDEFINED_FILE);
    let message = error.message();
    assert!(
        message.contains("\"there\"") && message.contains("\"here\""),
        "{message}"
    );
}

#[test]
fn a_name_is_never_on_both_tiers() {
    let (.., device) = tiers();
    create(&device, Tier::Capacity, "run-1");
    device.create("run-1").expect_err("it is there");
    create(&device, Tier::Fast, "run-2");
    device.rename("run-2", "run-1").expect_err("it is there");
    assert_eq!(device.list().expect("list"), ["run-1", "run-2"]);
}

#[test]
fn only_directories_with_changed_names_are_synced() {
    let (fast, capacity, device) = tiers();
    let synced = || (fast.syncs(), capacity.syncs());
    device.sync_directory().expect("sync");
    assert_eq!(synced(), (1, 1), "names of an earlier process");
    device.sync_directory().expect("sync");
    assert_eq!(synced(), (1, 1));
    create(&device, Tier::Fast, "a");
    device.sync_directory().expect("sync");
    assert_eq!(synced(), (2, 1));
    create(&device, Tier::Capacity, "b");
    device.rename("b", "c").expect("rename");
    device.sync_directory().expect("sync");
    assert_eq!(synced(), (2, 2));
    device.remove("c").expect("remove");
    device.remove("no such file").expect_err("missing");
    device.sync_directory().expect("sync");
    assert_eq!(synced(), (3, 3), "a failed change may have happened");
    // A failed sync leaves the directory unsynced.
    create(&device, Tier::Capacity, "d");
    capacity.fails.store(1, Ordering::Relaxed);
    device.sync_directory().expect_err("injected");
    capacity.fails.store(0, Ordering::Relaxed);
    device.sync_directory().expect("sync");
    assert_eq!(synced(), (3, 5));
}

#[test]
fn the_lock_is_on_both_directories_and_lists_the_capacity_tier_again() {
    let (fast, capacity, device) = tiers();
    capacity.create("chunks-9").expect("by another process");
    assert_eq!(device.tier_of("chunks-9"), Tier::Fast, "not known yet");
    let lock = device.lock().expect("lock");
    assert_eq!(device.tier_of("chunks-9"), Tier::Capacity);
    for directory in [&fast, &capacity] {
        let refused = directory.lock().err().expect("locked");
        assert_eq!(refused.sqlstate(), SqlState::OBJECT_IN_USE);
    }
    drop(lock);
    // If one of the two is in use, neither stays locked.
    let held = capacity.lock().expect("free");
    assert!(device.lock().is_err());
    drop(fast.lock().expect("free"));
    drop(held);
    device.lock().expect("free");
}
