//! Short plans: the same rows as by the full path, of the moment and with the rights of the
//! execution, and a stop where rows are many.

mod random;

use super::{database, database_with_clock, fails, lines, rows, run};
use strandline::{Connection, Database, Error, SqlState, Value};
use strandline_base::SqlType;

/// A small order system: customers have orders, orders have lines, lines name items.
const SHOP: &[&str] = &[
    "CREATE TABLE customer (id int PRIMARY KEY, name text, city varchar(20), credit numeric(10,2))",
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer int, placed date, state text, \
     seen timestamptz)",
    "CREATE INDEX orders_customer ON orders (customer, placed)",
    "CREATE TABLE line (orders bigint, no int, item int, amount int, price numeric(8,2), \
     rate double precision, PRIMARY KEY (orders, no))",
    "CREATE INDEX line_orders ON line (orders, no)",
    "CREATE INDEX line_item ON line (item)",
    "CREATE TABLE item (id int PRIMARY KEY, name text, parent int)",
    "CREATE TABLE state (code text PRIMARY KEY, shown text)",
    "INSERT INTO customer SELECT n, CASE WHEN n % 5 > 0 THEN 'name ' || n END, 'city ' || n % 7, \
     n * 1.5 FROM generate_series(1, 400) AS s(n)",
    "INSERT INTO orders SELECT n, nullif(1 + n % 400, 13), DATE '2024-01-01' + n % 90, \
     CASE n % 4 WHEN 0 THEN 'open' WHEN 1 THEN 'paid' WHEN 2 THEN 'sent' END, \
     TIMESTAMPTZ '2024-01-01 00:00:00+00' + n * INTERVAL '1 hour' FROM generate_series(1, 2000) AS s(n)",
    "INSERT INTO line SELECT o, n, nullif((o * 7 + n) % 500, 0), n * 2, o % 100 + n / 10.0, n / 4.0 \
     FROM generate_series(1, 2000) AS a(o), generate_series(1, 3) AS b(n)",
    "INSERT INTO item SELECT n, 'item ' || n, nullif(n / 10, 0) FROM generate_series(1, 500) AS s(n)",
    "INSERT INTO state VALUES ('open', 'is open'), ('paid', 'is paid'), ('none', NULL)",
];

