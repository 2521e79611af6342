//! COPY … FROM: what is loaded, what is refused and how.

use super::Fixture;
use std::path::PathBuf;
use strandline::SqlState;

/// A directory with files for COPY.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file is written");
        path.display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

#[test]
fn csv_with_options() {
    let files = Files::new();
    let mut f = Fixture::new("CREATE TABLE t (a int, b text, c numeric(6,2))");
    let plain = files.write("plain.csv", "1,x,1.5\n2,,\n3,\"\",-2\n");
    f.is(&format!("COPY t FROM '{plain}'"), "COPY 3");
    f.is(
        "SELECT * FROM t ORDER BY a",
        "1|x|1.50 / 2|NULL|NULL / 3||-2.00",
    );
    f.script("DELETE FROM t");
    let odd = files.write("odd.txt", "b;a\n'y;''z';7\nNA;8\n");
    f.is(
        &format!("COPY t (b, a) FROM '{odd}' WITH (HEADER, DELIMITER ';', NULL 'NA', QUOTE '''')"),
        "COPY 2",
    );
    f.is(
        "SELECT a, b, c FROM t ORDER BY a",
        "7|y;'z|NULL / 8|NULL|NULL",
    );
    f.is(
        &format!("COPY t (b, a) FROM '{odd}' DELIMITER ';' CSV HEADER QUOTE ''''"),
        "COPY 2",
    );
    let empty = files.write("empty.csv", "");
    f.is(&format!("COPY t FROM '{empty}'"), "COPY 0");
}

#[test]
fn defaults_identity_and_checks() {
    let files = Files::new();
    let mut f = Fixture::new(
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, a int CHECK (a > 0), d text DEFAULT 'd')",
    );
    let one = files.write("a.csv", "5\n6\n");
    f.is(&format!("COPY t (a) FROM '{one}'"), "COPY 2");
    f.is("SELECT * FROM t ORDER BY id", "1|5|d / 2|6|d");
    let all = files.write("all.csv", "10,1,x\n");
    f.is(&format!("COPY t FROM '{all}'"), "COPY 1");
    let bad = files.write("bad.csv", "7\n0\n8\n");
    f.fails(
        &format!("COPY t (a) FROM '{bad}'"),
        SqlState::CHECK_VIOLATION,
        "Failing row contains",
    );
    f.is("SELECT count(*) FROM t", "3");
}

#[test]
fn bad_csv_loads_nothing_and_says_where() {
    let files = Files::new();
    let mut f = Fixture::new("CREATE TABLE t (a int, b text)");
    let format = SqlState::BAD_COPY_FILE_FORMAT;
    for (content, state, text) in [
        (
            b"1,x\n2\n".as_slice(),
            format,
            "bad.csv, line 2: missing data for column \"b\"",
        ),
        (
            b"1,x\n2,y,z\n",
            format,
            "bad.csv, line 2: extra data after last expected column",
        ),
        (
            b"1,x\nq,y\n",
            SqlState::INVALID_TEXT_REPRESENTATION,
            "bad.csv, line 2, column a",
        ),
        (b"1,\"x\n2,y\n", format, "bad.csv, line 1: unterminated"),
        (
            b"1,x\n2,\xff\xfe\n",
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            "bad.csv, line 2",
        ),
        (
            b"99999999999,x\n",
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            "line 1, column a",
        ),
    ] {
        let path = files.write("bad.csv", content);
        f.fails(&format!("COPY t FROM '{path}'"), state, text);
        f.is("SELECT count(*) FROM t", "0");
    }
    let mut large: String = (0..200_000)
        .map(|i| format!("{i},some text {i}\n"))
        .collect();
    large += "oops,x\n";
    let path = files.write("large.csv", large);
    f.fails(
        &format!("COPY t FROM '{path}'"),
        SqlState::INVALID_TEXT_REPRESENTATION,
        "large.csv, line 200001, column a",
    );
    f.is("SELECT count(*) FROM t", "0");
}

#[test]
fn bad_files() {
    let files = Files::new();
    let mut f = Fixture::new("CREATE TABLE t (a int)");
    let missing = files.path("missing.csv").display().to_string();
    f.fails(
        &format!("COPY t FROM '{missing}'"),
        SqlState::UNDEFINED_FILE,
        "missing.csv",
    );
    std::fs::create_dir(files.path("d.csv")).unwrap();
    let directory = files.path("d.csv").display().to_string();
    f.fails(
        &format!("COPY t FROM '{directory}'"),
        SqlState::WRONG_OBJECT_TYPE,
        "is a directory",
    );
    f.fails(
        &format!("COPY t TO '{directory}'"),
        SqlState::WRONG_OBJECT_TYPE,
        "is a directory",
    );
    let nowhere = files.path("no/such/dir.csv").display().to_string();
    f.fails(
        &format!("COPY t TO '{nowhere}'"),
        SqlState::UNDEFINED_FILE,
        "dir.csv",
    );
    let unknown = files.write("t.xyz", "1\n");
    f.fails(
        &format!("COPY t FROM '{unknown}'"),
        SqlState::INVALID_PARAMETER_VALUE,
        "FORMAT",
    );
    let fake = files.write("fake.parquet", "PAR1 but not really");
    f.fails(
        &format!("COPY t FROM '{fake}'"),
        SqlState::BAD_COPY_FILE_FORMAT,
        "fake.parquet",
    );
    f.script("INSERT INTO t SELECT * FROM generate_series(1, 5000)");
    let whole = files.path("w.parquet").display().to_string();
    f.is(&format!("COPY t TO '{whole}'"), "COPY 5000");
    let bytes = std::fs::read(files.path("w.parquet")).unwrap();
    let cut = files.write("cut.parquet", &bytes[..bytes.len() - 100]);
    f.fails(
        &format!("COPY t FROM '{cut}'"),
        SqlState::BAD_COPY_FILE_FORMAT,
        "cut.parquet",
    );
    f.is("SELECT count(*) FROM t", "5000");
    f.fails(
        &format!("COPY missing FROM '{whole}'"),
        SqlState::UNDEFINED_TABLE,
        "missing",
    );
    f.fails("COPY t FROM STDIN", SqlState::FEATURE_NOT_SUPPORTED, "file");
    f.fails(
        "COPY t FROM PROGRAM 'ls'",
        SqlState::FEATURE_NOT_SUPPORTED,
        "PROGRAM",
    );
}

