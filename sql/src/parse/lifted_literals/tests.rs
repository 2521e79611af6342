use super::*;

fn lifted(sql: &str) -> Option<(String, String)> {
    let mut lifted = LiftedText::default();
    let values = |values: &[ScalarValue]| {
        let values: Vec<_> = values.iter().map(|v| format!("{v:?}")).collect();
        values.join(" ")
    };
    let does = lifted.lift(sql);
    does.then(|| (lifted.text.clone(), values(&lifted.values)))
}

#[track_caller]
fn gives(sql: &str, text: &str, values: &str) {
    assert_eq!(lifted(sql), Some((text.to_string(), values.to_string())));
}

#[test]
fn values_are_lifted() {
    gives(
        "SELECT a FROM t WHERE k = 7;",
        "SELECT a FROM t WHERE k = $1;",
        "Int32(7)",
    );
    gives(
        "update t set a=a+-12,b='it''s' where k in (1, 3000000000)",
        "update t set a=a+-$1,b=$2 where k in ($3, $4 )",
        "Int32(12) Utf8(\"it's\") Int32(1) Int64(3000000000)",
    );
    gives(
        "INSERT INTO t1 VALUES (1.50, '', NULL, 'ä', now())",
        "INSERT INTO t1 VALUES ($1, $2, NULL, $3, now())",
        "Decimal128(1.50,38,2) Utf8(\"\") Utf8(\"ä\")",
    );
    gives(
        "SELECT a FROM t WHERE s BETWEEN 'a' AND 'b'",
        "SELECT a FROM t WHERE s BETWEEN $1 AND $2",
        "Utf8(\"a\") Utf8(\"b\")",
    );
    gives("BEGIN", "BEGIN", "");
    gives(
        "WITH c AS (SELECT k FROM t WHERE s LIKE 'a%' ORDER BY 1) SELECT k FROM c WHERE k > 3",
        "WITH c AS (SELECT k FROM t WHERE s LIKE $1 ORDER BY 1) SELECT k FROM c WHERE k > $2",
        "Utf8(\"a%\") Int32(3)",
    );
    // A name of other letters is one word; a long number is not lifted.
    gives("SELECT ä1 FROM t", "SELECT ä1 FROM t", "");
    let many: Vec<_> = (10..30).map(|n| n.to_string()).collect();
    let (text, values) =
        lifted(&format!("SELECT a FROM t WHERE k IN ({})", many.join(","))).expect("lifts");
    assert!(text.contains("$9,$10,$11,") && text.ends_with(",$19,$20)"));
    assert!(values.ends_with("Int32(29)"));
}

#[test]
fn what_is_no_value_stays() {
    gives(
        "SELECT a FROM t WHERE d = date '2020-01-01' ORDER BY 1, 2 LIMIT 3",
        "SELECT a FROM t WHERE d = date '2020-01-01' ORDER BY 1, 2 LIMIT $1",
        "Int32(3)",
    );
    gives(
        "INSERT INTO t VALUES (1) ON CONFLICT (k) WHERE a > 5 DO UPDATE SET a = 'x'",
        "INSERT INTO t VALUES ($1) ON CONFLICT (k) WHERE a > 5 DO UPDATE SET a = 'x'",
        "Int32(1)",
    );
    gives(
        "SELECT a AS \"x'1\" FROM t WHERE \"k\" = 1",
        "SELECT a AS \"x'1\" FROM t WHERE \"k\" = $1",
        "Int32(1)",
    );
    gives(
        "SELECT a, \"date\" '2020-01-01'",
        "SELECT a, \"date\" '2020-01-01'",
        "",
    );
    gives(
        "SELECT a1 FROM t2 WHERE s SIMILAR TO 'a%'",
        "SELECT a1 FROM t2 WHERE s SIMILAR TO 'a%'",
        "",
    );
}

#[track_caller]
fn gives_operands(sql: &str, text: &str, values: usize) {
    let (mut all, mut operands) = (LiftedText::default(), LiftedText::default());
    assert!(all.lift(sql), "{sql}");
    assert!(operands.lift_operands(&all, sql), "{sql}");
    assert_eq!(
        (operands.text.as_str(), operands.values.len()),
        (text, values)
    );
}

