//! Databases whose capacity tier is given by a URL: how they are opened, found again, refused,
//! backed up and restored, and what happens while the store cannot be reached.

use super::directories::{Home, SUM, holds, names, refused, sum};
use super::{error, rows, run};
use object_store::path::Path as ObjectPath;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use strandline::{Connection, Database, Origin, RestoreOptions, Settings, SqlState};
use strandline_device::{Device, MemoryDevice, TieredDevice};
use strandline_object::{ObjectDevice, Options, Place};
use strandline_sim::SimStore;

/// A store in memory that no other test uses.
fn store(test: &str) -> String {
    format!("memory://capacity-urls-{test}/db")
}

/// A database of 5,000 rows in `path`, whose capacity tier is at `url`.
fn create(path: &Path, url: &str) {
    let database = Database::builder(path).capacity_url(url).build();
    let database = database.expect("created");
    let mut c = database.connect();
    load(&mut c);
    drop(c);
    database.close().expect("closed");
}

fn load(c: &mut Connection) {
    run(
        c,
        &[
            "CREATE TABLE t (a int PRIMARY KEY)",
            "INSERT INTO t SELECT g FROM generate_series(1, 5000) g",
            "VACUUM FULL",
        ],
    );
}

fn objects(url: &str) -> Arc<dyn Device> {
    match Place::parse(url).expect("a URL") {
        Place::Objects(url) => url.open(Options::default()).expect("a device"),
        Place::Directory(_) => panic!("{url} is a directory"),
    }
}

fn object_names(url: &str) -> Vec<String> {
    objects(url).list().expect("listed")
}

/// The bytes of all objects.
fn contents(url: &str) -> BTreeMap<String, Vec<u8>> {
    let device = objects(url);
    let read = |name: String| {
        let file = device.open(&name).expect("opened");
        let mut bytes = vec![0; file.len().expect("a length") as usize];
        file.read_exact_at(&mut bytes, 0).expect("read");
        (name, bytes)
    };
    device
        .list()
        .expect("listed")
        .into_iter()
        .map(read)
        .collect()
}

fn shown(database: &Database, name: &str) -> String {
    database.connect().parameter(name).expect("a parameter")
}

fn restored_to(url: &str) -> RestoreOptions<'_> {
    RestoreOptions {
        capacity_url: Some(url),
        ..RestoreOptions::default()
    }
}

#[test]
fn an_object_store_is_named_once_and_shown() {
    let (home, url) = (Home::new(), store("named"));
    let path = home.at("db");
    create(&path, &format!("{url}/"));
    let found = object_names(&url);
    assert!(found.iter().any(|name| name.starts_with("chunks-")));
    assert!(found.iter().all(|name| !name.starts_with("wal-")));
    assert!(holds(&path, "wal-") && !holds(&path, "chunks-"));
    let database = Database::open(&path).expect("the URL is recorded");
    assert_eq!(sum(&database), SUM);
    assert_eq!(shown(&database, "capacity_url"), url);
    assert_eq!(shown(&database, "capacity_dir"), "");
    let mut c = database.connect();
    let tiers = rows(
        &mut c,
        "SELECT name, location, bytes > 0 FROM strandline_tiers()",
    );
    let local = path.display();
    let expected = [format!("fast|{local}|t"), format!("capacity|{url}|t")];
    assert_eq!(tiers, expected);
    let inspected = format!("{:?}", database.inspect().expect("inspected").sections);
    assert!(inspected.contains("\"object store\"") && inspected.contains(&url));
    let fixed = error(&mut c, "SET capacity_url = 'memory://elsewhere'");
    assert_eq!(fixed.sqlstate(), SqlState("55P02"));
    // Page files are overwritten, so they are local, and served through no SSD cache.
    run(
        &mut c,
        &[
            "CREATE INDEX t_a ON t (a) WITH (storage = 'pages')",
            "CHECKPOINT",
        ],
    );
    assert!(holds(&path, "pages-"));
    assert!(
        !object_names(&url)
            .iter()
            .any(|name| name.starts_with("pages-"))
    );
    assert!(database.check().expect("checked").is_empty());
    drop((c, database));
    let database = Database::open(&path).expect("opens");
    let found = rows(&mut database.connect(), "SELECT a FROM t WHERE a = 4711");
    assert_eq!(found, ["4711"]);
}

