//! Directories that were copied, moved or opened for once, on disks whose directories have numbers.

use super::super::{copies, *};
use super::{ID, attach, check, refused_with};
use strandline_sim::SimDisk;

const COPY: &str = "is a copy of a database's directory";
const FOREIGN: &str = "belongs to another database";

/// The two directories of a database, on one machine.
struct Pair {
    fast: SimDisk,
    capacity: SimDisk,
}

impl Pair {
    /// A database of the pair 1.
    fn new() -> Self {
        let fast = SimDisk::new(1);
        Manifest::create(fast.device(), ID, b"state", || Ok(())).expect("create");
        let pair = Self {
            capacity: fast.beside(2),
            fast,
        };
        pair.open(CapacityChoice::Named, 1).expect("attached");
        pair.capacity
            .device()
            .create("chunks-0000000000000001")
            .expect("create");
        pair
    }

    /// The same with role files as they were written before directories had numbers in them.
    fn without_numbers() -> Self {
        let pair = Self::new();
        for disk in [&pair.fast, &pair.capacity] {
            let role = Role {
                directory: 0,
                ..role(disk)
            };
            role.write(&*disk.device()).expect("write");
        }
        pair
    }

    /// Copies of both directories.
    fn copied(&self) -> Self {
        Self::of(self.fast.copied(), self.capacity.copied())
    }

    /// What a crash has left of both.
    fn after_crash(&self, seed: u64) -> Self {
        let (fast, capacity) = (&self.fast, &self.capacity);
        Self::of(fast.after_crash(seed), capacity.after_crash(seed))
    }

    fn of(fast: SimDisk, capacity: SimDisk) -> Self {
        capacity.join(&fast);
        Self { fast, capacity }
    }

    fn device(&self, choice: CapacityChoice) -> TieredDevice {
        device(&self.fast, &self.capacity, choice)
    }

    fn open(&self, choice: CapacityChoice, pair_id: u128) -> Result<Option<u128>> {
        open(&self.fast, &self.capacity, choice, pair_id)
    }

    /// Opens with the directories as recorded; the pair has this id.
    #[track_caller]
    fn assert_opens(&self, pair_id: u128) {
        let opened = self.open(CapacityChoice::Recorded, 77).expect("a pair");
        assert_eq!(opened, Some(pair_id));
        assert_eq!(role(&self.fast).ids(), (ID, pair_id));
        assert_eq!(role(&self.capacity).ids(), (ID, pair_id));
    }
}

fn device(fast: &SimDisk, capacity: &SimDisk, choice: CapacityChoice) -> TieredDevice {
    let tiers = TieredDevice::new(fast.device(), capacity.device(), "/there").expect("tiers");
    tiers.chosen(choice)
}

/// Opens as the engine does; `pair_id` is that of a new pair.
fn open(
    fast: &SimDisk,
    capacity: &SimDisk,
    choice: CapacityChoice,
    pair_id: u128,
) -> Result<Option<u128>> {
    let device = device(fast, capacity, choice);
    check(&device)?;
    attach(&device, ID, pair_id)
}

fn role(disk: &SimDisk) -> Role {
    Role::read(&*disk.device()).expect("read").expect("role")
}

fn take_over(disk: &SimDisk) {
    let device = disk.device();
    device.create(TAKEOVER_FILE).expect("create");
    device.sync_directory().expect("sync");
}

fn takes_over(disk: &SimDisk) -> bool {
    copies::takes_over(&*disk.device()).expect("list")
}

use CapacityChoice::{Named, NamedOnce, Recorded};

