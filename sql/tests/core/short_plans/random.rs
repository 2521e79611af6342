//! Random queries of few rows over random tables, by short plans and by the full path, in every
//! isolation level and beside changes.

use super::{seen, short_runs};
use crate::{database, run};
use strandline::{Connection, Value};
use strandline_base::SqlType;
use strandline_base::rng::Rng;

const ROUNDS: u64 = 8;
const QUERIES: u64 = 45;

/// Three tables of the same columns: `k` is the key, `a` and `b` have indexes in some tables.
fn tables(rng: &mut Rng) -> Vec<String> {
    let mut statements = Vec::new();
    for table in ["t", "u", "v"] {
        let (a, b) = (
            choose(rng, &["int", "bigint", "smallint"]),
            choose(rng, &["text", "varchar(9)"]),
        );
        let key = choose(
            rng,
            &["PRIMARY KEY (k)", "PRIMARY KEY (k, a)", "UNIQUE (k)"],
        );
        let a_is = if key.contains("a") && key.contains("(k, a)") {
            "NOT NULL"
        } else {
            ""
        };
        statements.push(format!(
            "CREATE TABLE {table} (k int, a {a} {a_is}, b {b}, c numeric(9,2), d date, x double precision, {key})"
        ));
        let indexes = [
            format!("CREATE INDEX ON {table} (a)"),
            format!("CREATE INDEX ON {table} (a DESC, b)"),
            format!("CREATE INDEX ON {table} (b, k)"),
            format!("CREATE UNIQUE INDEX ON {table} (k, b)"),
        ];
        statements.extend(indexes.into_iter().filter(|_| rng.one_in(2)));
        let n = [20, 200, 700][rng.below(3) as usize];
        let (groups, gap) = (1 + rng.below(40), 2 + rng.below(9));
        let a = match a_is {
            "" => format!("nullif(n * 7 % {groups}, {})", rng.below(groups)),
            _ => format!("n * 7 % {groups}"),
        };
        statements.push(format!(
            "INSERT INTO {table} SELECT n, {a}, CASE WHEN n % {gap} > 0 THEN 'b' || n % {groups} END, \
             nullif(n % 10, 3) * 1.25, DATE '2024-01-01' + n % 50, n / 8.0 FROM generate_series(1, {n}) AS s(n)"
        ));
    }
    statements
}

fn choose<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.below(of.len() as u64) as usize]
}

/// A condition of the columns of `t` that leads to few rows.
fn narrow(rng: &mut Rng, t: &str) -> String {
    match rng.below(7) {
        0 => format!("{t}.k = $1"),
        1 => format!("{t}.k IN ($1, {}, 3)", rng.below(300)),
        2 => format!("{t}.a = $1"),
        3 => format!("{t}.b = 'b' || $1::text"),
        4 => format!("{t}.a = $1 AND {t}.b > 'b1'"),
        5 => format!("{t}.k = $1 AND {t}.a = {}", rng.below(20)),
        _ => format!("{t}.k = $1 + {} AND {t}.c IS NOT NULL", rng.below(5)),
    }
}

/// Any condition.
fn wide(rng: &mut Rng, t: &str) -> String {
    let any = [
        format!("{t}.c > 2.5"),
        format!("{t}.b LIKE 'b%1'"),
        format!("{t}.d < DATE '2024-01-20'"),
        format!("{t}.a % 2 = 0 OR {t}.b IS NULL"),
        format!("{t}.x BETWEEN 1 AND 9"),
        format!("{t}.k <> $1"),
        format!("length({t}.b) = 2"),
    ];
    any[rng.below(any.len() as u64) as usize].clone()
}

fn value(rng: &mut Rng, t: &str) -> String {
    let any = [
        format!("{t}.k"),
        format!("{t}.a + 1"),
        format!("upper({t}.b)"),
        format!("{t}.c * 2"),
        format!("coalesce({t}.b, 'none')"),
        format!("CASE WHEN {t}.a > $1 THEN {t}.d END"),
        format!("{t}.x / 2"),
        format!("{t}.k - $1"),
    ];
    any[rng.below(any.len() as u64) as usize].clone()
}

fn equal(rng: &mut Rng, t: &str, u: &str) -> String {
    let any = [
        format!("{t}.a = {u}.k"),
        format!("{t}.k = {u}.k"),
        format!("{t}.b = {u}.b"),
        format!("{t}.a = {u}.a AND {t}.k = {u}.k"),
        format!("{u}.k = {t}.k + 1"),
        format!("{u}.a = {t}.k AND {u}.b <> {t}.b"),
    ];
    any[rng.below(any.len() as u64) as usize].clone()
}