#[test]
fn a_file_url_is_a_capacity_directory() {
    let home = Home::new();
    let (path, capacity) = (home.at("db"), home.at("big"));
    let url = format!("file://{}", capacity.display());
    create(&path, &url);
    assert!(holds(&capacity, "chunks-") && !holds(&path, "chunks-"));
    let database = Database::builder(&path).capacity_dir(&capacity).build();
    let database = database.expect("the same directory by its path");
    assert_eq!(sum(&database), SUM);
    let directory = capacity.canonicalize().expect("a path");
    assert_eq!(
        shown(&database, "capacity_dir"),
        directory.display().to_string()
    );
    assert_eq!(shown(&database, "capacity_url"), "");
    assert!(database.check().expect("checked").is_empty());
    let inspected = format!("{:?}", database.inspect().expect("inspected").sections);
    assert!(inspected.contains("\"capacity directory\""));
    let copy = home.at("copy");
    database.backup(&copy, &|_| true).expect("backup");
    drop(database);
    // From a backup, and from a closed database, which is only read.
    for (source, name) in [(&copy, "one"), (&path, "two")] {
        let (target, tier) = (home.at(name), home.at(&format!("{name}-big")));
        let before = (names(&path), names(&capacity));
        let url = format!("file://{}", tier.display());
        strandline::restore(source, &target, restored_to(&url), &|_| true).expect("restored");
        assert_eq!((names(&path), names(&capacity)), before);
        assert!(holds(&tier, "chunks-") && !holds(&target, "chunks-"));
        assert_eq!(sum(&Database::open(&target).expect("opens")), SUM);
        let again = strandline::restore(source, home.at("x"), restored_to(&url), &|_| true);
        let exists = again.expect_err("it exists");
        assert_eq!(exists.sqlstate(), SqlState::DUPLICATE_FILE);
    }
    // The directory moves: it is named again, once.
    let moved = home.at("moved");
    std::fs::rename(&capacity, &moved).expect("moved");
    let missing = Database::builder(&path);
    refused(missing, SqlState::UNDEFINED_FILE, "does not exist");
    let url = format!("file://{}", moved.display());
    let database = Database::builder(&path).capacity_url(url).build();
    assert_eq!(sum(&database.expect("opens")), SUM);
    assert_eq!(sum(&Database::open(&path).expect("opens")), SUM);
}

#[test]
fn wrong_settings_are_refused_before_anything_is_written() {
    let home = Home::new();
    let path = home.at("db");
    let builder = || Database::builder(&path);
    let wrong = SqlState::INVALID_PARAMETER_VALUE;
    let overlap = format!("file://{}/inside", path.display());
    let around = format!("file://{}", home.at("").display());
    for (url, message) in [
        ("", "capacity_url \"\": it has no scheme"),
        ("/mnt/disk", "capacity_url \"/mnt/disk\": it has no scheme"),
        ("gs://bucket/p", "the scheme \"gs\" is unknown"),
        ("s3:/bucket/p", "it has no scheme"),
        ("s3://", "the bucket is missing"),
        ("s3:///prefix", "the bucket is missing"),
        ("s3://bucket/a//b", "a name between two slashes is empty"),
        ("s3://bucket/a?region=x", "one of the characters"),
        ("memory://", "the name of the store is missing"),
        ("file://disk", "the path is not absolute"),
        ("file:///a%20b", "one of the characters"),
        ("s3://key:secret@bucket/p", "capacity_url has credentials"),
        (&overlap, "overlap"),
        (&around, "overlap"),
    ] {
        refused(builder().capacity_url(url), wrong, message);
        // A configuration file refuses the same, at its line.
        if !url.is_empty() && message != "overlap" {
            let set = builder().parameter("capacity_url", url, Origin::Program);
            let error = set.err().expect(message);
            assert_eq!(error.sqlstate(), wrong, "{error}");
            assert!(error.message().contains(message), "{error}");
        }
    }
    let both = builder()
        .capacity_url("memory://a")
        .capacity_dir(home.at("big"));
    refused(both, wrong, "are both set");
    for given in ["s3://bucket/p", "file:///a", "memory://a"] {
        refused(
            builder().capacity_dir(given),
            wrong,
            "capacity_dir is a URL",
        );
    }
    let in_memory = Database::on_device(Arc::new(MemoryDevice::new())).capacity_url("memory://a");
    let error = refused(in_memory, wrong, "needs a database in a directory");
    assert!(error.message().contains("capacity_url"), "{error}");
    let restored = strandline::restore(&path, home.at("x"), restored_to("gs://a"), &|_| true);
    assert_eq!(restored.expect_err("no such scheme").sqlstate(), wrong);
    assert!(names(&home.at("")).is_empty(), "{:?}", names(&home.at("")));
    let unset = builder().parameter("capacity_url", "", Origin::Program);
    let database = unset.expect("none").build().expect("opens");
    assert_eq!(shown(&database, "capacity_url"), "");
}

