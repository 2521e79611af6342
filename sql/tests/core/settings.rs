//! SET, SHOW, RESET and information_schema.

use super::{database, fails, rows, run};
use strandline::SqlState;

#[test]
fn settings_change_show_and_reset() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "SET lock_timeout = '2s'",
            "SET statement_timeout TO 1500",
            "SET synchronous_commit = off",
        ],
    );
    assert_eq!(rows(&mut c, "SHOW lock_timeout"), ["2s"]);
    assert_eq!(rows(&mut c, "SHOW statement_timeout"), ["1500ms"]);
    assert_eq!(rows(&mut c, "SHOW synchronous_commit"), ["off"]);
    assert_eq!(
        rows(&mut database.connect(), "SHOW synchronous_commit"),
        ["on"]
    );
    run(
        &mut c,
        &[
            "RESET lock_timeout",
            "SET statement_timeout = DEFAULT",
            "SET TIME ZONE 'UTC'",
        ],
    );
    assert_eq!(rows(&mut c, "SHOW lock_timeout"), ["0"]);
    run(&mut c, &["RESET ALL"]);
    assert_eq!(rows(&mut c, "SHOW synchronous_commit"), ["on"]);
    assert_eq!(
        rows(&mut c, "SHOW TRANSACTION ISOLATION LEVEL"),
        ["read committed"]
    );
    assert!(rows(&mut c, "SHOW ALL").len() > 10);
    fails(&mut c, "SET nonsense = 1", SqlState::UNDEFINED_OBJECT);
    fails(&mut c, "SHOW nonsense", SqlState::UNDEFINED_OBJECT);
    fails(&mut c, "SET memory_bytes = 5", SqlState("55P02"));
    fails(
        &mut c,
        "SET lock_timeout = 'soon'",
        SqlState::INVALID_PARAMETER_VALUE,
    );
    fails(
        &mut c,
        "SET timezone = 'Europe/Berlin'",
        SqlState::FEATURE_NOT_SUPPORTED,
    );
}

#[test]
fn what_clients_set_when_they_connect_is_taken() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "SET client_encoding TO 'UTF8'",
            "SET NAMES 'utf-8'",
            "SET DateStyle = ISO, MDY",
            "SET datestyle TO 'ISO'",
            "SET extra_float_digits = 3",
            "SET client_min_messages TO warning",
            "SET standard_conforming_strings = on",
            "SET bytea_output = hex",
            "SET intervalstyle = 'postgres'",
            "SET idle_in_transaction_session_timeout = 0",
            "SET idle_session_timeout = '10min'",
            "SET check_function_bodies = false",
            "SET row_security = off",
            "SET default_tablespace = ''",
            "SET default_table_access_method = heap",
            "SET xmloption = content",
            "SET jit = off",
            "SET TimeZone = 'Etc/UTC'",
            "SET my_app.user = 'ada'",
            "SET SESSION application_name = 'default'",
        ],
    );
    assert_eq!(rows(&mut c, "SHOW DATESTYLE"), ["ISO, MDY"]);
    assert_eq!(rows(&mut c, "SHOW idle_session_timeout"), ["10min"]);
    assert_eq!(rows(&mut c, "SHOW my_app.user"), ["ada"]);
    assert_eq!(rows(&mut c, "SHOW application_name"), ["default"]);
    assert_eq!(rows(&mut c, "SHOW row_security"), ["off"]);
    assert_eq!(rows(&mut c, "SHOW server_version_num"), ["150000"]);
    run(&mut c, &["RESET ALL"]);
    assert_eq!(rows(&mut c, "SHOW row_security"), ["on"]);
    fails(&mut c, "SHOW my_app.user", SqlState::UNDEFINED_OBJECT);
}

