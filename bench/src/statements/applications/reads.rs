//! The shop's queries.

use super::case::{Statement, statement};
use super::tables::Sizes;
use crate::script::Draw;
use crate::script::Draw::{After, Between, Ints, Text};

/// Queries by keys of one table.
pub fn of_keys(sizes: Sizes) -> Vec<Statement> {
    let part = |no: i64| Between(no * sizes.customers / 5, (no + 1) * sizes.customers / 5);
    vec![
        statement(
            "SELECT by key",
            "SELECT id, email, name, city, balance FROM customers WHERE id = $1",
            vec![sizes.customer()],
            1,
        ),
        statement(
            "SELECT by key with functions",
            "SELECT id, upper(name), coalesce(note, 'none'), round(balance * 1.2, 2) \
             FROM customers WHERE id = $1",
            vec![sizes.customer()],
            1,
        ),
        statement(
            "SELECT by a unique text",
            "SELECT id, name, created_at FROM customers WHERE email = $1",
            vec![sizes.email()],
            1,
        ),
        statement(
            "SELECT of 5 keys by IN",
            "SELECT id, name FROM customers WHERE id IN ($1, $2, $3, $4, $5)",
            (0..5).map(part).collect(),
            5,
        ),
        statement(
            "SELECT of 10 keys by = ANY($1)",
            "SELECT id, name FROM customers WHERE id = ANY($1)",
            vec![Ints(10, 0, sizes.customers)],
            10,
        )
        .not_sqlite(),
        statement(
            "SELECT by key or unique text",
            "SELECT id, name FROM customers WHERE id = $1 OR email = $2",
            vec![sizes.customer(), sizes.email()],
            None,
        ),
    ]
}

/// Ranges and aggregates of one table.
pub fn of_ranges(sizes: Sizes) -> Vec<Statement> {
    let order = || Between(0, sizes.orders() - 200);
    vec![
        statement(
            "BETWEEN, ORDER BY, LIMIT",
            "SELECT id, total FROM orders WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT 3",
            vec![order(), After(100)],
            3,
        ),
        statement(
            "lines of an order by key prefix",
            "SELECT line, item_id, quantity, price FROM lines WHERE order_id = $1 ORDER BY line",
            vec![order()],
            10,
        ),
        statement(
            "latest orders of a customer",
            "SELECT id, status, total FROM orders WHERE customer_id = $1 \
             ORDER BY placed_at DESC LIMIT 3",
            vec![sizes.customer()],
            3,
        ),
        statement(
            "COUNT of a customer's orders",
            "SELECT count(*) FROM orders WHERE customer_id = $1",
            vec![sizes.customer()],
            1,
        ),
        statement(
            "SUM of an order's lines",
            "SELECT sum(quantity * price), count(*) FROM lines WHERE order_id = $1",
            vec![order()],
            1,
        ),
        statement(
            "GROUP BY of a customer's orders",
            "SELECT status, count(*), sum(total) FROM orders WHERE customer_id = $1 \
             GROUP BY status ORDER BY status",
            vec![sizes.customer()],
            None,
        ),
        statement(
            "DISTINCT of a customer's orders",
            "SELECT DISTINCT status FROM orders WHERE customer_id = $1 ORDER BY status",
            vec![sizes.customer()],
            None,
        ),
    ]
}

