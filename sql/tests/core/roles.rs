//! Users, their privileges, and what a statement needs of them.

use super::{database, fails, rows, run};
use std::sync::Arc;
use strandline::{Connection, Database, RandomSource, Settings, SqlState, Value};
use strandline_device::{Device, MemoryDevice};

const DENIED: SqlState = SqlState("42501");

fn as_user(database: &Database, user: &str) -> Connection {
    database.connect_as(user).expect("connects")
}

/// A database with tables t (granted on by the tests) and u, a view v over u, and the user ann.
fn with_ann() -> (Database, Connection, Connection) {
    let database = database();
    let mut admin = database.connect();
    run(
        &mut admin,
        &[
            "CREATE TABLE t (a int PRIMARY KEY, b int)",
            "CREATE TABLE u (a int PRIMARY KEY)",
            "CREATE VIEW v AS SELECT a FROM u",
            "INSERT INTO t VALUES (1, 1), (2, 2)",
            "INSERT INTO u VALUES (7)",
            "CREATE USER ann PASSWORD 'x'",
        ],
    );
    let ann = as_user(&database, "ann");
    (database, admin, ann)
}

/// Each privilege with a statement that needs just it.
const NEEDS: &[(&str, &str)] = &[
    ("SELECT", "SELECT * FROM t"),
    ("INSERT", "INSERT INTO t VALUES (3, 3)"),
    ("UPDATE", "UPDATE t SET b = 5"),
    ("DELETE", "DELETE FROM t"),
    ("TRUNCATE", "TRUNCATE t"),
];

#[test]
fn each_privilege_allows_its_statement_and_no_other() {
    for (privilege, _) in NEEDS {
        let (_database, mut admin, mut ann) = with_ann();
        run(&mut admin, &[&format!("GRANT {privilege} ON t TO ann")]);
        for (needed, sql) in NEEDS {
            run(&mut ann, &["BEGIN"]);
            match needed == privilege {
                true => run(&mut ann, &[sql]),
                false => {
                    let message = fails(&mut ann, sql, DENIED);
                    assert_eq!(message, "permission denied for table t", "{sql}");
                }
            }
            run(&mut ann, &["ROLLBACK"]);
        }
        run(&mut admin, &[&format!("REVOKE {privilege} ON t FROM ann")]);
        for (_, sql) in NEEDS {
            fails(&mut ann, sql, DENIED);
        }
    }
}

/// A WITH before it or an EXPLAIN around it makes a statement no other.
#[test]
fn a_change_within_another_statement_needs_its_privilege() {
    let (_database, mut admin, mut ann) = with_ann();
    run(&mut admin, &["GRANT SELECT ON t TO ann"]);
    for (privilege, sql) in &NEEDS[1..4] {
        let forms = [
            format!("WITH w AS (SELECT 1) {sql}"),
            format!("EXPLAIN ANALYZE {sql}"),
            format!("EXPLAIN {sql}"),
        ];
        for form in &forms {
            fails(&mut ann, form, DENIED);
        }
        assert_eq!(rows(&mut admin, "SELECT b FROM t"), ["1", "2"]);
        run(&mut admin, &[&format!("GRANT {privilege} ON t TO ann")]);
        for form in &forms {
            run(&mut ann, &["BEGIN", form, "ROLLBACK"]);
        }
    }
}