#[test]
#[cfg(not(feature = "s3"))]
fn a_build_without_s3_says_so() {
    let home = Home::new();
    let builder = Database::builder(home.at("db")).capacity_url("s3://bucket/p");
    let state = SqlState::FEATURE_NOT_SUPPORTED;
    let error = refused(builder, state, "\"s3://bucket/p\": this build has no S3");
    assert!(error.hint().is_some_and(|hint| hint.contains("\"s3\"")));
}

#[test]
fn stores_that_do_not_belong_to_the_database_are_refused_and_left_alone() {
    let home = Home::new();
    let (url, other_url) = (store("one"), store("other"));
    let (path, other, local) = (home.at("db"), home.at("other"), home.at("local"));
    create(&path, &url);
    create(&other, &other_url);
    let (_, directory) = home.create("local");
    let (empty_url, photos, new) = (store("empty"), store("photos"), home.at("new"));
    let photo = objects(&photos).create("holiday.jpg").expect("created");
    photo.sync().expect("stored");
    let foreign = "belongs to another database";
    let missing = format!("object store \"{empty_url}\" is empty, but the database");
    for (path, url, message) in [
        (&path, &other_url, foreign),
        (&other, &url, foreign),
        (&new, &url, foreign),
        (&path, &empty_url, &*missing),
        // Chunk files in a directory do not move to objects by themselves.
        (&local, &empty_url, &*missing),
        (&path, &photos, "holds other objects (\"holiday.jpg\")"),
        (&new, &photos, "holds other objects (\"holiday.jpg\")"),
    ] {
        let before = (names(path), object_names(url));
        let builder = Database::builder(path).capacity_url(url);
        let state = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
        let error = refused(builder, state, message);
        assert!(error.message().contains(&format!("object store \"{url}\"")));
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("capacity_url"))
        );
        assert_eq!((names(path), object_names(url)), before, "{message}");
    }
    // Nor the other way round.
    let state = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
    let by_directory = Database::builder(&path).capacity_dir(&directory);
    refused(by_directory, state, foreign);
    let big = home.at("big");
    std::fs::create_dir(&big).expect("created");
    refused(
        Database::builder(&path).capacity_dir(&big),
        state,
        "is empty",
    );
    assert_eq!(sum(&Database::open(&path).expect("opens")), SUM);
    // The objects are copied elsewhere by other tools: the URL is set once.
    let moved = store("moved");
    for (name, bytes) in contents(&url) {
        let file = objects(&moved).create(&name).expect("created");
        file.write_all_at(&bytes, 0).expect("written");
        file.sync().expect("stored");
    }
    let database = Database::builder(&path).capacity_url(&moved).build();
    assert_eq!(sum(&database.expect("opens")), SUM);
    let database = Database::open(&path).expect("opens");
    assert_eq!(shown(&database, "capacity_url"), moved);
    assert!(database.check().expect("checked").is_empty());
    drop(database);
    // Page files of a capacity directory that was copied to a store could not be written there.
    for name in ["pages-00000001", "ssd-cache-marker"] {
        let file = objects(&moved).create(name).expect("created");
        file.sync().expect("stored");
        let overwritten = format!("would have to be overwritten (\"{name}\")");
        refused(Database::builder(&path), state, &overwritten);
        objects(&moved).remove(name).expect("removed");
    }
    assert_eq!(sum(&Database::open(&path).expect("opens")), SUM);
}

