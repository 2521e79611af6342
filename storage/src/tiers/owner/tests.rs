use super::super::{attach, check as check_tiers};
use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_device::{File, MemoryDevice, TAKEOVER_FILE};
use strandline_sim::SimDisk;

const ID: u128 = 7;

/// Objects: a directory whose files are written once.
#[derive(Debug, Default)]
struct Objects {
    inner: MemoryDevice,
    /// tokens above this one are not listed yet; 0: all are
    listed_upto: AtomicU64,
}

impl Device for Objects {
    strandline_device::forward!(inner: open remove rename sync_directory lock);

    /// Refuses a name that is taken, as a conditional put does.
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        match self.inner.list()?.iter().any(|stored| stored == name) {
            true => Err(Error::invalid(SqlState::DUPLICATE_FILE, name)),
            false => self.inner.create(name),
        }
    }

    fn list(&self) -> Result<Vec<String>> {
        let upto = self.listed_upto.load(Ordering::Relaxed);
        let mut names = self.inner.list()?;
        names.retain(|name| token_number(name).is_none_or(|number| upto == 0 || number <= upto));
        Ok(names)
    }

    fn location(&self) -> String {
        "s3://bucket/prefix".to_owned()
    }

    fn is_written_once(&self, _tier: Tier) -> bool {
        true
    }
}

/// The directory of a new database.
fn database() -> SimDisk {
    let disk = SimDisk::new(1);
    Manifest::create(disk.device(), ID, b"state", || Ok(())).expect("create");
    disk
}

fn pair(disk: &SimDisk, objects: &Arc<Objects>) -> TieredDevice {
    TieredDevice::new(disk.device(), objects.clone(), "s3://bucket/prefix").expect("tiers")
}

/// Opens the database as the engine does; `random` is the incarnation.
fn open(
    disk: &SimDisk,
    objects: &Arc<Objects>,
    random: u128,
) -> Result<(Arc<Owner>, TieredDevice)> {
    let device = pair(disk, objects);
    check_tiers(&device, &|_| Ok(None))?;
    check(&device)?;
    attach(&device, ID, 1, None)?;
    let owner = take(&device, ID, random)?.expect("an object store");
    Ok((owner, device))
}

fn tokens(objects: &Objects) -> Vec<String> {
    let names = objects.list().expect("list").into_iter();
    names.filter(|name| token_number(name).is_some()).collect()
}

#[track_caller]
fn refused(opened: Result<(Arc<Owner>, TieredDevice)>, message: &str) {
    let error = opened.expect_err(message);
    assert_eq!(
        error.sqlstate(),
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "{error}"
    );
    assert!(error.message().contains(message), "{error}");
    assert!(error.message().contains("s3://bucket/prefix"), "{error}");
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains(TAKEOVER_FILE))
    );
    let detail = error.detail().expect("both incarnations");
    assert!(detail.contains(&format!("{ID:032x}")), "{detail}");
}

fn signal(disk: &SimDisk) {
    disk.device().create(TAKEOVER_FILE).expect("create");
    disk.device().sync_directory().expect("sync");
}

#[test]
fn each_opening_puts_the_next_token_and_removes_the_one_before() {
    let (disk, objects) = (database(), Arc::default());
    for number in 1..4 {
        let (owner, device) = open(&disk, &objects, 5).expect("own");
        assert_eq!(tokens(&objects), [token_name(number)]);
        owner.check().expect("still the owner");
        // Tokens and the record are no files of the database.
        assert!(
            device
                .list()
                .expect("list")
                .iter()
                .all(|name| token_number(name).is_none())
        );
    }
}

#[test]
fn a_copy_is_refused_until_it_takes_the_objects_over() {
    let (disk, objects) = (database(), Arc::default());
    let (first, first_device) = open(&disk, &objects, 5).expect("own");
    let chunks = |name: &str| first_device.create_on(Tier::Capacity, name).map(drop);
    chunks("chunks-0000000000000001").expect("create");
    let copy = disk.copied();
    let before = (copy.operations(), objects.list().expect("list"));
    refused(
        open(&copy, &objects, 6),
        "is a copy of the directory that owns",
    );
    let after = (copy.operations(), objects.list().expect("list"));
    assert_eq!(after, before, "nothing is written");
    first.check().expect("still the owner");
    signal(&copy);
    let (second, second_device) = open(&copy, &objects, 6).expect("taken over");
    assert!(
        !holds(&*copy.device(), TAKEOVER_FILE).expect("list"),
        "it counts once"
    );
    second.check().expect("the owner");
    // The first one finds out, and removes nothing.
    let lost = first.check().expect_err("lost");
    assert_eq!(lost.kind(), ErrorKind::Closed);
    assert!(lost.message().contains("s3://bucket/prefix"), "{lost}");
    first_device
        .remove("chunks-0000000000000001")
        .expect_err("not its own any more");
    assert!(
        objects
            .list()
            .expect("list")
            .contains(&"chunks-0000000000000001".to_owned())
    );
    second_device
        .remove("chunks-0000000000000001")
        .expect("its own");
    drop((first, first_device));
    refused(open(&disk, &objects, 7), "is owned by another copy");
    open(&copy, &objects, 8).expect("own");
    // And back.
    signal(&disk);
    open(&disk, &objects, 9).expect("taken over");
    refused(open(&copy, &objects, 10), "is owned by another copy");
    second.check().expect_err("lost");
}