/// Queries of one integer parameter that have short plans.
const SHORT: &[&str] = &[
    // one table: expressions in the list and in conditions
    "SELECT upper(name), length(city) + id, credit * 2 FROM customer WHERE id = $1",
    "SELECT id, name || ' of ' || city AS x FROM customer WHERE id = $1 AND length(name) > 6",
    "SELECT CASE WHEN credit > 100 THEN 'rich' ELSE coalesce(name, '?') END FROM customer WHERE id = $1",
    "SELECT id + 1 FROM customer WHERE id IN ($1, 8, 7)",
    "SELECT id + 1 FROM customer WHERE id = $1 OR id = 9 ORDER BY 1",
    "SELECT id FROM customer WHERE id = $1 + 0 AND city <> 'city 3'",
    "SELECT id * 2, placed FROM orders WHERE customer = $1 ORDER BY placed DESC, id LIMIT 3",
    "SELECT id * 2, placed FROM orders WHERE customer = $1 ORDER BY placed LIMIT 2 OFFSET 1",
    "SELECT id, state FROM orders WHERE customer = $1 AND placed >= DATE '2024-01-20' + 1 AND state LIKE '%e%'",
    "SELECT no, amount * price FROM line WHERE orders = $1 ORDER BY no",
    "SELECT no, rate / 2 FROM line WHERE orders = $1 AND amount > 2 AND rate < 0.7",
    "SELECT count(*) FROM line WHERE orders = $1 AND amount % 4 = 0",
    "SELECT no FROM line WHERE orders = $1 AND amount % 4 = 0 AND 10 / no > 3 ORDER BY no",
    "SELECT no FROM line WHERE orders = $1 + 1 - 1 AND 10 / no > 3 ORDER BY no",
    "SELECT code || shown FROM state ORDER BY code",
    "SELECT $1 + 1, 'constant'",
    "SELECT extract(month FROM placed), state IS NULL FROM orders WHERE id = $1",
    "SELECT id + 1, $1 FROM orders WHERE customer = 5 ORDER BY placed DESC LIMIT $1 * $1 % 3 + 1 OFFSET 1",
    "SELECT id + 0 FROM orders WHERE customer = 5 AND seen < now() ORDER BY id LIMIT $1 * $1 % 5",
    // joins
    "SELECT o.id, c.name FROM orders o JOIN customer c ON c.id = o.customer WHERE o.id = $1",
    "SELECT c.name, o.id FROM customer c JOIN orders o ON o.customer = c.id WHERE c.id = $1 ORDER BY o.id",
    "SELECT c.name, o.id, l.no, i.name FROM item i, line l, orders o, customer c WHERE i.id = l.item \
     AND l.orders = o.id AND o.customer = c.id AND o.id = $1 ORDER BY l.no",
    "SELECT o.id, c.name, s.shown FROM orders o LEFT JOIN customer c ON c.id = o.customer \
     LEFT JOIN state s ON s.code = o.state AND s.shown IS NOT NULL WHERE o.id = $1",
    "SELECT o.id, c.name FROM customer c RIGHT JOIN orders o ON c.id = o.customer WHERE o.id = $1",
    "SELECT o.id, l.item, i.parent, p.name FROM orders o JOIN line l ON l.orders = o.id \
     LEFT JOIN item i ON i.id = l.item LEFT JOIN item p ON p.id = i.parent WHERE o.id = $1 ORDER BY l.no",
    "SELECT a.id, b.id FROM item a JOIN item b ON b.id = a.id + 1 WHERE a.id = $1",
    "SELECT a.id, b.code FROM customer a CROSS JOIN state b WHERE a.id = $1 ORDER BY b.code",
    "SELECT o.id FROM orders o JOIN customer c ON c.id = o.customer AND c.id < o.id WHERE o.id = $1",
    // subqueries
    "SELECT id FROM customer c WHERE id = $1 AND EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id)",
    "SELECT id FROM customer c WHERE id IN ($1, 13, 14) AND NOT EXISTS \
     (SELECT 1 FROM orders o WHERE o.customer = c.id AND o.state = 'paid') ORDER BY id",
    "SELECT id FROM orders WHERE id = $1 AND EXISTS (SELECT 1 FROM line WHERE orders = orders.id)",
    "SELECT name FROM item WHERE id IN (SELECT item FROM line WHERE orders = $1) ORDER BY name",
    "SELECT id, (SELECT count(*) FROM orders o WHERE o.customer = c.id) FROM customer c WHERE id = $1",
    "SELECT id, (SELECT max(placed) FROM orders o WHERE o.customer = c.id) FROM customer c WHERE id = $1",
    "SELECT id, (SELECT name FROM customer c WHERE c.id = o.customer) FROM orders o WHERE id = $1",
    "SELECT id, (SELECT sum(amount * price) FROM line WHERE orders = $1) FROM orders WHERE id = $1",
    "SELECT name FROM customer WHERE id = (SELECT customer FROM orders WHERE id = $1)",
    "SELECT o.id, (SELECT count(*) FROM orders p WHERE p.customer = o.customer AND p.state IS NOT NULL) \
     FROM orders o WHERE o.customer = $1 ORDER BY o.id",
    "SELECT o.id, (SELECT max(l.price) FROM line l WHERE l.orders = o.id AND l.amount > 2 AND l.item < 300) \
     FROM orders o WHERE o.customer = $1 ORDER BY o.id",
    "SELECT o.id FROM orders o WHERE o.customer = $1 AND EXISTS (SELECT 1 FROM line l \
     WHERE l.orders = o.id AND l.amount > 2 AND l.item < 250) ORDER BY o.id",
    "SELECT l.no, c.name, c.credit FROM orders o JOIN line l ON l.orders = o.id \
     LEFT JOIN customer c ON c.id = o.customer AND c.credit > l.amount WHERE o.customer = $1 ORDER BY o.id, l.no",
    // groups and sets
    "SELECT state, count(*), max(id) FROM orders WHERE customer = $1 GROUP BY state ORDER BY state",
    "SELECT state, sum(id) AS n FROM orders WHERE customer = $1 GROUP BY state HAVING count(*) > 1 ORDER BY n",
    "SELECT sum(amount * price), avg(rate), count(DISTINCT item), min(price) FROM line WHERE orders = $1",
    "SELECT count(*) FILTER (WHERE amount > 2), bool_or(item IS NULL) FROM line WHERE orders = $1",
    "SELECT DISTINCT state, placed > DATE '2024-02-01' FROM orders WHERE customer = $1 ORDER BY 1, 2",
    "SELECT c.city, sum(l.amount) FROM customer c JOIN orders o ON o.customer = c.id \
     JOIN line l ON l.orders = o.id WHERE c.id = $1 GROUP BY c.city",
    "SELECT id FROM customer WHERE id = $1 UNION ALL SELECT id::int FROM orders WHERE customer = $1 ORDER BY 1",
    "SELECT item FROM line WHERE orders = $1 UNION SELECT id FROM item WHERE id < $1 AND id = 5 ORDER BY 1",
    "SELECT item FROM line WHERE orders = $1 INTERSECT SELECT item FROM line WHERE orders = $1 + 500 ORDER BY 1",
    "SELECT item FROM line WHERE orders = $1 EXCEPT SELECT item FROM line WHERE orders = $1 AND no = 2 ORDER BY 1",
    "WITH mine AS (SELECT * FROM orders WHERE customer = $1) \
     SELECT m.id, l.no FROM mine m JOIN line l ON l.orders = m.id ORDER BY 1, 2",
    "SELECT * FROM (VALUES (1, 'a'), ($1, 'b')) AS v(n, s) ORDER BY n, s",
];