/// Pages, patterns and documents.
pub fn of_pages(sizes: Sizes) -> Vec<Statement> {
    let order = || Between(0, sizes.orders() - 200);
    vec![
        statement(
            "pagination by OFFSET",
            "SELECT id, sku, title, price FROM items ORDER BY sku LIMIT 20 OFFSET $1",
            vec![Between(0, 200.min(sizes.items() - 20))],
            20,
        ),
        statement(
            "pagination by key",
            "SELECT id, total FROM orders WHERE customer_id = $1 AND id > $2 ORDER BY id LIMIT 2",
            vec![sizes.customer(), After(0)],
            2,
        ),
        statement(
            "pagination by two columns",
            "SELECT order_id, line FROM lines WHERE (order_id, line) > ($1, $2) \
             ORDER BY order_id, line LIMIT 10",
            vec![order(), Between(1, 10)],
            10,
        ),
        statement(
            "LIKE 'x%' by index",
            "SELECT id, sku, title FROM items WHERE sku LIKE $1 ORDER BY sku",
            vec![sku_prefix(sizes)],
            10,
        )
        .not_sqlite(),
        statement(
            "a field of json by key",
            "SELECT id, json_extract_path_text(details, 'color') FROM items WHERE id = $1",
            vec![Between(0, sizes.items())],
            1,
        )
        .sqlite("SELECT id, json_extract(details, '$.color') FROM items WHERE id = $1"),
    ]
}

/// The first digits of ten items' numbers, as a pattern.
fn sku_prefix(sizes: Sizes) -> Draw {
    Text(
        "SKU-".into(),
        100_000,
        100_000 + sizes.items() / 10,
        "%".into(),
    )
}

/// Joins, subqueries and set operations.
pub fn of_several_tables(sizes: Sizes) -> Vec<Statement> {
    let mut statements = vec![
        statement(
            "join of two tables by key",
            "SELECT o.id, o.total, c.name FROM orders o \
             JOIN customers c ON c.id = o.customer_id WHERE o.id = $1",
            vec![sizes.order()],
            1,
        ),
        statement(
            "join of three tables by key",
            "SELECT l.line, i.title, l.quantity * l.price AS amount, o.status FROM orders o \
             JOIN lines l ON l.order_id = o.id JOIN items i ON i.id = l.item_id \
             WHERE o.id = $1 ORDER BY l.line",
            vec![sizes.order()],
            10,
        ),
        statement(
            "join of four tables by key",
            "SELECT o.id, c.name, l.line, i.title, l.quantity FROM orders o, customers c, lines l, \
             items i WHERE o.id = $1 AND c.id = o.customer_id AND l.order_id = o.id \
             AND i.id = l.item_id AND l.line = 3",
            vec![sizes.order()],
            1,
        ),
        statement(
            "LEFT JOIN with a condition",
            "SELECT c.id, c.name, o.id AS order_id FROM customers c \
             LEFT JOIN orders o ON o.customer_id = c.id AND o.status = 'new' WHERE c.id = $1",
            vec![sizes.customer()],
            None,
        ),
        statement(
            "join with GROUP BY",
            "SELECT c.id, c.name, count(o.id), sum(o.total) FROM customers c \
             JOIN orders o ON o.customer_id = c.id WHERE c.id = $1 GROUP BY c.id, c.name",
            vec![sizes.customer()],
            1,
        ),
        statement(
            "UNION ALL of two keys",
            "SELECT id, name FROM customers WHERE id = $1 \
             UNION ALL SELECT id, title FROM items WHERE id = $2",
            vec![sizes.customer(), Between(0, sizes.items())],
            2,
        ),
    ];
    statements.extend(subqueries(sizes));
    statements
}

fn subqueries(sizes: Sizes) -> Vec<Statement> {
    vec![
        statement(
            "EXISTS by index",
            "SELECT c.id, c.name FROM customers c WHERE c.id = $1 \
             AND EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id)",
            vec![sizes.customer()],
            1,
        ),
        statement(
            "NOT EXISTS by index",
            "SELECT c.id, c.name FROM customers c WHERE c.id = $1 AND NOT EXISTS \
             (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.status = 'returned')",
            vec![sizes.customer()],
            1,
        ),
        statement(
            "EXISTS as the answer",
            "SELECT EXISTS (SELECT 1 FROM orders WHERE customer_id = $1 AND status = 'new')",
            vec![sizes.customer()],
            1,
        ),
        statement(
            "IN (SELECT …)",
            "SELECT id, title FROM items WHERE id IN \
             (SELECT item_id FROM lines WHERE order_id = $1) ORDER BY id",
            vec![sizes.order()],
            10,
        ),
        statement(
            "scalar subquery",
            "SELECT id, name, (SELECT max(total) FROM orders WHERE customer_id = $1) AS most \
             FROM customers WHERE id = $1",
            vec![sizes.customer()],
            1,
        ),
        statement(
            "correlated subquery",
            "SELECT o.id, (SELECT count(*) FROM lines l WHERE l.order_id = o.id) AS lines \
             FROM orders o WHERE o.customer_id = $1 ORDER BY o.id",
            vec![sizes.customer()],
            None,
        ),
        statement(
            "WITH … SELECT",
            "WITH latest AS (SELECT id, total FROM orders WHERE customer_id = $1 \
             ORDER BY id DESC LIMIT 2) \
             SELECT latest.id, latest.total, l.item_id FROM latest \
             JOIN lines l ON l.order_id = latest.id WHERE l.line = 1 ORDER BY latest.id",
            vec![sizes.customer()],
            None,
        ),
    ]
}