#[test]
fn operands_are_lifted_alone() {
    gives_operands(
        "SELECT round(a * 1.2, 2), d->>'x' FROM t WHERE k = -7 AND 1=1 LIMIT 2 OFFSET 4",
        "SELECT round(a * 1.2, 2), d->>'x' FROM t WHERE k = -$1 AND 1=1 LIMIT $2 OFFSET $3",
        3,
    );
    gives_operands(
        "SELECT f('a', 1) FROM t WHERE s BETWEEN 'a' AND 'b' AND 5 < k AND k IN (1, 2)",
        "SELECT f('a', 1) FROM t WHERE s BETWEEN $1 AND $2 AND 5 < k AND k IN ($3, $4)",
        4,
    );
    gives_operands(
        "INSERT INTO t VALUES (1, 'a', f(2, 'b')), (3, 'c', 4.5) RETURNING a + 6",
        "INSERT INTO t VALUES ($1, $2, f(2, 'b')), ($3, $4, 4.5) RETURNING a + 6",
        4,
    );
    gives_operands(
        "UPDATE t SET a = a + 1, b = 'x' WHERE (k, n) >= (1, 2) AND s <> 'y' AND m <= 1.5",
        "UPDATE t SET a = a + 1, b = $1 WHERE (k, n) >= ($2, $3) AND s <> $4 AND m <= 1.5",
        4,
    );
    let (mut all, mut operands) = (LiftedText::default(), LiftedText::default());
    for sql in [
        "SELECT f(1, 2)",
        "SELECT a FROM t WHERE k = 1",
        "SELECT a FROM t",
    ] {
        assert!(all.lift(sql), "{sql}");
        assert!(!operands.lift_operands(&all, sql), "all or none: {sql}");
    }
}

#[test]
fn decimals_stay_in_a_plain_form() {
    let (mut all, mut plain, mut operands) = Default::default();
    let sql = "INSERT INTO t SELECT id, 7, 1.5, 'x' FROM u WHERE k = 3";
    assert!(LiftedText::lift(&mut all, sql));
    assert!(LiftedText::lift_plain(&mut plain, &all, sql));
    assert_eq!(
        (plain.text.as_str(), plain.values.len()),
        (
            "INSERT INTO t SELECT id, $1, 1.5, $2 FROM u WHERE k = $3",
            3
        )
    );
    assert!(LiftedText::lift_operands(&mut operands, &plain, sql));
    assert_eq!(
        (operands.text.as_str(), operands.values.len()),
        (
            "INSERT INTO t SELECT id, 7, 1.5, 'x' FROM u WHERE k = $1",
            1
        )
    );
    // All literals are plain, or none is.
    for sql in [
        "SELECT a FROM t WHERE k = 1 AND s = 'x'",
        "SELECT a FROM t WHERE n = 1.5",
    ] {
        assert!(all.lift(sql));
        assert!(!plain.lift_plain(&all, sql) && plain.values.is_empty());
    }
}

#[test]
fn what_was_lifted_before_is_gone() {
    let mut lifted = LiftedText::default();
    for _ in 0..2 {
        assert!(lifted.lift("SELECT 7"));
        assert_eq!(
            (lifted.text.as_str(), lifted.values.len()),
            ("SELECT $1", 1)
        );
    }
}

#[test]
fn texts_of_doubt_are_left() {
    for sql in [
        "",
        "SELECTED 1",
        "CREATE TABLE t (a int DEFAULT 7)",
        "SELECT 1 -- one",
        "SELECT /* 1 */ 2",
        "SELECT $1",
        "SELECT $$a$$",
        "SELECT E'\\n'",
        "SELECT U&'x'",
        "SELECT 1e5",
        "SELECT .5",
        "SELECT 1..2",
        "SELECT 0xFF",
        "SELECT 123abc",
        "SELECT 'a' 'b'",
        "SELECT 'a'\n'b'",
        "SELECT 'a",
        "SELECT \"a",
        "SELECT a ? 'b'",
        "SELECT a @> 'b'",
        "SELECT a\\b",
        "SELECT a$1 FROM t",
        "SELECT 99999999999999999999",
        "SELECT 1.2345678901234567890123456789012345678",
        "SELECT 1'a'",
        "SELECT 1\"a\"",
        "SELECT a = '\0'",
    ] {
        assert_eq!(lifted(sql), None, "{sql}");
    }
    let long = format!("SELECT a FROM t WHERE k = '{}'", "x".repeat(LONGEST));
    assert_eq!(lifted(&long), None);
    let many = vec!["1"; MOST + 1].join(", ");
    assert_eq!(
        lifted(&format!("SELECT a FROM t WHERE k IN ({many})")),
        None
    );
}