fn counter(database: &Database, name: &str) -> u64 {
    let counters = database.counters();
    counters
        .iter()
        .find(|(n, _)| *n == name)
        .expect("a counter")
        .1
}

/// Executions without the query engine: by short plans, and of statements that the row executor
/// compiles from their syntax trees.
fn short_runs(database: &Database) -> u64 {
    counter(database, "short_plans_run") + counter(database, "statements_point")
}

/// What a statement has given, comparable.
fn seen(
    result: Result<strandline::QueryResult, Error>,
) -> Result<(Vec<String>, Vec<String>), String> {
    let result = result.map_err(|error| format!("{error:?}"))?;
    let fields = result.schema().fields().iter();
    let columns = fields.map(|f| format!("{} {}", f.name(), f.data_type()));
    Ok((columns.collect(), lines(&result)))
}

/// Runs a query with each value until it has a short plan, and then compares it with the full path.
/// Returns how often the short plan has run.
fn compare(database: &Database, c: &mut Connection, sql: &str, values: &[Value]) -> u64 {
    let t = match values.first() {
        Some(Value::BigInt(_)) => SqlType::BigInt,
        Some(Value::Text(_)) => SqlType::Text,
        _ => SqlType::Integer,
    };
    let types: &[Option<SqlType>] = if sql.contains("$1") { &[Some(t)] } else { &[] };
    let prepared = c.prepare_typed(sql, types).expect(sql);
    let before = short_runs(database);
    for value in values.iter().chain(values).chain(values) {
        let values = vec![value.clone(); types.len()];
        let short = seen(c.query_prepared(&prepared, values.clone()));
        c.use_row_executor(false);
        let full = seen(c.query_prepared(&prepared, values));
        c.use_row_executor(true);
        assert_eq!(short, full, "{sql} with {value:?}");
    }
    short_runs(database) - before
}

