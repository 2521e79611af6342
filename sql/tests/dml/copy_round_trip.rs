//! COPY … TO and back, every type, every format.

use super::Fixture;

const COLUMNS: &str = "bo boolean, s smallint, i int, b bigint, r real, d double precision,
    n numeric(10,3), w numeric(38,10), x text, v varchar(20), c char(5), by bytea, y date, tm time,
    ts timestamp, tz timestamptz, iv interval, u uuid, j json";

fn fixture() -> Fixture {
    let mut f = Fixture::new(&format!(
        "CREATE TABLE t ({COLUMNS}); CREATE TABLE back ({COLUMNS})"
    ));
    f.script(
        "INSERT INTO t VALUES
         (true, -32768, 2147483647, -9223372036854775808, 1.5, 0.1, -1234567.891,
          1234567890123456789012345678.0123456789, 'text, \"quoted\"
          and a line', 'varchar', 'ch', '\\x00ff10', '2024-02-29', '12:34:56.789',
          '2024-02-29 12:34:56.123456', '2024-02-29 12:00:00+02', '1 year 2 mons -3 days 04:05:06.7',
          'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\": [1, \"x\"]}'),
         (false, 0, 0, 0, 'NaN', '-Infinity', 0, 0, '', '', '', '', '1969-12-31', '00:00',
          '1900-01-01', '2200-12-31 23:59:59.999999+00', '0', '00000000-0000-0000-0000-000000000000',
          'null'),
         (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
          NULL, NULL, NULL, NULL)",
    );
    f
}

#[test]
fn every_type_in_every_format() {
    let directory = tempfile::tempdir().unwrap();
    let mut f = fixture();
    for (name, options) in [
        ("t.csv", ""),
        (
            "h.csv",
            "(HEADER, DELIMITER '|', NULL '\\N', FORCE_QUOTE (x, i))",
        ),
        ("t.tsv", ""),
        ("t.parquet", ""),
        ("t.jsonl", ""),
        ("t", "(FORMAT json)"),
    ] {
        let path = directory.path().join(name).display().to_string();
        f.is(&format!("COPY t TO '{path}' {options}"), "COPY 3");
        let from = options.replace(", FORCE_QUOTE (x, i)", "");
        f.is(&format!("COPY back FROM '{path}' {from}"), "COPY 3");
        // JSON has one null only: a json column that holds the JSON null reads back as NULL.
        let columns = if name == "t.jsonl" || name == "t" {
            "bo, s, i, b, r::text, d::text, n, w, x, v, c, by, y, tm, ts, tz, iv, u"
        } else {
            "*"
        };
        let original = f
            .run(&format!("SELECT {columns} FROM t ORDER BY i"))
            .unwrap();
        let copied = f
            .run(&format!("SELECT {columns} FROM back ORDER BY i"))
            .unwrap();
        assert_eq!(copied, original, "{name}");
        f.script("DELETE FROM back");
    }
}

#[test]
fn csv_is_written_as_postgresql_writes_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    let mut f = Fixture::new(
        "CREATE TABLE t (a int, b text);
         INSERT INTO t VALUES (1, 'plain'), (2, 'a,b'), (3, 'say \"hi\"'), (4, ''), (5, NULL), (6, ' x ')",
    );
    f.is(
        &format!(
            "COPY (SELECT * FROM t ORDER BY a) TO '{}' CSV HEADER",
            path.display()
        ),
        "COPY 6",
    );
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "a,b\n1,plain\n2,\"a,b\"\n3,\"say \"\"hi\"\"\"\n4,\"\"\n5,\n6, x \n"
    );
    f.is(
        &format!("COPY t (b) TO '{}' (NULL 'plain')", path.display()),
        "COPY 6",
    );
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("\"plain\"\n") && text.contains("\nplain\n"),
        "{text}"
    );
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_failing_query_leaves_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.csv");
    std::fs::write(&path, "old").unwrap();
    let mut f = Fixture::new(
        "CREATE TABLE t (a int); INSERT INTO t SELECT * FROM generate_series(0, 20000)",
    );
    let sql = format!(
        "COPY (SELECT 1 / (a - 19999) FROM t) TO '{}'",
        path.display()
    );
    f.fails(&sql, strandline::SqlState::DIVISION_BY_ZERO, "");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    f.is(
        &format!(
            "COPY (SELECT a FROM t WHERE a < 2 ORDER BY a) TO '{}'",
            path.display()
        ),
        "COPY 2",
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n1\n");
}

#[test]
fn links_stay_links_and_devices_are_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let mut f = Fixture::new("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2)");
    let file = directory.path().join("file.csv");
    std::fs::write(&file, "old").unwrap();
    for (name, target) in [
        ("link.csv", file.as_path()),
        ("null.csv", "/dev/null".as_ref()),
    ] {
        let link = directory.path().join(name);
        std::os::unix::fs::symlink(target, &link).unwrap();
        f.is(&format!("COPY t TO '{}'", link.display()), "COPY 2");
        assert!(link.symlink_metadata().unwrap().is_symlink(), "{name}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "1\n2\n");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3);
}