#[test]
fn statements_that_read_their_target_need_to_read_it() {
    let (_database, mut admin, mut ann) = with_ann();
    run(&mut admin, &["GRANT INSERT, UPDATE, DELETE ON t TO ann"]);
    let reading = [
        "UPDATE t SET b = b + 1",
        "UPDATE t SET b = 1 WHERE a = 1",
        "DELETE FROM t WHERE a = 1",
        "DELETE FROM t RETURNING a",
        "INSERT INTO t VALUES (9, 9) RETURNING a",
        "INSERT INTO t VALUES (1, 1) ON CONFLICT (a) DO UPDATE SET b = 2",
        "INSERT INTO t VALUES (1, 1) ON CONFLICT (a) DO NOTHING",
        "MERGE INTO t USING (VALUES (1)) s(x) ON t.a = s.x WHEN MATCHED THEN DELETE",
        "SELECT * FROM t FOR UPDATE",
        "COPY t TO '/tmp/never-written.csv'",
        "EXPLAIN SELECT * FROM t",
        "CREATE TABLE mine AS SELECT * FROM t",
        "SELECT * FROM t FOR SYSTEM_TIME AS OF now()",
        "SELECT * FROM strandline_history('t', 1)",
        "SELECT (SELECT max(a) FROM t)",
        "WITH w AS (SELECT * FROM t) SELECT * FROM w",
        "INSERT INTO t SELECT a + 10, b FROM t",
    ];
    for sql in reading {
        fails(&mut ann, sql, DENIED);
    }
    let blind = "INSERT INTO t VALUES (1, 1) ON CONFLICT DO NOTHING";
    run(&mut ann, &["BEGIN", blind, "ROLLBACK"]);
    run(
        &mut admin,
        &[
            "GRANT SELECT ON t TO ann",
            "GRANT CREATE ON SCHEMA public TO ann",
        ],
    );
    for sql in reading.iter().filter(|sql| !sql.starts_with("COPY")) {
        run(&mut ann, &["BEGIN", sql, "ROLLBACK"]);
    }
}

#[test]
fn locking_rows_needs_the_right_to_change_them() {
    let (_database, mut admin, mut ann) = with_ann();
    run(&mut admin, &["GRANT SELECT ON t TO ann"]);
    run(&mut ann, &["SELECT * FROM t"]);
    fails(&mut ann, "SELECT * FROM t FOR SHARE", DENIED);
    run(&mut admin, &["GRANT UPDATE ON t TO ann"]);
    run(&mut ann, &["SELECT * FROM t FOR SHARE"]);
}

#[test]
fn a_view_is_read_as_its_owner() {
    let (_database, mut admin, mut ann) = with_ann();
    let message = fails(&mut ann, "SELECT * FROM v", DENIED);
    assert_eq!(message, "permission denied for view v");
    run(&mut admin, &["GRANT SELECT ON v TO ann"]);
    assert_eq!(rows(&mut ann, "SELECT * FROM v"), ["7"]);
    fails(&mut ann, "SELECT * FROM u", DENIED);
    // A view of one's own gives no more than one has.
    run(&mut admin, &["GRANT CREATE ON SCHEMA public TO ann"]);
    fails(&mut ann, "CREATE VIEW w AS SELECT * FROM u", DENIED);
    run(&mut admin, &["GRANT SELECT ON u TO ann"]);
    run(&mut ann, &["CREATE VIEW w AS SELECT * FROM u"]);
    run(
        &mut admin,
        &["REVOKE ALL ON u FROM ann", "GRANT SELECT ON w TO PUBLIC"],
    );
    run(&mut admin, &["CREATE USER bob", "GRANT SELECT ON u TO bob"]);
    fails(&mut ann, "SELECT * FROM w", DENIED);
}

/// CREATEROLE gives no way into the superusers: neither directly nor through a group of theirs.
#[test]
fn only_superusers_let_roles_into_superusers() {
    let (database, mut admin, mut ann) = with_ann();
    run(
        &mut admin,
        &[
            "CREATE ROLE admins SUPERUSER",
            "CREATE ROLE operators IN ROLE admins",
            "CREATE ROLE readers",
            "ALTER ROLE ann CREATEROLE",
        ],
    );
    for sql in [
        "CREATE USER evil IN ROLE admins",
        "CREATE USER evil IN GROUP admins",
        "CREATE USER evil IN ROLE readers, operators",
        "GRANT admins TO ann",
        "GRANT operators TO ann",
        "REVOKE admins FROM operators",
    ] {
        let message = fails(&mut ann, sql, DENIED);
        assert_eq!(message, "must be superuser to alter superusers", "{sql}");
    }
    assert!(database.connect_as("evil").is_err());
    run(&mut ann, &["CREATE USER bob IN ROLE readers"]);
    let mut bob = as_user(&database, "bob");
    run(&mut bob, &["SET ROLE readers", "SET ROLE NONE"]);
    let message = fails(&mut bob, "GRANT readers TO bob", DENIED);
    assert_eq!(message, "must have admin option on role \"readers\"");
    run(&mut admin, &["CREATE USER carl IN ROLE operators"]);
    // With a new password of his, ann could log in as carl.
    fails(&mut ann, "ALTER USER carl PASSWORD 'mine'", DENIED);
    let mut carl = as_user(&database, "carl");
    run(
        &mut carl,
        &["ALTER USER carl PASSWORD 'his'", "SET ROLE admins"],
    );
}