#[test]
fn every_form_gives_the_rows_of_the_full_path() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, SHOP);
    let values = [1, 12, 13, 20, 399, 2000, 0, -5].map(Value::Integer);
    let mut values = values.to_vec();
    values.push(Value::Null);
    let mut planned = Vec::new();
    for sql in SHORT {
        let runs = compare(&database, &mut c, sql, &values);
        // The first execution has a plan of its own, and the second makes the short one.
        if runs < 3 * values.len() as u64 - 2 {
            let explain = format!("EXPLAIN {}", sql.replace("$1", "5"));
            planned.push(format!("{runs} of {sql}: {:#?}", rows(&mut c, &explain)));
        }
    }
    assert_eq!(planned, [""; 0]);
    let texts = ["open", "none", "", "paid"].map(|s| Value::Text(s.into()));
    for sql in [
        "SELECT upper(shown) FROM state WHERE code = $1",
        "SELECT s.shown, c.name FROM state s LEFT JOIN customer c ON c.city = s.code AND c.id = 3 WHERE s.code = $1",
        "SELECT o.id FROM orders o JOIN state s ON s.code = o.state WHERE o.id = 4 AND s.code = $1",
    ] {
        assert!(compare(&database, &mut c, sql, &texts) > 0, "{sql}");
    }
}

/// The same in transactions that see another state than others, and beside their own changes.
#[test]
fn a_run_sees_its_snapshot_and_its_own_changes() {
    let database = database();
    let (mut c, mut other) = (database.connect(), database.connect());
    run(&mut c, SHOP);
    let values = [13, 20].map(Value::Integer);
    let mut older = database.connect();
    run(
        &mut older,
        &[
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
            "SELECT 1 FROM orders",
        ],
    );
    let before = short_runs(&database);
    let changes = [
        "UPDATE orders SET customer = 20 WHERE id IN (11, 12, 4)",
        "DELETE FROM line WHERE orders = 12 AND no = 1",
        "UPDATE customer SET id = 13 + 1000 WHERE id = 13",
        "INSERT INTO customer VALUES (13, 'new', 'city 1', 1)",
        "INSERT INTO orders VALUES (5000, 13, DATE '2024-03-01', 'open', NULL)",
    ];
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        run(&mut c, &[&format!("BEGIN ISOLATION LEVEL {level}")]);
        run(&mut c, &changes);
        for sql in SHORT {
            compare(&database, &mut c, sql, &values);
        }
        run(&mut c, &["ROLLBACK"]);
    }
    run(&mut other, &changes);
    run(
        &mut other,
        &["CREATE INDEX orders_state ON orders (state, customer)"],
    );
    for sql in SHORT {
        compare(&database, &mut older, sql, &values);
        compare(&database, &mut other, sql, &values);
    }
    assert!(short_runs(&database) > before + 800);
}

#[test]
fn the_past_is_not_read_by_a_short_plan() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, SHOP);
    let before = short_runs(&database);
    let sql = "SELECT upper(name) FROM customer FOR SYSTEM_TIME AS OF now() WHERE id = 4";
    for _ in 0..4 {
        assert_eq!(rows(&mut c, sql), ["NAME 4"]);
    }
    assert_eq!(short_runs(&database), before);
}

