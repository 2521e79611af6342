//! The shop's changes of rows, and what locks rows.

use super::case::{Statement, statement};
use super::tables::Sizes;
use crate::script::Draw::{
    self, After, Between, Cents, Moment, Run, RunText, RunTimes, Text, Word,
};

/// The first number of the orders that statements add.
const NEW_ORDERS: i64 = 100_000_000;

/// SELECT with a locking clause.
pub fn locks(sizes: Sizes) -> Vec<Statement> {
    vec![
        statement(
            "FOR UPDATE by key",
            "SELECT id, balance FROM customers WHERE id = $1 FOR UPDATE",
            vec![sizes.customer()],
            1,
        )
        .not_sqlite(),
        statement(
            "FOR UPDATE SKIP LOCKED LIMIT 1",
            "SELECT id, payload FROM jobs WHERE state = 'ready' ORDER BY priority, id LIMIT 1 \
             FOR UPDATE SKIP LOCKED",
            vec![],
            1,
        )
        .not_sqlite(),
    ]
}

/// UPDATE.
pub fn changes(sizes: Sizes) -> Vec<Statement> {
    let (customers, items) = (sizes.customers, sizes.items());
    vec![
        statement(
            "UPDATE by key",
            "UPDATE customers SET balance = balance + $1 WHERE id = $2",
            vec![Cents(1, 1_000), Between(0, customers)],
            0,
        ),
        statement(
            "UPDATE with CASE",
            "UPDATE items SET stock = CASE WHEN stock >= $1 THEN stock - $1 ELSE stock + 91 END \
             WHERE id = $2",
            vec![Between(1, 10), Between(0, items)],
            0,
        ),
        statement(
            "UPDATE of two rows",
            "UPDATE customers SET balance = balance + 1 WHERE id IN ($1, $2)",
            vec![Between(0, customers / 2), Between(customers / 2, customers)],
            0,
        ),
        statement(
            "UPDATE of an order's lines",
            "UPDATE lines SET quantity = quantity + 1 WHERE order_id = $1 AND quantity < 1000000",
            vec![sizes.order()],
            0,
        ),
        statement(
            "UPDATE … FROM",
            "UPDATE orders SET status = CASE WHEN c.active THEN 'paid' ELSE 'held' END \
             FROM customers c WHERE c.id = orders.customer_id AND orders.id = $1",
            vec![sizes.order()],
            0,
        ),
        statement(
            "UPDATE … RETURNING",
            "UPDATE items SET stock = stock - 1 WHERE id = $1 AND stock > 0 RETURNING stock",
            vec![Between(0, items)],
            1,
        ),
        statement(
            "UPDATE of three columns, ORM",
            r#"UPDATE "orders" SET "status" = $1, "total" = $2, "placed_at" = $3
            WHERE "orders"."id" = $4"#,
            vec![
                Word("sent".into()),
                Cents(1, 100_000),
                Moment(0, 1_000_000),
                sizes.order(),
            ],
            0,
        ),
    ]
}

/// DELETE, and a queue.
pub fn removals(_: Sizes) -> Vec<Statement> {
    vec![
        statement(
            "DELETE by key",
            "DELETE FROM carts WHERE id = $1",
            vec![Run],
            0,
        )
        .refill("INSERT INTO carts SELECT n, n % 1000, n % 77 FROM {numbers}"),
        statement(
            "DELETE by key prefix RETURNING",
            "DELETE FROM baskets WHERE owner = $1 RETURNING item_id, quantity",
            vec![Run],
            3,
        )
        .refill(
            "INSERT INTO baskets SELECT n, 1, 1 FROM {numbers} UNION ALL SELECT n, 2, 1 \
             FROM {numbers} UNION ALL SELECT n, 3, 2 FROM {numbers}",
        ),
        statement(
            "take a job of a queue",
            "UPDATE jobs SET state = 'running', attempts = attempts + 1 WHERE id = \
             (SELECT id FROM jobs WHERE state = 'ready' ORDER BY priority, id LIMIT 1 \
             FOR UPDATE SKIP LOCKED) RETURNING id, payload",
            vec![],
            1,
        )
        .sqlite(
            "UPDATE jobs SET state = 'running', attempts = attempts + 1 WHERE id = \
             (SELECT id FROM jobs WHERE state = 'ready' ORDER BY priority, id LIMIT 1) \
             RETURNING id, payload",
        )
        .refill("INSERT INTO jobs SELECT n, 'ready', n % 3, 'payload ' || n, 0 FROM {numbers}"),
    ]
}