/// The system looks at rows to keep constraints; the user needs no right to read them.
#[test]
fn constraints_are_kept_without_the_right_to_read() {
    let (_database, mut admin, mut ann) = with_ann();
    run(
        &mut admin,
        &[
            "CREATE TABLE c (a int PRIMARY KEY, b int CHECK (b > 0), CHECK (a < b))",
            "GRANT INSERT, UPDATE ON c TO ann",
            "GRANT CREATE ON SCHEMA public TO ann",
            "GRANT REFERENCES ON u TO ann",
        ],
    );
    run(
        &mut ann,
        &["INSERT INTO c VALUES (1, 2), (2, 3)", "UPDATE c SET b = 9"],
    );
    fails(
        &mut ann,
        "INSERT INTO c VALUES (3, 1)",
        SqlState::CHECK_VIOLATION,
    );
    fails(&mut ann, "UPDATE c SET b = 1", SqlState::CHECK_VIOLATION);
    fails(&mut ann, "SELECT * FROM c", DENIED);
    fails(
        &mut ann,
        "INSERT INTO c SELECT a + 10, b + 20 FROM c",
        DENIED,
    );
    run(
        &mut ann,
        &[
            "CREATE TABLE mine (a int)",
            "INSERT INTO mine VALUES (7)",
            "ALTER TABLE mine ADD FOREIGN KEY (a) REFERENCES u",
        ],
    );
    fails(
        &mut ann,
        "INSERT INTO mine VALUES (8)",
        SqlState::FOREIGN_KEY_VIOLATION,
    );
    run(&mut ann, &["ALTER TABLE mine ADD CHECK (a > 0)"]);
    fails(&mut ann, "SELECT * FROM u", DENIED);
}

/// A subquery reads its tables whether it names a column or not.
#[test]
fn a_subquery_in_set_needs_the_right_to_read() {
    let (_database, mut admin, mut ann) = with_ann();
    run(&mut admin, &["GRANT UPDATE ON t TO ann"]);
    for condition in [
        "EXISTS (SELECT 1 FROM t)",
        "NOT EXISTS (SELECT FROM t)",
        "1 IN (SELECT 1 FROM t)",
        "1 = ANY (SELECT 1 FROM t)",
        "(SELECT count(*) FROM t) > 0",
    ] {
        let sql = format!("UPDATE t SET b = CASE WHEN {condition} THEN 1 ELSE 0 END");
        fails(&mut ann, &sql, DENIED);
    }
    run(&mut ann, &["UPDATE t SET b = 1 + 1"]);
}

#[test]
fn locking_rows_of_a_view_needs_the_right_to_change_it_and_its_owners() {
    let (database, mut admin, mut ann) = with_ann();
    run(
        &mut admin,
        &[
            "CREATE USER bob",
            "GRANT CREATE ON SCHEMA public TO bob",
            "GRANT SELECT ON u TO bob",
            "GRANT SELECT ON v TO ann",
        ],
    );
    let mut bob = as_user(&database, "bob");
    run(
        &mut bob,
        &[
            "CREATE VIEW w AS SELECT a FROM u",
            "GRANT SELECT, UPDATE ON w TO ann",
        ],
    );
    for clause in ["FOR UPDATE", "FOR SHARE"] {
        let message = fails(&mut ann, &format!("SELECT * FROM v {clause}"), DENIED);
        assert_eq!(message, "permission denied for view v");
        let derived = format!("SELECT * FROM (SELECT a FROM v) d {clause}");
        fails(&mut ann, &derived, DENIED);
        let message = fails(&mut ann, &format!("SELECT * FROM w {clause}"), DENIED);
        assert!(
            message.ends_with("permission denied for table u"),
            "{message}"
        );
    }
    run(
        &mut admin,
        &["GRANT UPDATE ON v TO ann", "GRANT UPDATE ON u TO bob"],
    );
    assert_eq!(rows(&mut ann, "SELECT * FROM v FOR UPDATE"), ["7"]);
    assert_eq!(rows(&mut ann, "SELECT * FROM w FOR SHARE"), ["7"]);
}

