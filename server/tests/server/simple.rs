//! The simple protocol, statuses, settings.

use crate::support::Raw;
use crate::support::{TestServer, extended, field, message, query, startup, state, sync, texts};

#[tokio::test]
async fn statements_of_one_text_are_one_transaction() {
    let server = TestServer::start();
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY)")
        .await
        .unwrap();
    let failed = client
        .batch_execute(
            "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); INSERT INTO t VALUES (1)",
        )
        .await;
    assert_eq!(state(failed), "23505");
    assert_eq!(
        texts(&client, "SELECT count(*) FROM t").await,
        [Some("0".into())]
    );

    // COMMIT in between keeps what was before it.
    let failed = client
        .batch_execute(
            "BEGIN; INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2); SELECT 1/0",
        )
        .await;
    assert_eq!(state(failed), "22012");
    assert_eq!(texts(&client, "SELECT a FROM t").await, [Some("1".into())]);

    // A text with a mistake in it does nothing at all.
    let failed = client
        .batch_execute("INSERT INTO t VALUES (5); SELEC 1")
        .await;
    assert_eq!(state(failed), "42601");
    assert_eq!(
        texts(&client, "SELECT count(*) FROM t").await,
        [Some("1".into())]
    );
}

#[test]
fn answers_have_postgresqls_messages() {
    let server = TestServer::start();
    let mut raw = server.raw();
    let mut answer = |sql: &str| {
        raw.send(&query(sql));
        let messages = raw.until(b'Z');
        let kinds: String = messages.iter().map(|(kind, _)| *kind as char).collect();
        let status = messages.last().unwrap().1[0] as char;
        let tag = messages.iter().rev().find(|(kind, _)| *kind == b'C');
        let tag = tag.map(|(_, body)| String::from_utf8(body[..body.len() - 1].to_vec()).unwrap());
        (kinds, status, tag.unwrap_or_default())
    };
    let case = |kinds: &str, status, tag: &str| (kinds.to_string(), status, tag.to_string());
    assert_eq!(answer(""), case("IZ", 'I', ""));
    assert_eq!(answer("-- nothing"), case("IZ", 'I', ""));
    assert_eq!(
        answer("CREATE TABLE t (a int, b text)"),
        case("CZ", 'I', "CREATE TABLE")
    );
    assert_eq!(
        answer("INSERT INTO t VALUES (1, 'x'), (2, NULL)"),
        case("CZ", 'I', "INSERT 0 2")
    );
    assert_eq!(answer("SELECT * FROM t"), case("TDDCZ", 'I', "SELECT 2"));
    assert_eq!(
        answer("SELECT 1; SELECT 2"),
        case("TDCTDCZ", 'I', "SELECT 1")
    );
    assert_eq!(answer("BEGIN"), case("CZ", 'T', "BEGIN"));
    assert_eq!(
        answer("UPDATE t SET a = 0 WHERE a = 1 RETURNING a"),
        case("TDCZ", 'T', "UPDATE 1")
    );
    assert_eq!(answer("SELECT 1/0"), case("TEZ", 'E', ""));
    assert_eq!(answer("SELECT 1"), case("EZ", 'E', ""));
    assert_eq!(answer("ROLLBACK"), case("CZ", 'I', "ROLLBACK"));
    assert_eq!(answer("ROLLBACK"), case("NCZ", 'I', "ROLLBACK"));
    assert_eq!(
        answer("SET application_name = 'x'"),
        case("SCZ", 'I', "SET")
    );
    assert_eq!(answer("SHOW application_name"), case("TDCZ", 'I', "SHOW"));
}

