//! Openings that only look: a file of an index that cannot be used is reported, and stays.

use crate::common::*;
use crate::faults::{begin, file_of, insert_some, update_some, verify};
use crate::files::named_files;
use crate::machine::{Machine, Place, in_places};
use crate::support::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_device::MemoryDevice;
use strandline_engine::*;

/// Opens the database to look at it.
pub fn look(machine: &Machine, wall: &Arc<ManualClock>) -> Arc<Db> {
    let settings = Settings {
        only_looks: true,
        ..machine.settings()
    };
    open_with(machine.device(), wall, settings).expect("open")
}

/// A database that was killed, whose log has changes of the indexes. Images of changed pages in the
/// log mend damage.
fn killed(seed: u64, place: Place) -> (Machine, Arc<ManualClock>) {
    let (machine, wall, db) = begin(seed, place);
    insert_some(&db, 0..40).expect("insert");
    db.checkpoint(true).expect("checkpoint");
    update_some(&db, 100).expect("update");
    drop(db);
    (machine.after_kill(), wall)
}

/// The parts of the file of an index, by name.
fn parts(machine: &Machine, file: &str) -> BTreeMap<String, Vec<u8>> {
    let names = machine.files().device().list().expect("names").into_iter();
    let own = names.filter(|name| name.starts_with(file));
    let content = |name: String| Some((name.clone(), machine.files().content(&name)?));
    own.filter_map(content).collect()
}

/// The damage that a look finds. It changes nothing of the file, and nobody can write.
fn damage_found(machine: &Machine, wall: &Arc<ManualClock>, file: &str) -> Vec<String> {
    let before = parts(machine, file);
    let db = look(machine, wall);
    let damage = db.check().expect("a check");
    let refused = insert_some(&db, 900..901).expect_err("a write");
    assert_eq!(refused.sqlstate(), SqlState::READ_ONLY_SQL_TRANSACTION);
    assert!(
        file_of(&db, "t_a") == file || file_of(&db, "t_ak_key") == file,
        "the definition names the file"
    );
    drop(db);
    assert_eq!(parts(machine, file), before, "{file}");
    damage
}

fn assert_named(damage: &[String], file: &str, index: &str) {
    let is_named = |line: &String| line.contains(file) && line.contains(index);
    assert!(damage.iter().any(is_named), "{file} of {index}: {damage:?}");
}

fn a_damaged_file_is_reported_and_stays(place: Place) {
    for index in ["t_a", "t_ak_key"] {
        let (machine, wall) = killed(21, place);
        machine.open(&wall).expect("open").close().expect("close");
        let db = look(&machine, &wall);
        assert_eq!(db.check().expect("a check"), Vec::<String>::new());
        let file = file_of(&db, index);
        drop(db);
        let machine = machine.after_kill();
        machine.damage(&file);
        for _ in 0..2 {
            let damage = damage_found(&machine, &wall, &file);
            assert_named(&damage, &file, index);
        }
        let db = machine.open(&wall).expect("open");
        assert_ne!(file_of(&db, index), file, "built again");
        assert_sound(&db, "built again");
    }
}

fn a_missing_file_is_reported_and_can_be_put_back(place: Place) {
    for index in ["t_a", "t_ak_key"] {
        let (machine, wall) = killed(22, place);
        let db = look(&machine, &wall);
        let (file, named) = (file_of(&db, index), named_files(&db));
        drop(db);
        let machine = machine.after_kill();
        let name = machine.files().device();
        let content = machine.files().content(&file).expect("a file");
        name.remove(&file).expect("removed");
        name.sync_directory().expect("durable");
        let damage = damage_found(&machine, &wall, &file);
        assert_named(&damage, &file, index);
        let put_back = name.create(&file).expect("create");
        put_back.write_all_at(&content, 0).expect("write");
        put_back.sync().expect("sync");
        name.sync_directory().expect("durable");
        let db = machine.open(&wall).expect("open");
        assert_eq!(named_files(&db), named, "nothing was built");
        assert_sound(&db, "put back");
    }
}

/// The checkpoint of a backup cuts the log, which the file then lacks.
fn a_backup_beside_a_missing_file_gives_it_up(place: Place) {
    let (machine, wall) = killed(23, place);
    let db = look(&machine, &wall);
    let file = file_of(&db, "t_a");
    drop(db);
    let machine = machine.after_kill();
    let device = machine.files().device();
    let content = machine.files().content(&file).expect("a file");
    device.remove(&file).expect("removed");
    device.sync_directory().expect("durable");
    let db = look(&machine, &wall);
    let copy: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    db.backup(&copy, &|_| true).expect("backup");
    assert_eq!(file_of(&db, "t_a"), file);
    drop(db);
    let put_back = device.create(&file).expect("create");
    put_back.write_all_at(&content, 0).expect("write");
    put_back.sync().expect("sync");
    device.sync_directory().expect("durable");
    let db = machine.open(&wall).expect("open");
    assert_ne!(file_of(&db, "t_a"), file, "built again");
    assert_sound(&db, "built again");
    drop(db);
    verify(&machine.after_crash(1), &wall, "built again");
    // The copy has no files of indexes: a look builds them.
    for _ in 0..2 {
        let settings = Settings {
            only_looks: true,
            ..eager(6)
        };
        let db = open_with(copy.clone(), &wall, settings).expect("open");
        assert_eq!(db.check().expect("a check"), Vec::<String>::new());
        assert_eq!(named_files(&db).len(), 3);
    }
}

in_places! {
    one_directory = Place::OneDirectory,
    two_directories = Place::TwoDirectories;
    [
        a_backup_beside_a_missing_file_gives_it_up,
        a_damaged_file_is_reported_and_stays,
        a_missing_file_is_reported_and_can_be_put_back,
    ]
}