#[test]
fn an_ssd_cache_beside_an_object_store_is_refused() {
    let (home, url) = (Home::new(), store("cache"));
    let path = home.at("db");
    create(&path, &url);
    let with_cache = |builder: strandline::DatabaseBuilder, mode| {
        let builder = builder.parameter("ssd_cache_bytes", "1MiB", Origin::Program);
        let builder = builder.expect("bytes");
        let builder = builder.parameter("ssd_cache_mode", mode, Origin::Program);
        builder.expect("a mode")
    };
    for mode in ["pc", "pc2", "lc"] {
        let builder = with_cache(Database::builder(&path), mode);
        let error = refused(
            builder,
            SqlState::INVALID_PARAMETER_VALUE,
            "ssd_cache_bytes",
        );
        assert!(error.message().contains(&url), "{error}");
    }
    let off = with_cache(Database::builder(&path), "off").build();
    assert_eq!(sum(&off.expect("no cache")), SUM);
    assert!(!holds(&path, "ssd-cache"));
}

#[test]
fn a_database_of_one_directory_gets_an_object_store() {
    let (home, url) = (Home::new(), store("later"));
    let path = home.at("db");
    let database = Database::open(&path).expect("created");
    load(&mut database.connect());
    database.close().expect("closed");
    drop(database);
    let database = Database::builder(&path).capacity_url(&url).build();
    let database = database.expect("opens");
    let mut c = database.connect();
    assert_eq!(object_names(&url), ["owner-0000000000000001", "tier"]);
    run(
        &mut c,
        &[
            "CREATE TABLE u AS SELECT g FROM generate_series(1, 5000) g",
            "VACUUM FULL",
        ],
    );
    assert!(
        object_names(&url)
            .iter()
            .any(|name| name.starts_with("chunks-"))
    );
    drop((c, database));
    let database = Database::open(&path).expect("opens");
    assert_eq!(sum(&database), SUM);
    assert_eq!(rows(&mut database.connect(), "SELECT sum(g) FROM u"), [SUM]);
}

#[test]
fn objects_are_never_overwritten() {
    let (home, url) = (Home::new(), store("once"));
    let path = home.at("db");
    create(&path, &url);
    let mut known: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for round in 0..4 {
        let database = Database::open(&path).expect("opens");
        let mut c = database.connect();
        let update = format!("UPDATE t SET a = -a WHERE a % 4 = {round}");
        run(&mut c, &[&update, "VACUUM FULL"]);
        drop(c);
        database.close().expect("closed");
        let now = contents(&url);
        for (name, bytes) in &now {
            assert!(known.get(name).is_none_or(|old| old == bytes), "{name}");
        }
        let chunks = now.keys().filter(|name| name.starts_with("chunks-"));
        assert!(chunks.into_iter().any(|name| !known.contains_key(name)));
        known.extend(now);
    }
}

#[test]
fn a_backup_is_local_and_is_restored_to_objects() {
    let (home, url) = (Home::new(), store("restored"));
    let (path, copy) = (home.at("db"), home.at("copy"));
    create(&path, &store("source"));
    let database = Database::open(&path).expect("opens");
    database.backup(&copy, &|_| true).expect("backup");
    database.close().expect("closed");
    drop(database);
    assert!(holds(&copy, "chunks-") && !holds(&copy, "tier"));
    // What fails leaves neither directory nor objects.
    let late = RestoreOptions {
        as_of: Some("2199-01-01"),
        ..restored_to(&url)
    };
    let target = home.at("target");
    strandline::restore(&copy, &target, late, &|_| true).expect_err("too late");
    let stopped = strandline::restore(&copy, &target, restored_to(&url), &|p| p.bytes < 1);
    assert_eq!(stopped.expect_err("stopped").sqlstate(), SqlState("57014"));
    assert!(object_names(&url).is_empty(), "{:?}", object_names(&url));
    assert!(!target.exists() && !home.at("target.tmp").exists());
    // From the backup, and from the closed database, whose objects are only read.
    for (source, name) in [(&copy, "one"), (&path, "two")] {
        let (target, url) = (home.at(name), format!("{url}-{name}"));
        strandline::restore(source, &target, restored_to(&url), &|_| true).expect("restored");
        let restored = Database::open(&target).expect("the URL is recorded");
        assert_eq!(sum(&restored), SUM);
        assert_eq!(shown(&restored, "capacity_url"), url);
        assert!(restored.check().expect("checked").is_empty());
        let before = contents(&url);
        let again = strandline::restore(source, home.at("again"), restored_to(&url), &|_| true);
        let exists = again.expect_err("nothing is overwritten");
        assert_eq!(exists.sqlstate(), SqlState::DUPLICATE_FILE);
        assert!(exists.message().contains(&url) && exists.hint().is_some());
        assert_eq!(contents(&url), before);
    }
    // The copies' objects are not each other's.
    let builder = Database::builder(home.at("one")).capacity_url(format!("{url}-two"));
    let state = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
    refused(builder, state, "belongs to another database");
    let single = home.at("single");
    let options = RestoreOptions::default();
    strandline::restore(&path, &single, options, &|_| true).expect("restored");
    assert!(holds(&single, "chunks-") && !holds(&single, "tier"));
    assert_eq!(sum(&Database::open(&single).expect("opens")), SUM);
}