/// A query of parameter `$1`; its rows are in a whole order, as far as they differ.
fn query(rng: &mut Rng) -> String {
    let (one, two) = (value(rng, "t"), value(rng, "t"));
    let by = narrow(rng, "t");
    let and = match rng.one_in(2) {
        true => format!(" AND ({})", wide(rng, "t")),
        false => String::new(),
    };
    let on = equal(rng, "t", "u");
    let other = value(rng, "u");
    let inner = wide(rng, "u");
    match rng.below(12) {
        0 => format!("SELECT {one} AS p, {two} AS q FROM t WHERE {by}{and} ORDER BY 1, 2"),
        1 => format!(
            "SELECT {one} AS p, {other} AS q FROM t JOIN u ON {on} WHERE {by}{and} ORDER BY 1, 2"
        ),
        2 => format!(
            "SELECT {one} AS p, {other} AS q FROM t LEFT JOIN u ON {on} AND ({inner}) WHERE {by} ORDER BY 1, 2"
        ),
        3 => format!(
            "SELECT {one} AS p FROM t WHERE {by} AND EXISTS (SELECT 1 FROM u WHERE {on} AND ({inner})) ORDER BY 1"
        ),
        4 => format!(
            "SELECT {one} AS p FROM t WHERE {by} AND NOT EXISTS (SELECT 1 FROM u WHERE {on}) ORDER BY 1"
        ),
        5 => format!(
            "SELECT {one} AS p, (SELECT count(*) FROM u WHERE u.k = t.a) AS q FROM t WHERE {by} ORDER BY 1, 2"
        ),
        6 => format!(
            "SELECT {one} AS p, count(*), sum(t.c), min(t.b) FROM t WHERE {by}{and} GROUP BY {one} ORDER BY 1"
        ),
        7 => format!("SELECT DISTINCT {one} AS p, {two} AS q FROM t WHERE {by} ORDER BY 1, 2"),
        8 => {
            let third = equal(rng, "u", "v");
            format!(
                "SELECT {one} AS p, {other} AS q, v.k FROM v, u, t WHERE {on} AND {third} AND {by}{and} ORDER BY 1, 2, 3"
            )
        }
        9 => format!(
            "SELECT t.k, t.a FROM t WHERE {by} UNION SELECT u.k, u.a FROM u WHERE {} ORDER BY 1, 2",
            narrow(rng, "u")
        ),
        10 => {
            format!("SELECT u.k AS p FROM u WHERE u.k IN (SELECT t.a FROM t WHERE {by}) ORDER BY 1")
        }
        _ => format!(
            "SELECT t.k AS p, {two} AS q FROM t WHERE {by} ORDER BY t.a DESC, t.k LIMIT {} OFFSET {}",
            1 + rng.below(4),
            rng.below(3)
        ),
    }
}

fn change(rng: &mut Rng) -> String {
    let (t, n, m) = (choose(rng, &["t", "u", "v"]), rng.below(40), rng.below(40));
    match rng.below(4) {
        0 => format!("UPDATE {t} SET a = {n} WHERE k = {m}"),
        1 => format!("UPDATE {t} SET b = 'b{n}', c = NULL WHERE k % 40 = {m}"),
        2 => format!("DELETE FROM {t} WHERE k = {m}"),
        _ => format!(
            "INSERT INTO {t} VALUES (1000 + {n}, {m}, 'b{m}', 1, NULL, NULL) ON CONFLICT DO NOTHING"
        ),
    }
}

fn compared(c: &mut Connection, sql: &str, values: &[i32]) {
    let prepared = c.prepare_typed(sql, &[Some(SqlType::Integer)]).expect(sql);
    for value in values {
        let short = seen(c.query_prepared(&prepared, [Value::Integer(*value)]));
        c.use_row_executor(false);
        let full = seen(c.query_prepared(&prepared, [Value::Integer(*value)]));
        c.use_row_executor(true);
        assert_eq!(short, full, "{sql} with {value}");
    }
}

#[test]
fn random_queries_give_the_rows_of_the_full_path() {
    let mut runs = 0;
    for seed in 0..ROUNDS {
        let mut rng = Rng::new(seed);
        let database = database();
        let (mut c, mut writer) = (database.connect(), database.connect());
        let made = tables(&mut rng);
        let made: Vec<&str> = made.iter().map(String::as_str).collect();
        println!("seed {seed}: {made:#?}");
        run(&mut c, &made);
        for n in 0..QUERIES {
            let level = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][(n % 3) as usize];
            let in_block = rng.one_in(3);
            if in_block {
                run(&mut c, &[&format!("BEGIN ISOLATION LEVEL {level}")]);
                run(&mut c, &[&change(&mut rng)]);
            }
            let values: Vec<i32> = (0..5).map(|_| rng.below(60) as i32).collect();
            compared(&mut c, &query(&mut rng), &values);
            if in_block {
                run(&mut c, &["ROLLBACK"]);
            } else {
                run(&mut writer, &[&change(&mut rng)]);
            }
        }
        runs += short_runs(&database);
    }
    // Most queries lead to few rows.
    assert!(runs > ROUNDS * QUERIES, "{runs}");
}