/// A clone of the file system cannot be told from its original; whichever is opened last owns the
/// objects.
#[test]
fn the_original_of_an_opened_clone_finds_out() {
    let (disk, objects) = (database(), Arc::default());
    let (first, _device) = open(&disk, &objects, 5).expect("own");
    let clone = disk.after_kill();
    let (second, _other) = open(&clone, &objects, 6).expect("opened");
    first.check().expect_err("lost");
    refused(open(&disk, &objects, 7), "is owned by another copy");
    second.check().expect("the owner");
}

/// All objects were removed, and another directory has put a token of the same number since.
#[test]
fn a_token_of_the_same_number_is_not_the_owners() {
    let (disk, objects) = (database(), Arc::<Objects>::default());
    let (owner, _) = open(&disk, &objects, 5).expect("own");
    owner.check().expect("the owner");
    for name in objects.inner.list().expect("list") {
        objects.remove(&name).expect("removed");
    }
    let (other, _) = open(&database(), &objects, 6).expect("the place is empty");
    assert_eq!(tokens(&objects), [token_name(1)]);
    let error = owner.check().expect_err("another one's");
    assert!(error.message().contains("was taken over"), "{error}");
    owner.check_removal().expect_err("nor removals");
    other.check().expect("the owner now");
    // A token that cannot be read says nothing, and allows nothing.
    objects.remove(&token_name(1)).expect("removed");
    objects.create(&token_name(1)).expect("created");
    let error = other.check_removal().expect_err("damaged");
    assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
    assert!(other.lost().is_none());
}

#[test]
fn two_openings_at_the_same_time_put_one_token() {
    let (disk, objects) = (database(), Arc::<Objects>::default());
    drop(open(&disk, &objects, 5).expect("own"));
    // A clone puts its token after this opening has listed the tokens.
    let incarnation = Incarnation { number: 2, id: 99 };
    let token = Token {
        database_id: ID,
        incarnation,
    };
    token.put(&*objects).expect("put");
    objects.listed_upto.store(1, Ordering::Relaxed);
    let device = pair(&disk, &objects);
    check(&device).expect("own");
    let taken = take(&device, ID, 7).map(|_| unreachable!("the number is taken"));
    refused(taken, "is owned by another copy");
    objects.listed_upto.store(0, Ordering::Relaxed);
    assert_eq!(tokens(&objects), [token_name(1), token_name(2)]);
    assert_eq!(Token::read(&*objects, 2).expect("read"), token);
}

#[test]
fn a_database_from_before_the_tokens_gets_one_and_lost_tokens_are_noticed() {
    let (disk, objects) = (database(), Arc::<Objects>::default());
    let device = pair(&disk, &objects);
    attach(&device, ID, 1, None).expect("attach");
    check(&device).expect("no token, no record");
    for random in [5, 6] {
        drop(open(&disk, &objects, random).expect("own"));
    }
    for name in tokens(&objects) {
        objects.remove(&name).expect("remove");
    }
    refused(open(&disk, &objects, 7), "is owned by another copy");
    signal(&disk);
    open(&disk, &objects, 7).expect("taken over");
    // Objects with a token, and a directory without a record.
    disk.device().remove(OWNER_FILE).expect("remove");
    refused(open(&disk, &objects, 8), "is owned by another copy");
}

#[test]
fn damage_is_found_at_every_byte_and_overruled_by_a_takeover() {
    let (disk, objects) = (database(), Arc::<Objects>::default());
    drop(open(&disk, &objects, 5).expect("own"));
    let token = objects.open(&token_name(1)).expect("open");
    let record = disk.device().open(OWNER_FILE).expect("open");
    let flip = |file: &Arc<dyn File>, at: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("read");
        file.write_all_at(&[byte[0] ^ 0x40], at).expect("flip");
    };
    for (file, name) in [(&token, "owner-"), (&record, "\"owner\"")] {
        for at in 0..file.len().expect("len") {
            flip(file, at);
            let error = check(&pair(&disk, &objects)).expect_err("damaged");
            let is_told = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported);
            assert!(
                is_told && error.to_string().contains(name),
                "byte {at}: {error}"
            );
            flip(file, at);
        }
        file.set_len(8).expect("cut");
        check(&pair(&disk, &objects)).expect_err("cut");
    }
    signal(&disk);
    open(&disk, &objects, 6).expect("taken over");
    open(&disk, &objects, 7).expect("own");
}

/// A crash at each operation of the disk during an opening, and a takeover.
#[test]
fn a_crash_during_an_opening_leaves_the_directory_as_the_owner() {
    for is_takeover in [false, true] {
        let built = || {
            let (disk, objects) = (database(), Arc::<Objects>::default());
            drop(open(&disk, &objects, 5).expect("own"));
            if is_takeover {
                let copy = disk.copied();
                signal(&copy);
                return (copy, objects);
            }
            (disk, objects)
        };
        let (disk, objects) = built();
        let before = disk.operations();
        open(&disk, &objects, 6).expect("no crash");
        let operations = disk.operations() - before;
        assert!(operations > 3, "{operations}");
        for at in 1..=operations {
            for seed in 0..4 {
                let (disk, objects) = built();
                disk.crash_at(disk.operations() + at);
                open(&disk, &objects, 6).expect_err("the crash");
                let found = disk.after_crash(seed);
                let what = format!("operation {at}, seed {seed}, takeover: {is_takeover}");
                if is_takeover && tokens(&objects) == [token_name(1)] {
                    // Nothing was put yet: it is still the signal that decides.
                    let given_up = found.after_kill();
                    given_up.device().remove(TAKEOVER_FILE).expect("remove");
                    open(&given_up, &objects, 7).expect_err(&what);
                }
                let (owner, _device) = open(&found, &objects, 7).expect(&what);
                owner.check().expect(&what);
                assert_eq!(tokens(&objects).len(), 1, "{what}");
            }
        }
    }
}