#[test]
fn errors_say_what_where_and_how_bad() {
    let server = TestServer::start();
    let mut raw = server.raw();
    raw.send(&query("SELECT\n  'é', FROM WHERE"));
    let messages = raw.until(b'Z');
    let (_, error) = messages.iter().find(|(kind, _)| *kind == b'E').unwrap();
    assert_eq!(field(error, b'S').unwrap(), "ERROR");
    assert_eq!(field(error, b'V').unwrap(), "ERROR");
    assert_eq!(field(error, b'C').unwrap(), "42601");
    assert!(!field(error, b'M').unwrap().contains("Line"));
    assert!(field(error, b'P').unwrap().parse::<usize>().unwrap() > 7);

    raw.send(&query(
        "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (7)",
    ));
    raw.until(b'Z');
    raw.send(&query("INSERT INTO t VALUES (7)"));
    let messages = raw.until(b'Z');
    assert_eq!(field(&messages[0].1, b'C').unwrap(), "23505");
    assert!(field(&messages[0].1, b'D').unwrap().contains("(a)=(7)"));
}

#[test]
fn a_client_is_told_the_settings_and_their_changes() {
    let server = TestServer::start();
    let mut raw = Raw::open(server.address);
    raw.send(&startup(&[
        ("user", "ada"),
        ("application_name", "tests"),
        ("DateStyle", "ISO"),
        ("TimeZone", "Europe/Oslo"),
        ("extra_float_digits", "2"),
        ("options", "-c statement_timeout=5s"),
    ]));
    let messages = raw.until(b'Z');
    let told = |name: &str| {
        let found = messages
            .iter()
            .find(|(kind, body)| *kind == b'S' && body.starts_with(format!("{name}\0").as_bytes()));
        let body = &found.unwrap_or_else(|| panic!("{name}")).1;
        String::from_utf8(body[name.len() + 1..body.len() - 1].to_vec()).unwrap()
    };
    assert!(told("server_version").starts_with("15.0 (Strandline "));
    for (name, value) in [
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("TimeZone", "UTC"),
        ("integer_datetimes", "on"),
        ("standard_conforming_strings", "on"),
        ("in_hot_standby", "off"),
        ("application_name", "tests"),
    ] {
        assert_eq!(told(name), value, "{name}");
    }
    assert!(
        messages
            .iter()
            .any(|(kind, body)| *kind == b'K' && body.len() == 8)
    );

    let mut changed = |sql: &str| {
        raw.send(&query(sql));
        let messages = raw.until(b'Z');
        let found = messages.into_iter().find(|(kind, _)| *kind == b'S');
        found.map(|(_, body)| String::from_utf8_lossy(&body).replace('\0', "="))
    };
    let name = |value: &str| Some(format!("application_name={value}="));
    assert_eq!(changed("SHOW statement_timeout"), None);
    assert_eq!(changed("SET application_name = 'b'"), name("b"));
    assert_eq!(changed("BEGIN"), None);
    assert_eq!(changed("SET LOCAL application_name = 'c'"), name("c"));
    assert_eq!(changed("COMMIT"), name("b"));
    assert_eq!(changed("RESET ALL"), name(""));
}

#[tokio::test]
async fn statements_that_are_nested_too_deeply_are_refused() {
    let server = TestServer::start();
    let client = server.connect().await;
    for sql in [
        format!("SELECT {}1{}", "(".repeat(50_000), ")".repeat(50_000)),
        format!("SELECT 1{}", " + 1".repeat(20_000)),
        format!("SELECT {}1", "- ".repeat(50_000)),
        format!("SELECT {}true", "NOT ".repeat(50_000)),
        format!("SELECT 1{}", " UNION SELECT 1".repeat(400)),
        format!("SELECT 1{}", " UNION SELECT 1".repeat(20_000)),
    ] {
        // Some of them are possible; none ends the server.
        let _either = client.simple_query(&sql).await;
    }
    assert_eq!(texts(&client, "SELECT 1").await, [Some("1".into())]);
}