/// Statements as Django and SQLAlchemy write them.
pub fn of_python(sizes: Sizes) -> Vec<Statement> {
    vec![
        statement(
            "Django: get()",
            r#"SELECT "customers"."id", "customers"."email", "customers"."name",
            "customers"."city", "customers"."balance", "customers"."active",
            "customers"."created_at", "customers"."note" FROM "customers"
            WHERE "customers"."id" = $1 LIMIT 21"#,
            vec![sizes.customer()],
            1,
        ),
        statement(
            "Django: select_related()",
            r#"SELECT "orders"."id", "orders"."customer_id", "orders"."status", "orders"."total",
            "orders"."placed_at", "customers"."id", "customers"."email", "customers"."name"
            FROM "orders" INNER JOIN "customers" ON ("orders"."customer_id" = "customers"."id")
            WHERE "orders"."id" = $1 LIMIT 21"#,
            vec![sizes.order()],
            1,
        ),
        statement(
            "Django: exists()",
            r#"SELECT 1 AS "a" FROM "orders" WHERE "orders"."customer_id" = $1 LIMIT 1"#,
            vec![sizes.customer()],
            1,
        ),
        statement(
            "SQLAlchemy: lazy load",
            "SELECT orders.id AS orders_id, orders.customer_id AS orders_customer_id, \
             orders.status AS orders_status, orders.total AS orders_total, \
             orders.placed_at AS orders_placed_at FROM orders \
             WHERE orders.customer_id = $1 ORDER BY orders.id",
            vec![sizes.customer()],
            None,
        ),
        statement(
            "SQLAlchemy: selectinload()",
            "SELECT lines.order_id AS lines_order_id, lines.line AS lines_line, \
             lines.item_id AS lines_item_id, lines.quantity AS lines_quantity, \
             lines.price AS lines_price FROM lines WHERE lines.order_id IN ($1, $2, $3)",
            vec![Between(0, sizes.orders() - 2), After(1), After(1)],
            30,
        ),
    ]
}

/// Statements as Rails and Prisma write them.
pub fn of_other_orms(sizes: Sizes) -> Vec<Statement> {
    vec![
        statement(
            "Rails: last",
            r#"SELECT "orders".* FROM "orders" WHERE "orders"."customer_id" = $1
            ORDER BY "orders"."id" DESC LIMIT $2"#,
            vec![sizes.customer(), Between(1, 2)],
            1,
        ),
        statement(
            "Rails: exists?",
            r#"SELECT 1 AS one FROM "customers" WHERE "customers"."email" = $1 LIMIT $2"#,
            vec![sizes.email(), Between(1, 2)],
            1,
        ),
        statement(
            "Prisma: findUnique",
            r#"SELECT "public"."customers"."id", "public"."customers"."email",
            "public"."customers"."name" FROM "public"."customers"
            WHERE ("public"."customers"."id" = $1 AND 1=1) LIMIT $2 OFFSET $3"#,
            vec![sizes.customer(), Between(1, 2), Between(0, 1)],
            1,
        )
        .not_sqlite(),
    ]
}