/// The values of one new event, the first of which is its number.
fn event(number: Draw) -> [Draw; 5] {
    let payload = Text("payload ".into(), 0, 1_000, String::new());
    [
        number,
        Between(0, 1_000),
        Word("click".into()),
        payload,
        Moment(0, 1_000_000),
    ]
}

/// INSERT of so many events.
fn insert_events(name: &'static str, rows: i64) -> Statement {
    let places = (0..rows).map(|row| {
        let places: Vec<String> = (1..=5).map(|no| format!("${}", row * 5 + no)).collect();
        format!("({})", places.join(", "))
    });
    let places: Vec<String> = places.collect();
    let sql = format!(
        "INSERT INTO events (id, customer_id, kind, payload, at) VALUES {}",
        places.join(", ")
    );
    // Each statement has numbers of its own: 1,000 times as many as there are runs.
    let numbers = (0..rows).map(|row| RunTimes(1_000, rows * 100 + row));
    statement(name, &sql, numbers.flat_map(event).collect(), 0)
}

/// INSERT, with and without ON CONFLICT.
pub fn inserts(sizes: Sizes) -> Vec<Statement> {
    let page = || Text("page ".into(), 1_000_000, 1_010_000, String::new());
    let order = "INSERT INTO orders (id, customer_id, status, total, placed_at) \
                 VALUES ($1, $2, $3, $4, $5) RETURNING id, status";
    vec![
        insert_events("INSERT of a row", 1),
        insert_events("INSERT of 5 rows", 5),
        insert_events("INSERT of 20 rows", 20),
        statement(
            "INSERT with a foreign key, RETURNING",
            order,
            vec![
                RunTimes(2, NEW_ORDERS),
                sizes.customer(),
                Word("new".into()),
                Cents(1, 100_000),
                Moment(0, 1_000_000),
            ],
            1,
        ),
        statement(
            "INSERT that numbers its row, ORM",
            r#"INSERT INTO "notes" ("body", "created_at") VALUES ($1, $2) RETURNING "id""#,
            vec![RunText("note ".into()), Moment(0, 1_000_000)],
            1,
        ),
        statement(
            "upsert by expression",
            "INSERT INTO counters (name, day, n) VALUES ($1, 1, $2) \
             ON CONFLICT (name, day) DO UPDATE SET n = counters.n * 2 % 1000 + excluded.n",
            vec![page(), Between(1, 100)],
            0,
        ),
        statement(
            "upsert RETURNING",
            "INSERT INTO counters (name, day, n) VALUES ($1, 1, $2) \
             ON CONFLICT (name, day) DO UPDATE SET n = greatest(counters.n, excluded.n) \
             RETURNING n",
            vec![page(), Between(1, 100)],
            1,
        )
        .sqlite(
            "INSERT INTO counters (name, day, n) VALUES ($1, 1, $2) \
             ON CONFLICT (name, day) DO UPDATE SET n = max(counters.n, excluded.n) RETURNING n",
        ),
        statement(
            "upsert DO NOTHING",
            "INSERT INTO counters (name, day, n) VALUES ($1, 1, 0) ON CONFLICT DO NOTHING",
            vec![page()],
            0,
        ),
    ]
}

/// WITH around changes of rows.
pub fn with_changes(sizes: Sizes) -> Vec<Statement> {
    vec![
        statement(
            "WITH … UPDATE",
            "WITH c AS (SELECT id FROM customers WHERE email = $1) \
             UPDATE customers SET active = true FROM c WHERE customers.id = c.id \
             RETURNING customers.id",
            vec![sizes.email()],
            1,
        ),
        statement(
            "WITH (UPDATE … RETURNING) SELECT",
            "WITH taken AS (UPDATE items SET stock = stock - 1 WHERE id = $1 RETURNING id, stock) \
             SELECT id, stock FROM taken",
            vec![Between(0, sizes.items())],
            1,
        )
        .not_sqlite(),
        statement(
            "WITH (INSERT … RETURNING) INSERT",
            "WITH o AS (INSERT INTO orders (id, customer_id, status, total, placed_at) \
             VALUES ($1, $2, 'new', 12.5, CURRENT_TIMESTAMP) RETURNING id) \
             INSERT INTO events (id, customer_id, kind, payload, at) \
             SELECT id, $3, 'order', 'new', CURRENT_TIMESTAMP FROM o",
            vec![RunTimes(2, NEW_ORDERS + 1), sizes.customer(), After(0)],
            0,
        )
        .not_sqlite(),
    ]
}