#[test]
fn a_lock_of_one_table_needs_no_right_to_change_the_others() {
    let (_database, mut admin, mut ann) = with_ann();
    run(
        &mut admin,
        &[
            "GRANT SELECT, UPDATE ON t TO ann",
            "GRANT SELECT ON u TO ann",
        ],
    );
    for sql in [
        "SELECT t.a FROM t JOIN u ON true FOR UPDATE OF t",
        "SELECT x.a FROM t x, u FOR UPDATE OF x",
        "SELECT a FROM t WHERE a IN (SELECT 1 FROM u) FOR UPDATE",
        "WITH w AS (SELECT * FROM u) SELECT t.a FROM t, w FOR UPDATE",
        "SELECT * FROM u, (SELECT a FROM t FOR UPDATE) d",
    ] {
        run(&mut ann, &[sql]);
    }
    for sql in [
        "SELECT t.a FROM t JOIN u ON true FOR UPDATE OF u",
        "SELECT t.a FROM t JOIN u ON true FOR UPDATE",
        "SELECT t.a FROM t, (SELECT * FROM u) d FOR UPDATE OF d",
        "SELECT t.a FROM t, (WITH w AS (SELECT * FROM u) SELECT * FROM w) d FOR UPDATE OF d",
    ] {
        let message = fails(&mut ann, sql, DENIED);
        assert_eq!(message, "permission denied for table u", "{sql}");
    }
}

/// A view's tables are read with its owner's rights, by a superuser too.
#[test]
fn a_superuser_reads_a_view_as_its_owner() {
    let (_database, mut admin, mut ann) = with_ann();
    run(
        &mut admin,
        &[
            "GRANT CREATE ON SCHEMA public TO ann",
            "GRANT SELECT ON u TO ann",
        ],
    );
    run(&mut ann, &["CREATE VIEW w AS SELECT a FROM u"]);
    assert_eq!(rows(&mut admin, "SELECT * FROM w"), ["7"]);
    run(&mut admin, &["REVOKE ALL ON u FROM ann"]);
    let message = fails(&mut admin, "SELECT * FROM w", DENIED);
    assert!(
        message.ends_with("permission denied for table u"),
        "{message}"
    );
    // The catalogs list its columns all the same.
    let columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'w'";
    assert_eq!(rows(&mut admin, columns), ["a"]);
}

#[test]
fn vacuum_is_for_owners() {
    let (_database, mut admin, mut ann) = with_ann();
    run(&mut admin, &["GRANT CREATE ON SCHEMA public TO ann"]);
    run(&mut ann, &["CREATE TABLE mine (a int)"]);
    ann.take_notices();
    let mut told = |sql: &str| {
        run(&mut ann, &[sql]);
        let notices = ann.take_notices();
        notices
            .iter()
            .map(|n| n.message().to_string())
            .collect::<Vec<_>>()
    };
    for sql in ["VACUUM t", "VACUUM FULL t", "VACUUM v"] {
        let name = &sql[sql.len() - 1..];
        let skipped = format!("skipping \"{name}\" --- only table or database owner can vacuum it");
        assert_eq!(told(sql), [skipped], "{sql}");
    }
    let skipped = "skipping \"t\" --- only table or database owner can analyze it";
    assert_eq!(told("ANALYZE t"), [skipped]);
    let skipped = "skipping the database --- only a superuser can vacuum it";
    assert_eq!(told("VACUUM"), [skipped]);
    assert_eq!(told("VACUUM FULL"), [skipped]);
    assert!(told("VACUUM FULL mine").is_empty());
    assert!(told("ANALYZE mine").is_empty());
    run(&mut admin, &["VACUUM", "VACUUM FULL t"]);
    assert!(admin.take_notices().is_empty());
}

