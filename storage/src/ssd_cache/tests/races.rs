//! Races, one interleaving each: a device calls back while it reads or syncs.

use std::fmt;
use std::sync::Mutex;

use super::*;

type Call = Box<dyn FnOnce() + Send>;

/// A call that happens once.
#[derive(Clone, Default)]
struct Once(Arc<Mutex<Option<Call>>>);

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Once")
    }
}

impl Once {
    fn set(&self, call: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(call));
    }

    fn call(&self) {
        let call = self.0.lock().unwrap().take();
        if let Some(call) = call {
            call();
        }
    }
}

/// Calls back at points of its use.
#[derive(Clone, Debug, Default)]
struct Hooks {
    before_read: Once,
    after_read: Once,
    capacity_write: Once,
    capacity_sync: Once,
}

#[derive(Debug)]
struct Hooked(Arc<dyn Device>, Hooks);

impl Device for Hooked {
    strandline_device::forward!(0: create create_on remove rename list sync_directory lock);
    strandline_device::forward!(0: may_fill_up location);

    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(Arc::new(HookedFile(self.0.open(name)?, self.1.clone())))
    }
}

#[derive(Debug)]
struct HookedFile(Arc<dyn File>, Hooks);

impl File for HookedFile {
    strandline_device::forward!(0: name write_all_at sync len set_len);

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.1.before_read.call();
        let read = self.0.read_exact_at(buf, offset);
        self.1.after_read.call();
        read
    }
}

#[derive(Debug)]
struct HookedFiles(Files, Hooks);

impl Capacity for HookedFiles {
    fn read(&self, block: BlockKey, access: Access) -> Result<Vec<u8>> {
        self.0.read(block, access)
    }

    fn write(&self, block: BlockKey, bytes: &[u8]) -> Result<()> {
        self.1.capacity_write.call();
        self.0.write(block, bytes)
    }

    fn sync(&self, file: u64) -> Result<()> {
        self.1.capacity_sync.call();
        self.0.sync(file)
    }
}

/// A cache of four slots that are full of durable fresh blocks 0 to 3.
fn hooked(machine: &Machine) -> (Arc<SsdCache>, Hooks) {
    let hooks = Hooks::default();
    drop(machine.open(4));
    let fast = Arc::new(Hooked(machine.fast.device(), hooks.clone()));
    let large = machine.large.device();
    let device = Arc::new(TieredDevice::new(fast, large.clone(), "/large").unwrap());
    let files = Arc::new(HookedFiles(Files(large), hooks.clone()));
    let cache = SsdCache::open(device, files, settings(4)).unwrap();
    for n in 0..4 {
        evict_dirty(&cache, block(1, n), 1);
    }
    checkpoint(&cache);
    (Arc::new(cache), hooks)
}

/// Evicts everything, and reads what the capacity tier then has, after a crash.
fn after_emptying(machine: &Machine, cache: &SsdCache) -> Vec<u64> {
    checkpoint(cache);
    cache.resize(0).unwrap();
    run_steps(cache);
    assert_eq!(cache.stats().blocks, 0);
    let cache = machine.after_crash(0, 0).open(4);
    (0..4).map(|n| newest(&cache, block(1, n))).collect()
}

#[test]
fn a_victim_that_is_overwritten_while_it_is_copied_out_stays() {
    for point in 0..3 {
        let machine = Machine::new(1);
        let (cache, hooks) = hooked(&machine);
        let other = cache.clone();
        let evict = move || {
            assert_eq!(evict_dirty(&other, block(1, 0), 2), Evicted::Cached);
        };
        match point {
            0 => hooks.after_read.set(evict),
            1 => hooks.capacity_write.set(evict),
            _ => hooks.capacity_sync.set(evict),
        }
        let before = cache.stats();
        cache.step().unwrap();
        assert_eq!(cached(&cache, block(1, 0)), Some(2), "point {point}");
        assert_eq!(cache.stats().overwrites, before.overwrites + 1);
        assert_eq!(cache.stats().fresh_blocks, 4);
        assert_eq!(after_emptying(&machine, &cache), [2, 1, 1, 1]);
    }
}

#[test]
fn a_reader_that_meets_a_write_looks_again() {
    let machine = Machine::new(1);
    let (cache, hooks) = hooked(&machine);
    // The half-written state of a slot, which the end of the write repairs.
    let disk = machine.fast.clone();
    hooks
        .before_read
        .set(move || disk.flip_bits(SLOTS_FILE, 100, 1));
    let other = cache.clone();
    hooks
        .after_read
        .set(move || _ = evict_dirty(&other, block(1, 0), 2));
    assert_eq!(cached(&cache, block(1, 0)), Some(2));
    assert_eq!(cache.stats().damaged_fresh, 0);
}

#[test]
fn a_reader_whose_slot_gets_another_block_finds_the_capacity_tier() {
    let machine = Machine::new(1);
    let (cache, hooks) = hooked(&machine);
    let other = cache.clone();
    hooks.before_read.set(move || {
        run_steps(&other);
        assert_eq!(evict_dirty(&other, block(1, 9), 1), Evicted::Cached);
    });
    // A sequential read does not touch the block, so that the steps evict it.
    let found = cache.read(block(1, 0), Access::Sequential).unwrap();
    assert_eq!(found, None);
    assert_eq!(newest(&cache, block(1, 0)), 1);
    assert_eq!(cached(&cache, block(1, 9)), Some(1));
}

#[test]
fn a_file_is_forgotten_only_after_the_write_of_its_block() {
    let machine = Machine::new(1);
    let (cache, hooks) = hooked(&machine);
    let (other, (send, receive)) = (cache.clone(), std::sync::mpsc::channel());
    let forgets = Arc::new(Mutex::new(None));
    let handle = forgets.clone();
    hooks.capacity_write.set(move || {
        let thread = std::thread::spawn(move || {
            send.send(()).unwrap();
            other.forget_file(1);
        });
        receive.recv().unwrap();
        *handle.lock().unwrap() = Some(thread);
    });
    let _ = cache.step();
    forgets.lock().unwrap().take().unwrap().join().unwrap();
    assert!(cache.files().is_empty());
    checkpoint(&cache);
    assert_eq!((cache.stats().blocks, cache.stats().free_slots), (0, 4));
}
