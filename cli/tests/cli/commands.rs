//! `inspect`, `check`, `demo`.

use crate::support::{Scratch, flip_written_bit, largest_file, run};

const CITIES: &str = "CREATE TABLE city (id bigint PRIMARY KEY, name text);
    INSERT INTO city SELECT value, 'city ' || value FROM generate_series(1, 5000) AS s (value);
    UPDATE city SET name = 'changed' WHERE id % 10 = 0";

#[test]
fn inspect_shows_the_table() {
    let scratch = Scratch::new();
    let database = scratch.database("db", CITIES);
    let text = run(["inspect", &database]).ok();
    assert!(text.contains("city"), "{text}");
    let json = run(["inspect", &database, "--format", "jsonlines"]).ok();
    for line in json.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    }
}

#[test]
fn check_finds_nothing_wrong_with_a_sound_database() {
    let scratch = Scratch::new();
    let database = scratch.database("db", CITIES);
    let text = run(["check", &database]).ok();
    assert!(
        text.contains("5000 rows verified") && text.contains("no damage found"),
        "{text}"
    );
}

#[test]
fn check_finds_a_flipped_bit() {
    let scratch = Scratch::new();
    let csv = scratch.text("cities.csv");
    // More rows than an insert range holds, so that there are chunks.
    let query = "SELECT value, 'city ' || value FROM generate_series(1, 70000) AS s (value)";
    let load = format!(
        "COPY ({query}) TO '{csv}' WITH (FORMAT csv);
         CREATE TABLE city (id bigint PRIMARY KEY, name text);
         COPY city FROM '{csv}' WITH (FORMAT csv)"
    );
    let database = scratch.database("db", &load);
    for kind in ["superblock", "manifest-", "chunks-"] {
        let file = largest_file(scratch.path("db").as_path(), kind).expect(kind);
        let sound = std::fs::read(&file).expect("readable");
        flip_written_bit(&file);
        let ran = run(["check", &database]);
        assert_eq!(ran.code, Some(1), "{kind}: {ran:?}");
        let name = file.file_name().expect("a name").to_string_lossy();
        assert!(
            ran.out.contains("DAMAGE:  ") && ran.out.contains(&*name),
            "{ran:?}"
        );
        std::fs::write(&file, sound).expect("writable");
        run(["check", &database]).ok();
    }
}

#[test]
fn neither_command_makes_a_database() {
    let scratch = Scratch::new();
    for command in ["inspect", "check"] {
        let path = scratch.text("nothing");
        run([command, &path]).fails(3);
        assert!(!scratch.path("nothing").exists(), "{command}");
        std::fs::create_dir_all(scratch.path("empty")).expect("created");
        run([command, &scratch.text("empty")]).fails(3);
        let files = |name| {
            std::fs::read_dir(scratch.path(name))
                .expect("readable")
                .count()
        };
        assert_eq!(files("empty"), 0);
        std::fs::create_dir_all(scratch.path("locked")).expect("created");
        scratch.write("locked/lock", "");
        let err = run([command, &scratch.text("locked")]).fails(3);
        assert!(
            err.contains("locked") && err.contains("no database"),
            "{err}"
        );
        assert_eq!(files("locked"), 1);
    }
}

#[test]
fn a_database_may_be_called_like_a_command() {
    let scratch = Scratch::new();
    let status = std::process::Command::new(crate::support::STRANDLINE)
        .args(["./check", "-q", "-c", "CREATE TABLE t (a integer)"])
        .current_dir(scratch.path(""))
        .status();
    assert!(status.expect("starts").success());
    assert!(scratch.path("check").is_dir());
}

#[test]
fn the_demo_runs_to_its_end() {
    let text = run(["demo", "--sf", "0.01", "--seconds", "2"]).ok();
    for expected in [
        "tx/s",
        "ratio",
        "OK, exactly the answer",
        "acknowledged commits",
        "no damage",
    ] {
        assert!(text.contains(expected), "{expected} is missing in {text}");
    }
    assert!(
        !text.contains("DIFFERENT") && !text.contains("DAMAGE"),
        "{text}"
    );
}

#[test]
fn the_demo_of_tiers_runs_to_its_end() {
    let text = run(["demo", "--tiers", "--rows", "100000", "--seconds", "1"]).ok();
    for expected in [
        "emulated disk",
        "in the cache",
        "acknowledged rows are there",
        "times as many",
        "no damage",
    ] {
        assert!(text.contains(expected), "{expected} is missing in {text}");
    }
    assert!(!text.contains("DAMAGE"), "{text}");
    let err = run(["demo", "--tiers", "--sf", "1"]).fails(2);
    assert!(err.contains("--sf"), "{err}");
}

#[test]
fn the_demo_touches_no_directory_that_is_in_use() {
    let scratch = Scratch::new();
    scratch.write("letter.txt", "dear");
    let err = run(["demo", "--path", &scratch.text("")]).fails(1);
    assert!(err.contains("is not empty"), "{err}");
}