#[test]
fn definitions_belong_to_their_owner() {
    let (database, mut admin, mut ann) = with_ann();
    let message = fails(&mut ann, "CREATE TABLE mine (a int)", DENIED);
    assert_eq!(message, "permission denied for schema public");
    fails(&mut ann, "CREATE SCHEMA s", DENIED);
    let message = fails(&mut ann, "DROP TABLE t", DENIED);
    assert_eq!(message, "must be owner of table t");
    for sql in [
        "ALTER TABLE t ADD COLUMN c int",
        "COMMENT ON TABLE t IS 'x'",
        "DROP VIEW v",
    ] {
        fails(&mut ann, sql, DENIED);
    }
    run(
        &mut admin,
        &["GRANT CREATE ON SCHEMA public TO ann", "CREATE USER bob"],
    );
    run(
        &mut ann,
        &["CREATE TABLE mine (a int)", "INSERT INTO mine VALUES (1)"],
    );
    let owner = "SELECT tableowner FROM pg_tables WHERE tablename = 'mine'";
    assert_eq!(rows(&mut ann, owner), ["ann"]);
    let mut bob = as_user(&database, "bob");
    fails(&mut bob, "SELECT * FROM mine", DENIED);
    run(&mut ann, &["GRANT SELECT ON mine TO bob WITH GRANT OPTION"]);
    assert_eq!(rows(&mut bob, "SELECT * FROM mine"), ["1"]);
    run(&mut bob, &["GRANT SELECT ON mine TO ann"]);
    fails(&mut bob, "GRANT DELETE ON mine TO ann", DENIED);
    let message = fails(&mut bob, "ALTER TABLE mine OWNER TO bob", DENIED);
    assert_eq!(message, "must be owner of table mine");
    let message = fails(&mut ann, "ALTER TABLE mine OWNER TO bob", DENIED);
    assert_eq!(message, "permission denied for table mine");
    run(&mut admin, &["ALTER TABLE mine OWNER TO bob"]);
    fails(&mut ann, "DROP TABLE mine", DENIED);
    run(&mut bob, &["DROP TABLE mine"]);
    // A table of the same name is another one.
    run(&mut admin, &["CREATE TABLE mine (a int)"]);
    fails(&mut ann, "SELECT * FROM mine", DENIED);
}

#[test]
fn schemas_are_entered_with_usage() {
    let (_database, mut admin, mut ann) = with_ann();
    run(
        &mut admin,
        &[
            "CREATE SCHEMA s",
            "CREATE TABLE s.t (a int)",
            "GRANT SELECT ON ALL TABLES IN SCHEMA s TO ann",
        ],
    );
    let message = fails(&mut ann, "SELECT * FROM s.t", DENIED);
    assert_eq!(message, "permission denied for schema s");
    run(&mut admin, &["GRANT USAGE ON SCHEMA s TO ann"]);
    run(&mut ann, &["SELECT * FROM s.t"]);
    run(
        &mut admin,
        &[
            "GRANT SELECT ON t TO ann",
            "REVOKE USAGE ON SCHEMA public FROM PUBLIC",
        ],
    );
    fails(&mut ann, "SELECT * FROM t", DENIED);
    // A schema of the same name is another one.
    run(
        &mut admin,
        &[
            "DROP SCHEMA s CASCADE",
            "CREATE SCHEMA s",
            "CREATE TABLE s.t (a int)",
        ],
    );
    fails(&mut ann, "SELECT * FROM s.t", DENIED);
}

#[test]
fn members_have_the_privileges_of_their_groups() {
    let (_database, mut admin, mut ann) = with_ann();
    run(
        &mut admin,
        &[
            "CREATE ROLE readers",
            "GRANT SELECT ON t TO readers",
            "GRANT readers TO ann",
        ],
    );
    run(&mut ann, &["SELECT * FROM t"]);
    let message = fails(&mut admin, "GRANT ann TO readers", SqlState("0LP01"));
    assert_eq!(message, "role \"ann\" is a member of role \"readers\"");
    run(&mut admin, &["ALTER ROLE ann NOINHERIT"]);
    fails(&mut ann, "SELECT * FROM t", DENIED);
    run(&mut ann, &["SET ROLE readers", "SELECT * FROM t"]);
    assert_eq!(
        rows(&mut ann, "SELECT current_user, session_user"),
        ["readers|ann"]
    );
    run(&mut ann, &["SET ROLE NONE"]);
    run(&mut admin, &["CREATE ROLE others"]);
    fails(&mut ann, "SET ROLE others", DENIED);
    run(
        &mut admin,
        &["ALTER ROLE ann INHERIT", "REVOKE readers FROM ann"],
    );
    fails(&mut ann, "SELECT * FROM t", DENIED);
}