#[test]
fn a_serializable_transaction_notes_what_a_run_reads() {
    // A query, a change of another transaction, and whether it changes what the query reads.
    let cases = [
        (
            "SELECT c.name, o.id FROM customer c JOIN orders o ON o.customer = c.id WHERE c.id = 7",
            "INSERT INTO orders VALUES (9000, 7, NULL, NULL, NULL)",
            true,
        ),
        (
            "SELECT c.name, o.id FROM customer c JOIN orders o ON o.customer = c.id WHERE c.id = 7",
            "INSERT INTO orders VALUES (9000, 8, NULL, NULL, NULL)",
            false,
        ),
        (
            "SELECT c.name, o.id FROM customer c JOIN orders o ON o.customer = c.id WHERE c.id = 7",
            "UPDATE customer SET name = 'x' WHERE id = 7",
            true,
        ),
        (
            "SELECT upper(name) FROM customer WHERE id = 4000",
            "INSERT INTO customer VALUES (4000, 'new', NULL, NULL)",
            true,
        ),
        (
            "SELECT count(*), max(shown || code) FROM state",
            "INSERT INTO state VALUES ('new', 'is new')",
            true,
        ),
        (
            "SELECT count(*), sum(amount + 1) FROM line WHERE orders = 20 GROUP BY item",
            "DELETE FROM line WHERE orders = 20 AND no = 2",
            true,
        ),
        (
            "SELECT count(*), sum(amount + 1) FROM line WHERE orders = 20 GROUP BY item",
            "DELETE FROM line WHERE orders = 21 AND no = 2",
            false,
        ),
    ];
    let database = database();
    let (mut reader, mut writer) = (database.connect(), database.connect());
    run(&mut reader, SHOP);
    run(&mut reader, &["CREATE TABLE mine (k int PRIMARY KEY)"]);
    for (n, (read, change, conflicts)) in cases.into_iter().enumerate() {
        for _ in 0..3 {
            rows(&mut reader, read);
        }
        run(&mut reader, &["BEGIN ISOLATION LEVEL SERIALIZABLE"]);
        let before = short_runs(&database);
        rows(&mut reader, read);
        assert_eq!(short_runs(&database), before + 1, "{read}");
        run(&mut writer, &[change]);
        run(&mut reader, &[&format!("INSERT INTO mine VALUES ({n})")]);
        let outcome = reader.execute("COMMIT", ());
        assert_eq!(outcome.is_err(), conflicts, "{read}; {change}");
        run(&mut writer, &["DELETE FROM orders WHERE id = 9000"]);
    }
}

/// A change of definitions, settings, roles or rights between two executions.
#[test]
fn a_plan_is_of_the_present_definitions_and_rights() {
    let database = database();
    let mut root = database.connect();
    run(&mut root, SHOP);
    run(
        &mut root,
        &[
            "CREATE USER reader",
            "CREATE ROLE nobody",
            "GRANT nobody TO reader",
            "GRANT SELECT ON orders, customer TO reader",
        ],
    );
    let mut c = database.connect_as("reader").expect("connects");
    let sql = "SELECT o.id, upper(c.name) FROM orders o JOIN customer c ON c.id = o.customer WHERE o.id = 2";
    let short = |c: &mut Connection| {
        for _ in 0..3 {
            rows(c, sql);
        }
        let before = short_runs(&database);
        let found = rows(c, sql);
        assert_eq!(short_runs(&database), before + 1);
        found
    };
    assert_eq!(short(&mut c), ["2|NAME 3"]);
    run(&mut root, &["REVOKE SELECT ON customer FROM reader"]);
    for _ in 0..3 {
        fails(&mut c, sql, SqlState("42501"));
    }
    run(&mut root, &["GRANT SELECT ON customer TO reader"]);
    assert_eq!(short(&mut c), ["2|NAME 3"]);
    run(&mut c, &["SET ROLE nobody"]);
    for _ in 0..3 {
        fails(&mut c, sql, SqlState("42501"));
    }
    run(&mut c, &["SET ROLE NONE"]);
    assert_eq!(short(&mut c), ["2|NAME 3"]);
    run(
        &mut root,
        &[
            "ALTER TABLE customer RENAME COLUMN name TO called",
            "ALTER TABLE customer ADD COLUMN name text DEFAULT 'added'",
        ],
    );
    assert_eq!(short(&mut c), ["2|ADDED"]);
    run(&mut root, &["DROP INDEX orders_customer", "ANALYZE orders"]);
    assert_eq!(short(&mut c), ["2|ADDED"]);
    run(
        &mut root,
        &["ALTER TABLE customer DROP CONSTRAINT customer_pkey"],
    );
    let before = short_runs(&database);
    for _ in 0..4 {
        assert_eq!(rows(&mut c, sql), ["2|ADDED"]);
    }
    assert_eq!(short_runs(&database), before, "400 rows without a key");
    run(&mut root, &["DROP TABLE customer"]);
    fails(&mut c, sql, SqlState::UNDEFINED_TABLE);
}

