use super::*;
use crate::{Device, File, MemoryDevice, Tier, TieredDevice, path_of};
use strandline_base::sync::{AtomicU64, Ordering};

/// A clock that jumps to whatever it is asked to wait for.
#[derive(Debug, Default)]
struct VirtualClock(AtomicU64);

impl DelayClock for VirtualClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn wait_until(&self, until_ns: u64) {
        self.0.fetch_max(until_ns, Ordering::SeqCst);
    }
}

impl VirtualClock {
    /// Nanoseconds that `work` takes.
    fn time(&self, work: impl FnOnce()) -> u64 {
        let before = self.now_ns();
        work();
        self.now_ns() - before
    }
}

fn hdd(model: HddModel, time_scale: u64) -> (Arc<VirtualClock>, EmulatedHdd) {
    let clock = Arc::new(VirtualClock::default());
    let inner = Arc::new(MemoryDevice::new());
    (
        clock.clone(),
        EmulatedHdd::new(inner, model, time_scale, clock),
    )
}

fn read(file: &dyn File, bytes: usize, offset: u64) {
    let mut buffer = vec![0; bytes];
    file.read_exact_at(&mut buffer, offset).expect("read");
}

const MASM: HddModel = HddModel::MASM;
const ROTATION: u64 = 4_170_000;

#[test]
fn reads_take_the_time_of_the_model() {
    let (clock, device) = hdd(MASM, 1);
    let file = device.create("chunks-1").expect("create");
    assert_eq!(
        clock.time(|| file.write_all_at(&[7; 77_000], 0).expect("write")),
        0
    );
    file.sync().expect("sync");
    // A thousandth of a second for 77,000 bytes.
    assert_eq!(clock.time(|| read(&*file, 7_700, 0)), ROTATION + 100_000);
    assert_eq!(
        clock.time(|| read(&*file, 7_700, 7_700)),
        100_000,
        "goes on"
    );
    assert_eq!(
        clock.time(|| read(&*file, 7_700, 23_100)),
        ROTATION + 100_000
    );
    assert_eq!(
        clock.time(|| read(&*file, 7_700, 23_100)),
        ROTATION + 100_000,
        "nothing is cached"
    );
    let (clock, device) = hdd(MASM, 10);
    let file = device.create("chunks-1").expect("create");
    file.write_all_at(&[7; 7_700], 0).expect("write");
    assert_eq!(
        clock.time(|| read(&*file, 7_700, 0)),
        (ROTATION + 100_000) / 10
    );
}

#[test]
fn writes_are_charged_when_they_are_synced_adjacent_ones_as_one() {
    let (clock, device) = hdd(MASM, 1);
    let file = device.create("wal-1").expect("create");
    let write = |offset: u64| file.write_all_at(&[1; 7_700], offset).expect("write");
    assert_eq!(
        clock.time(|| [7_700, 0, 15_400, 100_000].into_iter().for_each(write)),
        0
    );
    let sync = || file.sync().expect("sync");
    assert_eq!(
        clock.time(sync),
        (ROTATION + 300_000) + (ROTATION + 100_000)
    );
    assert_eq!(clock.time(sync), 0, "nothing new");
    write(23_100);
    assert_eq!(
        clock.time(sync),
        ROTATION + 100_000,
        "each sync waits for its sector"
    );
    let synced = clock.time(|| device.sync_directory().expect("sync"));
    assert_eq!(synced, ROTATION + 4_096 * 1_000 / 77);
    assert_eq!(device.busy_ns(), clock.now_ns(), "the disk was never idle");
}

#[test]
fn delays_can_be_switched_off_and_the_device_is_labelled() {
    let (clock, device) = hdd(HddModel::RPM_7200, 8);
    let file = device.create("a").expect("create");
    file.write_all_at(&[1; 4_096], 0).expect("write");
    device.set_delays(false);
    assert_eq!(clock.time(|| read(&*file, 4_096, 0)), 0);
    file.sync().expect("sync");
    device.set_delays(true);
    assert!(clock.time(|| read(&*file, 4_096, 0)) > ROTATION / 8);
    let label = "emulated 7,200 rpm disk, time scale 8";
    assert_eq!(device.label(), label);
    assert!(device.location().contains(label));
    let tiers = TieredDevice::new(Arc::new(MemoryDevice::new()), Arc::new(device), "");
    let tiers = tiers.expect("tiers");
    drop(tiers.create_on(Tier::Capacity, "chunks-1").expect("create"));
    drop(tiers.create("wal-1").expect("create"));
    assert!(path_of(&tiers, "chunks-1").contains(label));
    assert!(!path_of(&tiers, "wal-1").contains(label));
}

#[test]
fn threads_share_one_actuator() {
    let (clock, device) = hdd(MASM, 1);
    let file = device.create("a").expect("create");
    file.write_all_at(&[1; 77_000], 0).expect("write");
    let (threads, reads) = (4, 25);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let file = &file;
            scope.spawn(move || {
                // Every other block, so that no read begins where another one ended.
                (0..reads).for_each(|at| read(&**file, 77, (at * threads + thread) * 154));
            });
        }
    });
    // However the threads take turns, one head has done all of it.
    assert_eq!(clock.now_ns(), threads * reads * (ROTATION + 1_000));
}

#[test]
fn a_throttled_device_keeps_both_bounds() {
    let clock = Arc::new(VirtualClock::default());
    let limits = Limits {
        bandwidth: 1_000_000,
        requests: 100,
    };
    let device = Throttled::new(Arc::new(MemoryDevice::new()), limits, clock.clone());
    let file = device.create("a").expect("create");
    // 50,000 bytes take longer than a request may.
    let write = || file.write_all_at(&[1; 50_000], 0).expect("write");
    assert_eq!(clock.time(write), 50_000_000);
    assert_eq!(
        clock.time(|| read(&*file, 1_000, 0)),
        10_000_000,
        "a hundred per second"
    );
    let all = clock.time(|| (0..50).for_each(|_| read(&*file, 20_000, 0)));
    assert_eq!(all, 1_000_000_000, "a million bytes");
    assert_eq!(clock.time(|| file.sync().expect("sync")), 0);
    let load = Load {
        bytes: 50_000 + 1_000 + 50 * 20_000,
        requests: 52,
    };
    assert_eq!(device.load(), load);
    assert!(
        device
            .location()
            .contains("throttled to 1000000 bytes and 100 requests")
    );
}

#[test]
fn real_delays_wait_until_the_time_has_come() {
    let clock = real_delays();
    let until_ns = clock.now_ns() + 3_000_000;
    clock.wait_until(until_ns);
    assert!(clock.now_ns() >= until_ns);
    clock.wait_until(0);
}