/// DEALLOCATE reaches what Parse has named, as any other statement: in a text of several, in a
/// failed block, with its syntax checked.
#[test]
fn deallocate_is_a_statement_among_others() {
    let server = TestServer::start();
    let mut raw = server.raw();
    raw.send(&query("CREATE TABLE t (a int)"));
    assert_eq!(raw.types_until_ready(), "CZ");
    let parse = |raw: &mut Raw, name: &str| {
        raw.send(&message(b'P', format!("{name}\0SELECT 1\0\0\0").as_bytes()));
        raw.send(&sync());
        raw.types_until_ready()
    };
    let answer = |raw: &mut Raw, bytes: &[u8]| {
        raw.send(bytes);
        let messages = raw.until(b'Z');
        let kinds: String = messages.iter().map(|(kind, _)| *kind as char).collect();
        let error = messages.iter().find(|(kind, _)| *kind == b'E');
        (
            kinds,
            error
                .and_then(|(_, body)| field(body, b'C'))
                .unwrap_or_default(),
        )
    };
    let done = |kinds: &str| (kinds.to_string(), String::new());
    let failed = |kinds: &str, state: &str| (kinds.to_string(), state.to_string());

    assert_eq!(parse(&mut raw, "p1"), "1Z");
    let several =
        "BEGIN; INSERT INTO t VALUES (1); DEALLOCATE p1; INSERT INTO t VALUES (2); COMMIT";
    assert_eq!(answer(&mut raw, &query(several)), done("CCCCCZ"));
    assert_eq!(parse(&mut raw, "p1"), "1Z");
    let first = "DEALLOCATE p1; INSERT INTO t VALUES (3)";
    assert_eq!(answer(&mut raw, &query(first)), done("CCZ"));
    assert_eq!(answer(&mut raw, &query("SELECT a FROM t")), done("TDDDCZ"));

    assert_eq!(parse(&mut raw, "p1"), "1Z");
    let garbage = query("DEALLOCATE p1 garbage");
    assert_eq!(answer(&mut raw, &garbage), failed("EZ", "42601"));
    raw.send(&query("BEGIN; SELECT 1/0"));
    raw.until(b'Z');
    let deallocate = query("DEALLOCATE PREPARE p1");
    assert_eq!(answer(&mut raw, &deallocate), failed("EZ", "25P02"));
    assert_eq!(answer(&mut raw, &query("ROLLBACK")), done("CZ"));
    // It is still there.
    assert_eq!(answer(&mut raw, &deallocate), done("CZ"));
    assert_eq!(answer(&mut raw, &deallocate), failed("EZ", "26000"));

    assert_eq!(parse(&mut raw, "P 2"), "1Z");
    let quoted = [extended("DEALLOCATE \"P 2\""), sync()].concat();
    assert_eq!(answer(&mut raw, &quoted), done("12nCZ"));
    assert_eq!(answer(&mut raw, &quoted), failed("12nEZ", "26000"));
    // A name that SQL has given is found too.
    let both = "PREPARE q AS SELECT 1; DEALLOCATE q; PREPARE q AS SELECT 2; DEALLOCATE ALL";
    assert_eq!(answer(&mut raw, &query(both)), done("CCCCZ"));
}

/// A time zone other than UTC does not hold; the client is told before it asks anything.
#[test]
fn a_time_zone_that_does_not_hold_is_told() {
    let server = TestServer::start();
    for (zone, kinds) in [("Europe/Berlin", 1), ("UTC", 0)] {
        for settings in [
            vec![("user", "ada"), ("TimeZone", zone)],
            vec![("user", "ada"), ("options", "-c timezone=Europe/Berlin")],
        ] {
            let is_option = settings[1].0 == "options";
            let mut raw = Raw::open(server.address);
            raw.send(&startup(&settings));
            let messages = raw.until(b'Z');
            let told: Vec<_> = messages.iter().filter(|(kind, _)| *kind == b'N').collect();
            assert_eq!(
                told.len(),
                if is_option { 1 } else { kinds },
                "{settings:?}"
            );
            for (_, body) in told {
                assert_eq!(field(body, b'S').as_deref(), Some("WARNING"));
                let text = field(body, b'M').unwrap();
                assert!(text.contains("Europe/Berlin"), "{text}");
            }
            raw.send(&query("SHOW timezone"));
            assert_eq!(raw.types_until_ready(), "TDCZ");
        }
    }
}