#[test]
fn a_copy_is_refused_until_its_own_capacity_directory_is_named() {
    let original = Pair::new();
    let copy = original.copied();
    for (capacity, choice) in [
        (&original.capacity, Recorded),
        (&copy.capacity, Recorded),
        // It may be named by the configuration that was copied along.
        (&original.capacity, Named),
        (&original.capacity, NamedOnce),
    ] {
        let operations = copy.fast.operations();
        let error = refused_with(check(&device(&copy.fast, capacity, choice)), COPY);
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("capacity_dir"))
        );
        assert_eq!(copy.fast.operations(), operations, "nothing is written");
    }
    original.assert_opens(1);
    assert_eq!(copy.open(Named, 2).expect("its own"), Some(2));
    copy.assert_opens(2);
    original.assert_opens(1);
    for choice in [Recorded, Named, NamedOnce] {
        for (fast, capacity) in [
            (&copy.fast, &original.capacity),
            (&original.fast, &copy.capacity),
        ] {
            refused_with(check(&device(fast, capacity, choice)), FOREIGN);
        }
    }
    // A copy of the copy is one, too.
    let again = copy.copied();
    refused_with(check(&again.device(Recorded)), COPY);
    assert_eq!(again.open(Named, 3).expect("its own"), Some(3));
    refused_with(check(&device(&again.fast, &copy.capacity, Named)), FOREIGN);
}

#[test]
fn a_copy_takes_the_place_of_its_original_if_the_operator_says_so() {
    let original = Pair::new();
    let moved = original.fast.copied();
    take_over(&moved);
    assert_eq!(
        open(&moved, &original.capacity, Recorded, 2).expect("takeover"),
        Some(2)
    );
    assert!(!takes_over(&moved));
    assert_eq!(
        open(&moved, &original.capacity, Recorded, 3).expect("a pair"),
        Some(2)
    );
    refused_with(check(&original.device(Recorded)), FOREIGN);
    // Both were moved.
    let unpacked = Pair::new().copied();
    refused_with(check(&unpacked.device(Recorded)), COPY);
    take_over(&unpacked.fast);
    assert_eq!(unpacked.open(Recorded, 2).expect("takeover"), Some(2));
    unpacked.assert_opens(2);
}

#[test]
fn a_capacity_directory_that_has_moved_stays_in_its_pair() {
    let original = Pair::new();
    let moved = original.capacity.copied();
    for choice in [Named, Recorded] {
        assert_eq!(
            open(&original.fast, &moved, choice, 2).expect("moved"),
            Some(1)
        );
        assert_eq!(role(&moved).directory, copies::number_of(&*moved.device()));
    }
    // The copy of the database's directory finds that it is not its own.
    let copy = original.fast.copied();
    refused_with(check(&device(&copy, &moved, Named)), COPY);
}

#[test]
fn an_opening_for_once_records_nothing() {
    let original = Pair::new();
    let copy = original.copied();
    let before = [&copy.fast, &copy.capacity].map(role);
    let elsewhere = TieredDevice::new(copy.fast.device(), copy.capacity.device(), "/elsewhere");
    let elsewhere = elsewhere.expect("tiers").chosen(NamedOnce);
    check(&elsewhere).expect("its own");
    assert_eq!(attach(&elsewhere, ID, 2).expect("opened"), Some(1));
    assert_eq!([&copy.fast, &copy.capacity].map(role), before);
    refused_with(check(&copy.device(Recorded)), COPY);
    // Nor does it make a second directory.
    let alone = SimDisk::new(3);
    Manifest::create(alone.device(), ID, b"state", || Ok(())).expect("create");
    let empty = alone.beside(4);
    refused_with(
        check(&device(&alone, &empty, NamedOnce)),
        "no second directory",
    );
}

#[test]
fn role_files_without_numbers_get_them_when_they_are_opened() {
    let original = Pair::without_numbers();
    let copy = original.copied();
    check(&copy.device(Recorded)).expect("nobody can tell");
    assert_eq!(role(&original.fast).directory, 0);
    original.assert_opens(1);
    for disk in [&original.fast, &original.capacity] {
        assert_eq!(role(disk).directory, copies::number_of(&*disk.device()));
    }
    refused_with(check(&original.copied().device(Recorded)), COPY);
    let operations = original.fast.operations();
    original.assert_opens(1);
    assert_eq!(
        original.fast.operations(),
        operations,
        "nothing is written twice"
    );
}

