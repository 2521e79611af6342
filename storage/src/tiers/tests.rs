use super::*;

mod copies;

use std::sync::Arc;
use strandline_device::MemoryDevice;

const ID: u128 = 7;

/// Checks a database whose manifest has no record of a pair.
fn check(device: &dyn Device) -> Result<()> {
    super::check(device, &|_| Ok(None))
}

/// Attaches with such a manifest; returns the pair's id.
fn attach(device: &dyn Device, database_id: u128, pair_id: u128) -> Result<Option<u128>> {
    let record = super::attach(device, database_id, pair_id, None)?;
    Ok(record.map(|record| record.pair_id))
}

/// The directory of a new database.
fn database(id: u128) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new());
    Manifest::create(device.clone(), id, b"state", || Ok(())).expect("create");
    device
}

fn empty() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new())
}

fn pair(fast: &Arc<MemoryDevice>, capacity: &Arc<MemoryDevice>) -> TieredDevice {
    TieredDevice::new(fast.clone(), capacity.clone(), "/there").expect("tiers")
}

/// The directories of a database with two.
fn attached(id: u128, pair_id: u128) -> (Arc<MemoryDevice>, Arc<MemoryDevice>) {
    let (fast, capacity) = (database(id), empty());
    let device = pair(&fast, &capacity);
    check(&device).expect("an empty directory");
    attach(&device, id, pair_id).expect("attach");
    (fast, capacity)
}

#[track_caller]
fn refused_with(checked: Result<()>, message: &str) -> Error {
    let error = checked.expect_err(message);
    assert_eq!(
        error.sqlstate(),
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "{error}"
    );
    assert!(error.message().contains(message), "{error}");
    assert!(error.hint().is_some(), "{error}");
    error
}

#[test]
fn a_pair_is_accepted_and_records_where_the_capacity_tier_is() {
    let (fast, capacity) = attached(ID, 1);
    check(&pair(&fast, &capacity)).expect("a pair");
    assert_eq!(
        recorded_capacity_path(&*fast).expect("read").as_deref(),
        Some("/there")
    );
    assert_eq!(recorded_capacity_path(&*capacity).expect("read"), None);
    assert_eq!(recorded_capacity_path(&*database(1)).expect("read"), None);
    let moved = TieredDevice::new(fast.clone(), capacity.clone(), "/elsewhere").expect("tiers");
    attach(&moved, ID, 2).expect("attach");
    check(&moved).expect("still a pair");
    assert_eq!(
        recorded_capacity_path(&*fast).expect("read").as_deref(),
        Some("/elsewhere")
    );
}

#[test]
fn directories_that_do_not_belong_together_are_refused() {
    let (fast, capacity) = attached(ID, 1);
    let (other_fast, other_capacity) = attached(8, 2);
    let (copy_fast, copy_capacity) = attached(ID, 3);
    for (fast, capacity) in [
        (&fast, &other_capacity),
        (&other_fast, &capacity),
        (&fast, &copy_capacity),
        (&copy_fast, &capacity),
        (&database(ID + 1), &capacity),
    ] {
        refused_with(check(&pair(fast, capacity)), "belongs to another database");
    }
    refused_with(check(&pair(&capacity, &fast)), "is the capacity directory");
    refused_with(check(&*capacity), "is the capacity directory");
    let alone = refused_with(check(&*fast), "second directory, which is missing");
    assert!(alone.hint().is_some_and(|hint| hint.contains("/there")));
    refused_with(check(&pair(&fast, &empty())), "is empty");
    refused_with(check(&pair(&fast, &other_fast)), "holds a database itself");
    refused_with(
        check(&pair(&database(1), &database(2))),
        "a database itself",
    );
    for fast in [&fast, &database(1), &empty()] {
        let photos = empty();
        photos.create("holiday.jpg").expect("create");
        refused_with(
            check(&pair(fast, &photos)),
            "holds other files (\"holiday.jpg\")",
        );
    }
    // A role file that was copied into another database's directory.
    let stranger = database(99);
    Role::read(&*fast)
        .expect("read")
        .expect("role")
        .write(&*stranger)
        .expect("write");
    refused_with(
        check(&pair(&stranger, &capacity)),
        "\"tier\" belongs to another database",
    );
}

#[test]
fn an_interrupted_attachment_is_completed() {
    let (fast, capacity) = (database(ID), empty());
    let device = pair(&fast, &capacity);
    capacity.create(ROLE_FILE_STAGED).expect("cut short");
    check(&device).expect("nothing but an unfinished role file");
    let role = Role {
        tier: Tier::Capacity,
        database_id: ID,
        pair_id: 5,
        directory: 0,
        capacity_path: String::new(),
    };
    capacity.remove(ROLE_FILE_STAGED).expect("remove");
    role.write(&*capacity).expect("write");
    fast.create(ROLE_FILE_STAGED).expect("cut short");
    check(&device).expect("the capacity tier is attached, the fast one not yet");
    refused_with(check(&pair(&database(8), &capacity)), "another database");
    attach(&device, ID, 6).expect("attach");
    check(&device).expect("a pair");
    let pair_ids = [&fast, &capacity].map(|directory| {
        let role = Role::read(&**directory).expect("read").expect("role");
        role.pair_id
    });
    assert_eq!(pair_ids, [6, 6]);
    assert!(!holds(&*fast, ROLE_FILE_STAGED).expect("list"));
    // With chunk files on it, a capacity tier belongs to the copy that wrote them.
    fast.remove(ROLE_FILE).expect("remove");
    check(&device).expect("no file beside the role file");
    capacity.create("chunks-0000000000000001").expect("create");
    refused_with(check(&device), "another database");
}

#[test]
fn damage_to_a_role_file_is_found_at_every_byte() {
    let (fast, capacity) = attached(ID, 1);
    for directory in [&fast, &capacity] {
        let file = directory.open(ROLE_FILE).expect("open");
        for at in 0..file.len().expect("len") {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("read");
            file.write_all_at(&[byte[0] ^ 0x40], at).expect("flip");
            let error = check(&pair(&fast, &capacity)).expect_err("damaged");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
            assert!(error.to_string().contains("\"tier\""), "{error}");
            file.write_all_at(&byte, at).expect("mend");
        }
        let mut whole = vec![0; file.len().expect("len") as usize];
        file.read_exact_at(&mut whole, 0).expect("read");
        for cut in [0, 63, whole.len() - 1] {
            file.set_len(cut as u64).expect("cut");
            let error = Role::read(&**directory).expect_err("cut");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            file.write_all_at(&whole, 0).expect("mend");
        }
    }
}