#[test]
fn json_lines() {
    let files = Files::new();
    let mut f = Fixture::new("CREATE TABLE t (a bigint, b text, j json)");
    let path = files.write(
        "t.jsonl",
        "{\"b\": \"x\\ny\", \"a\": 9007199254740993}\n{\"a\": null, \"j\": {\"k\": [1, 2]}}\n\n{\"b\": \"\"}\n",
    );
    f.is(&format!("COPY t FROM '{path}'"), "COPY 3");
    f.is(
        "SELECT a, b, j FROM t WHERE a IS NOT NULL",
        "9007199254740993|x\ny|NULL",
    );
    f.is("SELECT j FROM t WHERE j IS NOT NULL", "{\"k\": [1, 2]}");
    let unknown = files.write("u.json", "{\"a\": 1}\n{\"zz\": 2}\n");
    f.fails(
        &format!("COPY t FROM '{unknown}'"),
        SqlState::UNDEFINED_COLUMN,
        "line 2",
    );
    let bad = files.write("b.json", "{\"a\": 1}\n{\"a\": \n");
    f.fails(
        &format!("COPY t FROM '{bad}'"),
        SqlState::BAD_COPY_FILE_FORMAT,
        "line 2",
    );
    f.is("SELECT count(*) FROM t", "3");
}

#[test]
fn parquet_by_name_and_by_position() {
    let files = Files::new();
    let mut f = Fixture::new(
        "CREATE TABLE s (b text, a int, n numeric(10,2)); INSERT INTO s VALUES ('x', 1, 2.5);
         CREATE TABLE named (a bigint, b varchar(5), n double precision);
         CREATE TABLE placed (p text, q smallint, r numeric(4,1));
         CREATE TABLE other (p date, q int, r int); CREATE TABLE two (a int, z int)",
    );
    let path = files.path("s.parquet").display().to_string();
    f.is(&format!("COPY s TO '{path}'"), "COPY 1");
    f.is(&format!("COPY named FROM '{path}'"), "COPY 1");
    f.is("SELECT * FROM named", "1|x|2.5");
    f.is(&format!("COPY placed FROM '{path}'"), "COPY 1");
    f.is("SELECT * FROM placed", "x|1|2.5");
    f.is(&format!("COPY named (n) FROM '{path}'"), "COPY 1");
    f.fails(
        &format!("COPY other FROM '{path}'"),
        SqlState::INVALID_DATETIME_FORMAT,
        "column p",
    );
    f.fails(
        &format!("COPY two FROM '{path}'"),
        SqlState::BAD_COPY_FILE_FORMAT,
        "3 columns",
    );
    f.fails(
        &format!("COPY other (p) FROM '{path}'"),
        SqlState::BAD_COPY_FILE_FORMAT,
        "3 columns",
    );
}

#[test]
fn a_load_is_one_statement_of_its_transaction() {
    let files = Files::new();
    let mut f = Fixture::new("CREATE TABLE t (a int PRIMARY KEY)");
    let many: String = (0..100_000).map(|i| format!("{i}\n")).collect();
    let path = files.write("many.csv", many);
    f.script("BEGIN");
    f.is(&format!("COPY t FROM '{path}'"), "COPY 100000");
    f.is("SELECT count(*), sum(a) FROM t", "100000|4999950000");
    f.script("ROLLBACK");
    f.is("SELECT count(*) FROM t", "0");
    f.is(&format!("COPY t FROM '{path}'"), "COPY 100000");
    f.fails(
        &format!("COPY t FROM '{path}'"),
        SqlState::UNIQUE_VIOLATION,
        "t_pkey",
    );
    f.is("SELECT count(*), max(a) FROM t", "100000|99999");
}

/// `\.` ends the data, not the block that it is read in.
#[test]
fn an_end_marker_ends_a_text_file() {
    let files = Files::new();
    let mut f = Fixture::new("CREATE TABLE t (a int, b text)");
    for rest in [
        String::new(),
        "2\ty\n".repeat(600_000),
        "rubbish\n".repeat(400_000),
    ] {
        let path = files.write("data.txt", format!("1\tx\n\\.\n{rest}"));
        f.is(&format!("COPY t FROM '{path}' (FORMAT text)"), "COPY 1");
        // The marker is in the second block.
        let many = "2\tsome text\n".repeat(200_000);
        let path = files.write("many.txt", format!("{many}\\.\r\n{rest}"));
        f.is(
            &format!("COPY t FROM '{path}' (FORMAT text)"),
            "COPY 200000",
        );
    }
    // Behind a backslash a line end is data, and so is what follows it.
    let path = files.write("escaped.txt", "1\tx\\\n\\.\n2\ty\n");
    f.is(&format!("COPY t FROM '{path}' (FORMAT text)"), "COPY 2");
}