#[test]
fn a_run_stops_where_rows_are_many() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, SHOP);
    run(
        &mut c,
        &[
            "INSERT INTO orders SELECT n, 1, NULL, 'many', NULL FROM generate_series(10001, 13000) AS s(n)",
        ],
    );
    let sql =
        "SELECT state, count(*) FROM orders WHERE customer = $1 GROUP BY state ORDER BY state";
    let prepared = c
        .prepare_typed(sql, &[Some(SqlType::Integer)])
        .expect("prepares");
    let mut ask = |customer: i32| {
        let found = c.query_prepared(&prepared, (customer,));
        lines(&found.expect("runs"))
    };
    for _ in 0..3 {
        assert_eq!(ask(2), ["paid|5"]);
    }
    let (run, stopped) = (
        short_runs(&database),
        counter(&database, "short_plans_stopped"),
    );
    assert_eq!(ask(1).first().map(String::as_str), Some("many|3000"));
    assert_eq!(ask(2), ["paid|5"]);
    assert_eq!(counter(&database, "short_plans_stopped"), stopped + 1);
    assert_eq!(short_runs(&database), run + 1);
    // A plan that only stops is given up.
    for _ in 0..20 {
        assert_eq!(ask(1).len(), 2);
    }
    let stops = counter(&database, "short_plans_stopped") - stopped;
    assert!(stops < 10, "{stops}");
}

/// A small table that grows is left to the full path.
#[test]
fn a_table_that_has_grown_is_not_small() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, SHOP);
    let sql = "SELECT count(*), max(length(shown)) FROM state";
    for _ in 0..4 {
        assert_eq!(rows(&mut c, sql), ["3|7"]);
    }
    let before = short_runs(&database);
    assert_eq!(rows(&mut c, sql), ["3|7"]);
    assert_eq!(short_runs(&database), before + 1);
    run(
        &mut c,
        &["INSERT INTO state SELECT 's' || n, 'x' FROM generate_series(1, 1000) AS s(n)"],
    );
    for _ in 0..4 {
        assert_eq!(rows(&mut c, sql), ["1003|7"]);
    }
    assert_eq!(short_runs(&database), before + 1);
}

#[test]
fn errors_are_worded_by_the_full_path() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, SHOP);
    for sql in [
        "SELECT 10 / (id - $1) FROM customer WHERE id = $1",
        "SELECT id + 2147483647 FROM customer WHERE id = $1",
        "SELECT name::int FROM customer WHERE id = $1",
        "SELECT (SELECT id FROM orders WHERE customer = $1) FROM customer WHERE id = $1",
        "SELECT sum(id) / 0 FROM orders WHERE customer = $1",
        "SELECT id FROM customer WHERE id = $1 AND 1 / (id - $1) > 0",
    ] {
        let values = [1, 2, 3].map(Value::Integer);
        compare(&database, &mut c, sql, &values);
    }
    let sql = "SELECT 10 / (id - 4) FROM customer WHERE id = $1";
    let values = [3, 3, 3, 4, 3].map(Value::Integer);
    assert!(compare(&database, &mut c, sql, &values) > 5);
}

/// In a block an error of the full path fails the block, and a cancelled statement as well.
#[test]
fn a_cancelled_run_fails_its_block() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, SHOP);
    let sql =
        "SELECT o.id + 1, c.name FROM orders o JOIN customer c ON c.id = o.customer WHERE o.id = 2";
    for _ in 0..3 {
        rows(&mut c, sql);
    }
    run(&mut c, &["BEGIN"]);
    let handle = c.cancel_handle();
    let scope = c.cancel_scope();
    handle.cancel();
    fails(&mut c, sql, SqlState::QUERY_CANCELED);
    drop(scope);
    fails(&mut c, sql, SqlState("25P02"));
    run(&mut c, &["ROLLBACK"]);
    assert_eq!(rows(&mut c, sql), ["3|name 3"]);
}