/// A database on local memory and a store that may fail; its clock does not wait.
fn on_store(local: &Arc<MemoryDevice>, store: &SimStore) -> strandline::Result<Database> {
    let options = Options {
        attempts: 2,
        request_timeout: Duration::from_secs(1),
        ..Options::default()
    };
    let runtime = SimStore::runtime().expect("a runtime");
    let (objects, prefix) = (Arc::new(store.clone()), ObjectPath::from("db"));
    let objects = ObjectDevice::on_runtime(objects, prefix, "sim://db", options, runtime)?;
    let device = TieredDevice::new(local.clone(), Arc::new(objects), "sim://db")?;
    let settings = Settings {
        background_maintenance: false,
        ..Settings::default()
    };
    Database::on_device(Arc::new(device))
        .settings(settings)
        .build()
}

#[test]
fn statements_say_that_the_store_cannot_be_reached_and_go_on_afterwards() {
    let (local, store) = (Arc::new(MemoryDevice::new()), SimStore::new());
    let database = on_store(&local, &store).expect("created");
    // Without a key, so that the opening reads no rows.
    run(
        &mut database.connect(),
        &[
            "CREATE TABLE t AS SELECT g AS a FROM generate_series(1, 5000) g",
            "VACUUM FULL",
        ],
    );
    database.close().expect("closed");
    drop(database);
    let database = on_store(&local, &store).expect("opens");
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE u (b int)"]);
    let requests = store.requests();
    store.set_unreachable(true);
    let unread = error(&mut c, "SELECT sum(a) FROM t");
    assert_eq!(unread.sqlstate(), SqlState::IO_ERROR, "{unread}");
    for part in ["object \"chunks-", "sim://db", "after 2 attempts"] {
        assert!(unread.message().contains(part), "{unread}");
    }
    assert!(unread.hint().is_some(), "{unread}");
    // The log is local.
    run(
        &mut c,
        &["INSERT INTO u SELECT g FROM generate_series(1, 100) g"],
    );
    assert_eq!(rows(&mut c, "SELECT sum(b) FROM u"), ["5050"]);
    // A merge fails by itself or with its checkpoint.
    let _ = database.merge_all();
    let log = store.log(requests);
    let is_put = |request: &String| request.starts_with("put chunks-");
    assert!(log.iter().any(is_put), "{log:?}");
    run(&mut c, &["INSERT INTO u VALUES (0)"]);
    let error = on_store(&Arc::default(), &store)
        .err()
        .expect("unreachable");
    assert_eq!(error.sqlstate(), SqlState::IO_ERROR, "{error}");
    assert!(error.message().contains("listing sim://db"), "{error}");
    store.set_unreachable(false);
    assert_eq!(rows(&mut c, "SELECT sum(a) FROM t"), [SUM]);
    run(&mut c, &["VACUUM FULL"]);
    assert!(database.check().expect("checked").is_empty());
    drop(c);
    database.close().expect("closed");
    drop(database);
    let database = on_store(&local, &store).expect("opens");
    assert_eq!(sum(&database), SUM);
    assert_eq!(
        rows(&mut database.connect(), "SELECT count(*) FROM u"),
        ["101"]
    );
}