/// A crash at each operation of an opening that changes role files: a copy with its own capacity
/// directory, a takeover, files without numbers.
#[test]
fn a_crash_between_the_role_files_leaves_a_pair() {
    let original = Pair::new();
    let opened: [(&str, Make, CapacityChoice); 3] = [
        ("copy", Pair::copied, Named),
        ("takeover", taking_over, Recorded),
        ("numbers", |_| Pair::without_numbers(), Recorded),
    ];
    for (what, make, choice) in opened {
        let pair = make(&original);
        let before = pair.fast.operations();
        pair.open(choice, 2).expect("no crash");
        let operations = pair.fast.operations() - before;
        assert!(operations >= 8, "{what}: {operations}");
        let mut interrupted = 0;
        for at in 1..=operations {
            for seed in 0..6 {
                let pair = make(&original);
                pair.fast.crash_at(pair.fast.operations() + at);
                pair.open(choice, 2).expect_err("the crash");
                let found = pair.after_crash(seed);
                let what = format!("{what}: operation {at}, seed {seed}");
                let ids = [&found.fast, &found.capacity].map(|disk| role(disk).ids());
                interrupted += u32::from(ids[0] != ids[1]);
                // A copy of what the crash has left is a copy.
                let copy = found.copied();
                if role(&copy.fast).directory != 0 && choice == Named {
                    refused_with(check(&copy.device(Recorded)), COPY);
                    assert_eq!(copy.open(Named, 9).expect(&what), Some(9));
                    copy.assert_opens(9);
                }
                let pair_id = found
                    .open(choice, 3)
                    .expect(&what)
                    .expect("two directories");
                assert!((1..=3).contains(&pair_id), "{what}: {pair_id}");
                found.assert_opens(pair_id);
                assert!(!takes_over(&found.fast), "{what}");
                if choice == Named {
                    assert_ne!(pair_id, 1, "{what}");
                    let mixed = device(&original.fast, &found.capacity, Named);
                    refused_with(check(&mixed), FOREIGN);
                }
            }
        }
        assert!(interrupted > 0 || what == "numbers", "{what}");
    }
    original.assert_opens(1);
}

/// Makes the pair that is opened.
type Make = fn(&Pair) -> Pair;

fn taking_over(original: &Pair) -> Pair {
    let copy = original.copied();
    take_over(&copy.fast);
    copy
}

/// Opens with what the manifest says of the pair 1.
fn open_with_record(
    pair: (&SimDisk, &SimDisk),
    (choice, record): (CapacityChoice, PairRecord),
    pair_id: u128,
) -> Result<Option<PairRecord>> {
    let device = device(pair.0, pair.1, choice);
    super::super::check(&device, &|_| Ok(Some(record)))?;
    super::super::attach(&device, ID, pair_id, Some(record))
}

#[test]
fn a_lost_role_file_is_written_anew_beside_the_right_capacity_directory() {
    let original = Pair::new();
    let written = role(&original.fast);
    let record = written.record();
    original.fast.device().remove(ROLE_FILE).expect("remove");
    let Pair { fast, capacity } = &original;
    let (copy, own) = (fast.copied(), capacity.copied());
    let alone = refused_with(check_record(&*fast.device(), Some(record)), "sim/tier");
    assert!(
        alone
            .hint()
            .is_some_and(|hint| hint.contains("capacity_dir"))
    );
    check_record(&*fast.device(), None).expect("one directory");
    let other = PairRecord {
        pair_id: 8,
        ..record
    };
    let empty = SimDisk::new(5);
    for ((fast, capacity), with, message) in [
        ((fast, capacity), (Named, other), FOREIGN),
        ((fast, &empty), (Named, record), "is empty"),
        ((fast, capacity), (NamedOnce, record), "no second directory"),
        ((&copy, capacity), (Named, record), COPY),
    ] {
        let opened = open_with_record((fast, capacity), with, 3);
        refused_with(opened.map(drop), message);
    }
    let opened = open_with_record((fast, capacity), (Named, record), 3).expect("the pair");
    assert_eq!((opened, role(fast)), (Some(record), written));
    original.assert_opens(1);
    let opened = open_with_record((&copy, &own), (Named, record), 3).expect("its own");
    assert_eq!(opened.map(|record| record.pair_id), Some(3));
    assert_eq!(role(&copy).ids(), role(&own).ids());
}