#[test]
fn roles_are_managed_by_those_who_may() {
    let (_database, mut admin, mut ann) = with_ann();
    for sql in ["CREATE ROLE r", "DROP ROLE ann", "ALTER ROLE ann SUPERUSER"] {
        fails(&mut ann, sql, DENIED);
    }
    run(&mut ann, &["ALTER USER ann PASSWORD 'mine'"]);
    run(&mut admin, &["ALTER ROLE ann CREATEROLE"]);
    run(&mut ann, &["CREATE USER bob PASSWORD 'y'", "DROP USER bob"]);
    fails(&mut ann, "CREATE ROLE r SUPERUSER", DENIED);
    fails(&mut admin, "CREATE ROLE ann", SqlState::DUPLICATE_OBJECT);
    fails(&mut admin, "DROP ROLE nobody", SqlState::UNDEFINED_OBJECT);
    fails(
        &mut admin,
        "GRANT SELECT ON t TO nobody",
        SqlState::UNDEFINED_OBJECT,
    );
    fails(&mut admin, "GRANT USAGE ON t TO ann", SqlState("0LP01"));
    run(
        &mut admin,
        &["DROP ROLE IF EXISTS nobody", "GRANT SELECT ON t TO ann"],
    );
    let depends = SqlState::DEPENDENT_OBJECTS_STILL_EXIST;
    let message = fails(&mut admin, "DROP ROLE ann", depends);
    assert!(message.contains("some objects depend on it"), "{message}");
    run(&mut admin, &["REVOKE ALL ON t FROM ann", "DROP ROLE ann"]);
    fails(&mut ann, "SELECT * FROM t", DENIED);
}

#[test]
fn changes_of_roles_are_transactional() {
    let (database, mut admin, mut ann) = with_ann();
    run(
        &mut admin,
        &["BEGIN", "GRANT SELECT ON t TO ann", "CREATE USER bob"],
    );
    fails(&mut ann, "SELECT * FROM t", DENIED);
    assert!(database.connect_as("bob").is_err());
    run(&mut admin, &["ROLLBACK"]);
    fails(&mut ann, "SELECT * FROM t", DENIED);
    assert!(database.connect_as("bob").is_err());
}

#[test]
fn the_server_s_files_are_the_superusers_() {
    let (_database, mut admin, mut ann) = with_ann();
    run(&mut admin, &["GRANT ALL ON t TO ann"]);
    for sql in [
        "COPY t FROM '/etc/passwd'",
        "COPY t TO '/tmp/x.csv'",
        "SELECT * FROM '/tmp/x.csv'",
    ] {
        fails(&mut ann, sql, DENIED);
    }
}

#[test]
fn point_operations_are_checked_when_a_table_is_named() {
    let (_database, mut admin, mut ann) = with_ann();
    assert_eq!(ann.table("t").err().map(|e| e.sqlstate()), Some(DENIED));
    run(&mut admin, &["GRANT ALL ON t TO ann"]);
    let table = ann.table("t").expect("granted");
    let b = table.column("b").expect("a column");
    let mut transaction = ann.transaction().expect("begins");
    let row = transaction
        .get(&table, &[Value::Integer(1)], &[b])
        .expect("reads");
    assert_eq!(row, Some(vec![Value::Integer(1)]));
}