/// What poolers, asyncpg and pg_dump send first.
#[test]
fn resets_and_first_steps_of_clients_go_through() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int)",
            "SET lock_timeout = '2s'",
            "SET app.user = 'me'",
            "BEGIN",
            "SELECT pg_advisory_unlock_all()",
            "CLOSE ALL",
            "UNLISTEN *",
            "RESET ALL",
            "COMMIT",
        ],
    );
    assert_eq!(rows(&mut c, "SHOW lock_timeout"), ["0"]);
    let set = |name: &str, value: &str, local: bool| {
        format!("SELECT set_config('{name}', '{value}', {local})")
    };
    assert_eq!(rows(&mut c, &set("application_name", "x", false)), ["x"]);
    assert_eq!(rows(&mut c, "SHOW application_name"), ["x"]);
    assert_eq!(rows(&mut c, &set("App.User", "she", false)), ["she"]);
    assert_eq!(rows(&mut c, "SELECT current_setting('app.user')"), ["she"]);
    run(&mut c, &[&set("lock_timeout", "1s", true)]);
    assert_eq!(rows(&mut c, "SHOW lock_timeout"), ["0"]);
    run(
        &mut c,
        &["BEGIN", "SELECT 1", &set("lock_timeout", "1s", true)],
    );
    assert_eq!(rows(&mut c, "SHOW lock_timeout"), ["1s"]);
    run(&mut c, &["LOCK TABLE t IN ACCESS SHARE MODE"]);
    fails(&mut c, "LOCK TABLE t", SqlState::FEATURE_NOT_SUPPORTED);
    run(&mut c, &["ROLLBACK"]);
    assert_eq!(rows(&mut c, "SHOW lock_timeout"), ["0"]);
    fails(&mut c, &set("nix", "1", false), SqlState::UNDEFINED_OBJECT);
    fails(
        &mut c,
        &set("lock_timeout", "x", false),
        SqlState::INVALID_PARAMETER_VALUE,
    );
    fails(
        &mut c,
        "SELECT set_config(NULL, 'x', false)",
        SqlState("22004"),
    );
    let none = SqlState::NO_ACTIVE_SQL_TRANSACTION;
    fails(&mut c, "LOCK TABLE t IN ACCESS SHARE MODE", none);
    fails(&mut c, "CLOSE c", SqlState("34000"));
    run(&mut c, &["CREATE ROLE reader", "SET ROLE reader"]);
    fails(&mut c, "CHECKPOINT", SqlState("42501"));
    run(&mut c, &["DISCARD ALL", "CHECKPOINT"]);
    assert_eq!(rows(&mut c, "SHOW application_name"), [""]);
}

#[test]
fn what_is_not_honoured_is_refused_in_the_words_of_postgresql() {
    let database = database();
    let mut c = database.connect();
    let unsupported = SqlState::FEATURE_NOT_SUPPORTED;
    let invalid = SqlState::INVALID_PARAMETER_VALUE;
    let cases = [
        (
            "SET client_encoding = 'LATIN1'",
            unsupported,
            "conversion between LATIN1 and UTF8 is not supported",
        ),
        (
            "SET bytea_output = 'escape'",
            unsupported,
            "parameter \"bytea_output\" cannot be set to \"escape\"",
        ),
        (
            "SET bytea_output = 'roman'",
            invalid,
            "invalid value for parameter \"bytea_output\": \"roman\"",
        ),
        (
            "SET extra_float_digits = 4",
            invalid,
            "4 is outside the valid range for parameter \"extra_float_digits\" (-15 .. 3)",
        ),
        (
            "SET standard_conforming_strings = 'perhaps'",
            invalid,
            "parameter \"standard_conforming_strings\" requires a Boolean value",
        ),
        (
            "SET statement_timeout = -1",
            invalid,
            "-1 ms is outside the valid range for parameter \"statement_timeout\" \
             (0 ms .. 2147483647 ms)",
        ),
        (
            "SET server_version = '1'",
            SqlState("55P02"),
            "parameter \"server_version\" cannot be changed",
        ),
        (
            "SET strandline.nonsense = 1",
            SqlState::UNDEFINED_OBJECT,
            "unrecognized configuration parameter \"strandline.nonsense\"",
        ),
    ];
    for (sql, state, message) in cases {
        assert_eq!(fails(&mut c, sql, state), message, "{sql}");
    }
}