/// A kept plan has the moment of its execution, and LIMIT the value of its execution.
#[test]
fn moments_and_limits_are_those_of_the_execution() {
    let (database, clock) = database_with_clock();
    let mut c = database.connect();
    run(&mut c, SHOP);
    let sql = "SELECT id + 0, now()::text, current_date FROM orders WHERE customer = 7 AND seen > now() \
               ORDER BY seen LIMIT $1 OFFSET $2";
    let types = [Some(SqlType::Integer); 2];
    let prepared = c.prepare_typed(sql, &types).expect("prepares");
    let before = short_runs(&database);
    for day in 0..20 {
        clock.set(1_704_067_200_000_000 + day * 86_400_000_000);
        for (limit, offset) in [(2, 0), (1, 1), (0, 0), (50, 1)] {
            let short = seen(c.query_prepared(&prepared, (limit, offset)));
            c.use_row_executor(false);
            let full = seen(c.query_prepared(&prepared, (limit, offset)));
            c.use_row_executor(true);
            assert_eq!(short, full, "day {day}, LIMIT {limit} OFFSET {offset}");
        }
    }
    assert!(short_runs(&database) > before + 70);
    let none = (-1, 0);
    let short = seen(c.query_prepared(&prepared, none));
    c.use_row_executor(false);
    assert_eq!(short, seen(c.query_prepared(&prepared, none)));
}

#[test]
fn what_depends_on_time_or_session_is_no_short_plan() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, SHOP);
    let before = counter(&database, "short_plans_run");
    for sql in [
        "SELECT random() FROM customer WHERE id = 1",
        "SELECT current_user, id FROM customer WHERE id = 1",
        "SELECT id, pg_backend_pid() FROM customer WHERE id = 1",
        "SELECT id, rank() OVER (ORDER BY id) FROM customer WHERE id = 1",
        "SELECT id FROM customer WHERE name LIKE '%7' ORDER BY id",
        "SELECT id FROM customer WHERE id = 1 FOR UPDATE",
    ] {
        for _ in 0..4 {
            rows(&mut c, sql);
        }
    }
    assert_eq!(counter(&database, "short_plans_run"), before);
}

#[test]
fn explain_shows_the_operators_and_their_rows() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, SHOP);
    let sql =
        "SELECT c.name, o.id FROM customer c JOIN orders o ON o.customer = c.id WHERE c.id = 7";
    let shown = rows(&mut c, &format!("EXPLAIN {sql}"));
    assert_eq!(shown[0], "RowExecutor: plan");
    let text = shown.join("\n");
    for part in [
        "Join: inner, of all pairs",
        "Lookup: customer, key=customer_pkey (id =)",
        "Lookup: orders, index=orders_customer (customer =)",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let analyzed = rows(&mut c, &format!("EXPLAIN ANALYZE {sql}")).join("\n");
    let is_counted = analyzed.contains("Lookup: customer, key=customer_pkey (id =), rows=1")
        && analyzed.contains("(customer =), rows=5");
    assert!(is_counted, "{analyzed}");
    c.use_row_executor(false);
    let shown = rows(&mut c, &format!("EXPLAIN {sql}"));
    assert!(!shown[0].starts_with("RowExecutor"), "{shown:?}");
}

/// A plan that would need much of the caller's stack is left to the query threads.
#[test]
fn deep_expressions_are_no_short_plan() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, SHOP);
    let before = counter(&database, "short_plans_run");
    let deep = format!(
        "SELECT id{} FROM customer WHERE id = 3",
        " + length(name)".repeat(300)
    );
    for _ in 0..4 {
        assert_eq!(rows(&mut c, &deep), ["1803"]);
    }
    assert_eq!(counter(&database, "short_plans_run"), before);
}