#[test]
fn who_may_connect() {
    let database = database();
    assert!(!database.has_users());
    database
        .bootstrap_superuser("admin", "geheim")
        .expect("created");
    assert!(database.bootstrap_superuser("other", "x").is_err());
    let mut admin = as_user(&database, "admin");
    assert_eq!(rows(&mut admin, "SELECT current_user"), ["admin"]);
    run(
        &mut admin,
        &[
            "CREATE ROLE grouped",
            "CREATE USER ann PASSWORD 'x' CONNECTION LIMIT 1",
            "CREATE USER late PASSWORD 'x' VALID UNTIL '2000-01-01'",
            "CREATE USER open",
        ],
    );
    let state = |user: &str| database.connect_as(user).err().map(|e| e.sqlstate().0);
    assert_eq!(state("nobody"), Some("28000"));
    assert_eq!(state("grouped"), Some("28000"));
    let first = as_user(&database, "ann");
    assert_eq!(state("ann"), Some("53300"));
    drop(first);
    assert_eq!(state("ann"), None);
    let verifier = database.scram_verifier("ann").expect("a password");
    assert!(verifier.accepts("x").expect("checked") && !verifier.accepts("y").expect("checked"));
    for user in ["nobody", "grouped", "late", "open"] {
        assert!(database.scram_verifier(user).is_none(), "{user}");
    }
    run(&mut admin, &["ALTER USER ann PASSWORD 'y'"]);
    let changed = database.scram_verifier("ann").expect("a password");
    assert!(changed.accepts("y").expect("checked"));
    fails(&mut admin, "DROP ROLE admin", SqlState::OBJECT_IN_USE);
}

#[derive(Debug)]
struct Zeros;

impl RandomSource for Zeros {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

/// The bytes of a device's file.
fn bytes_of(device: &MemoryDevice, name: &str) -> Vec<u8> {
    let file = device.open(name).expect("opens");
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("reads");
    bytes
}

/// A device with the same files.
fn copy_of(device: &MemoryDevice) -> MemoryDevice {
    let copy = MemoryDevice::new();
    for name in device.list().expect("lists") {
        let file = copy.create(&name).expect("creates");
        file.write_all_at(&bytes_of(device, &name), 0)
            .expect("writes");
    }
    copy
}

/// Whether some file has `text` in it.
fn contains(device: &MemoryDevice, text: &[u8]) -> bool {
    let names = device.list().expect("lists");
    let found = |name: &String| {
        bytes_of(device, name)
            .windows(text.len())
            .any(|w| w == text)
    };
    names.iter().any(found)
}

#[test]
fn roles_survive_a_crash_and_passwords_are_never_written() {
    let device = Arc::new(MemoryDevice::new());
    let open = |device: Arc<MemoryDevice>| {
        let settings = Settings {
            background_maintenance: false,
            ..Settings::default()
        };
        Database::on_device(device)
            .settings(settings)
            .random(Arc::new(Zeros))
            .build()
            .expect("opens")
    };
    let database = open(device.clone());
    database
        .bootstrap_superuser("admin", "geheim-1")
        .expect("created");
    let mut admin = as_user(&database, "admin");
    run(
        &mut admin,
        &[
            "CREATE TABLE t (a int)",
            "CREATE USER ann PASSWORD 'geheim-2'",
            "GRANT SELECT ON t TO ann",
        ],
    );
    database.checkpoint().expect("checkpoint");
    run(
        &mut admin,
        &[
            "CREATE USER bob PASSWORD 'geheim-3'",
            "GRANT INSERT ON t TO bob",
        ],
    );
    let verifier = database
        .scram_verifier("bob")
        .expect("a password")
        .to_text();
    // Nothing is closed before: the process might have been killed here.
    let crashed = Arc::new(copy_of(&device));
    assert!(
        !contains(&crashed, b"geheim"),
        "a password is on the device"
    );
    assert!(
        contains(&crashed, verifier.as_bytes()),
        "the verifier is in the log"
    );
    let again = open(crashed);
    assert_eq!(
        again.scram_verifier("bob").map(|v| v.to_text()),
        Some(verifier)
    );
    run(&mut as_user(&again, "ann"), &["SELECT * FROM t"]);
    fails(
        &mut as_user(&again, "ann"),
        "INSERT INTO t VALUES (1)",
        DENIED,
    );
    run(&mut as_user(&again, "bob"), &["INSERT INTO t VALUES (1)"]);
    assert_eq!(
        rows(&mut as_user(&again, "admin"), "SELECT count(*) FROM t"),
        ["1"]
    );
}

#[test]
fn backups_are_written_by_superusers_only() {
    let (_database, mut admin, mut ann) = with_ann();
    let home = tempfile::tempdir().expect("directory");
    let target = home.path().join("copy");
    let call = format!("CALL strandline_backup('{}')", target.display());
    fails(&mut ann, &call, DENIED);
    assert!(!target.exists());
    run(&mut admin, &[&call]);
    assert!(target.join("superblock").exists());
}
