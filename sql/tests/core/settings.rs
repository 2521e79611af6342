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