#[test]
fn show_all_says_where_values_are_from() {
    let device = std::sync::Arc::new(strandline_device::MemoryDevice::new());
    let file = strandline::Origin::File {
        path: "/etc/s.toml".into(),
        line: 3,
    };
    let flag = strandline::Origin::Flag("--memory".to_string());
    let database = strandline::Database::on_device(device)
        .parameter("MEMORY_BYTES", "64MiB", flag)
        .and_then(|b| b.parameter("statement_timeout", "5s", file))
        .expect("parameters")
        .foreign_parameter(strandline::ForeignParameter {
            name: "listen".to_string(),
            value: "127.0.0.1:5432".to_string(),
            description: "where the server listens".to_string(),
            origin: strandline::Origin::Environment("STRANDLINE_LISTEN".to_string()),
        })
        .build()
        .expect("opens");
    let mut c = database.connect();
    run(&mut c, &["SET lock_timeout = '1s'"]);
    let all = rows(&mut c, "SHOW ALL");
    let line = |name: &str| {
        let start = format!("{name}|");
        let line = all.iter().find(|line| line.starts_with(&start));
        let mut parts = line.expect(name).split('|');
        let setting = parts.nth(1).expect("setting").to_string();
        (setting, parts.nth(1).expect("origin").to_string())
    };
    let expected = [
        ("memory_bytes", "67108864", "flag --memory"),
        ("statement_timeout", "5s", "/etc/s.toml:3"),
        ("listen", "127.0.0.1:5432", "environment STRANDLINE_LISTEN"),
        ("lock_timeout", "1s", "session"),
        ("search_path", "public", "default"),
    ];
    for (name, setting, origin) in expected {
        assert_eq!(
            line(name),
            (setting.to_string(), origin.to_string()),
            "{name}"
        );
    }
    run(
        &mut c,
        &["BEGIN", "SET LOCAL statement_timeout = 0", "ROLLBACK"],
    );
    run(
        &mut c,
        &["SET statement_timeout = 0", "RESET statement_timeout"],
    );
    assert_eq!(rows(&mut c, "SHOW statement_timeout"), ["5s"]);
    assert_eq!(rows(&mut c, "SHOW listen"), ["127.0.0.1:5432"]);
    let shown = c.parameters();
    let timeout = shown.iter().find(|p| p.name == "statement_timeout");
    let timeout = timeout.expect("it is listed");
    assert_eq!(
        (timeout.plain_value().as_str(), timeout.unit()),
        ("5000", Some("ms"))
    );
    assert_eq!(timeout.origin.source(), "configuration file");
    let device = std::sync::Arc::new(strandline_device::MemoryDevice::new());
    let wrong = strandline::Database::on_device(device);
    let wrong = wrong.parameter("memory_byte", "1", strandline::Origin::Program);
    let wrong = wrong.err().expect("no such parameter");
    assert_eq!(wrong.sqlstate(), SqlState::UNDEFINED_OBJECT);
}

#[test]
fn information_schema_describes_the_database() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE SCHEMA s",
            "CREATE TABLE s.t (id bigserial PRIMARY KEY, v varchar(9) NOT NULL DEFAULT 'x',
             n numeric(7,3) CHECK (n > 0), UNIQUE (v, n))",
            "CREATE VIEW w AS SELECT v FROM s.t",
        ],
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT table_schema, table_name, table_type FROM information_schema.tables
                      WHERE table_schema <> 'information_schema' ORDER BY 2"
        ),
        ["s|t|BASE TABLE", "public|w|VIEW"]
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT column_name, ordinal_position, column_default, is_nullable, data_type,
                      character_maximum_length, numeric_precision, numeric_scale, is_identity
                      FROM information_schema.columns WHERE table_name = 't' ORDER BY 2"
        ),
        [
            "id|1|NULL|NO|bigint|NULL|64|0|YES",
            "v|2|'x'|NO|character varying|9|NULL|NULL|NO",
            "n|3|NULL|YES|numeric|NULL|7|3|NO",
        ]
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT constraint_name, constraint_type FROM information_schema.table_constraints ORDER BY 1"
        ),
        ["t_n_check|CHECK", "t_pkey|PRIMARY KEY", "t_v_n_key|UNIQUE"]
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT column_name FROM information_schema.key_column_usage
                      WHERE constraint_name = 't_v_n_key' ORDER BY ordinal_position"
        ),
        ["v", "n"]
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT check_clause FROM information_schema.check_constraints"
        ),
        ["n > 0"]
    );
    assert_eq!(
        rows(&mut c, "SELECT table_name FROM information_schema.views"),
        ["w"]
    );
    assert!(
        rows(
            &mut c,
            "SELECT schema_name FROM information_schema.schemata"
        )
        .contains(&"s".to_string())
    );
    fails(
        &mut c,
        "SELECT * FROM information_schema.nope",
        SqlState::UNDEFINED_TABLE,
    );
    assert!(
        c.execute("CREATE TABLE information_schema.x (a int)", ())
            .is_err()
    );
    assert!(
        c.execute("DELETE FROM information_schema.tables", ())
            .is_err()
    );
}
