//! Orders with ten lines and two foreign keys, one transaction each: over a socket beside
//! PostgreSQL, in process beside SQLite with `foreign_keys` on.
//!
//! Every point starts with empty tables. Afterwards each order has its lines, and no row lacks its
//! parent.

use super::{Bench, Case, of_sides};
use crate::Result;
use crate::in_process::{self, Sqlite};
use crate::report::{Goal, Report};
use crate::rounds::{Spread, interleave};
use crate::script::{Draw, Load, Script, Step};
use serde_json::json;
use std::cell::RefCell;
use std::path::Path;
use strandline::Database;

/// Lines of an order.
const LINES: i64 = 10;
const CUSTOMERS: i64 = 10_000;

/// The tables; every engine has the same indexes (see [`index_of_customers`]).
const TABLES: [&str; 3] = [
    "CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, \
     customer_id bigint NOT NULL REFERENCES customers, total bigint NOT NULL)",
    "CREATE TABLE lines (order_id bigint NOT NULL REFERENCES orders, line bigint NOT NULL, \
     item bigint NOT NULL, quantity bigint NOT NULL, PRIMARY KEY (order_id, line))",
];

/// Orders, lines, and rows without their parent.
const CHECK: &str = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM lines), \
    (SELECT count(*) FROM lines WHERE NOT EXISTS (SELECT 1 FROM orders WHERE id = order_id)) + \
    (SELECT count(*) FROM orders WHERE NOT EXISTS \
     (SELECT 1 FROM customers WHERE customers.id = customer_id))";

/// One load at one durability.
#[derive(Clone, Copy)]
struct Point {
    clients: u64,
    durable: bool,
}

const POINTS: [Point; 4] = [
    Point::new(1, true),
    Point::new(8, true),
    Point::new(1, false),
    Point::new(8, false),
];

impl Point {
    const fn new(clients: u64, durable: bool) -> Self {
        Self { clients, durable }
    }

    fn durability(self) -> &'static str {
        if self.durable {
            "durable"
        } else {
            "not durable"
        }
    }

    /// A round's load on tables that have so many orders.
    fn load(self, bench: &Bench, round: u64, orders: i64) -> Load {
        Load {
            script: script(),
            clients: self.clients,
            seconds: bench.round.as_secs_f64(),
            seed: bench.seed + (round << 8),
            first: orders,
            most: None,
        }
    }

    fn add(
        self,
        bench: &Bench,
        report: &mut Report,
        (place, peer, settings): (&str, &str, &str),
        figures: [Spread; 2],
    ) -> Result<()> {
        let (clients, durability) = (self.clients, self.durability());
        let plural = if clients == 1 { "" } else { "s" };
        let case = Case {
            name: &format!("order with 10 lines, {durability}, {clients} client{plural}, {place}"),
            unit: "orders/s",
            peer,
            theirs: Some(figures[1]),
            goal: Some(Goal::AtLeast(1.0)),
            rows: CUSTOMERS as u64,
            settings: json!({
                "clients": clients, "durable": self.durable, "prepared": true, "lines": LINES,
                "foreign_keys": 2, "theirs": settings,
            }),
        };
        bench.add(report, &case, figures[0])
    }
}

/// A figure per point and place.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    for point in POINTS {
        served(bench, report, point)?;
    }
    let mut sqlite = Sqlite::start(&bench.directory)?;
    for point in POINTS {
        in_process(bench, report, &mut sqlite, point)?;
    }
    Ok(())
}

/// The transaction.
fn script() -> Script {
    let step = |sql: &str, values: &[Draw], times| Step {
        sql: sql.to_string(),
        values: values.to_vec(),
        times,
        rows: Some(0),
    };
    let (customer, total) = (Draw::Between(0, CUSTOMERS), Draw::Between(1, 100_000));
    let (item, quantity) = (Draw::Between(0, 100_000), Draw::Between(1, 10));
    Script {
        steps: vec![
            step(
                "INSERT INTO orders (id, customer_id, total) VALUES ($1, $2, $3)",
                &[Draw::Run, customer, total],
                1,
            ),
            step(
                "INSERT INTO lines (order_id, line, item, quantity) VALUES ($1, $2, $3, $4)",
                &[Draw::Run, Draw::Execution, item, quantity],
                LINES,
            ),
        ],
        is_transaction: true,
    }
}

/// The index of the referencing column, which ours makes by itself; the lines' key serves theirs.
fn index_of_customers() -> &'static str {
    "CREATE INDEX orders_customer_id_fkey_idx ON orders (customer_id)"
}

/// The statement that fills the customers, who come from a query of numbers.
fn fill_customers(numbers: &str) -> String {
    format!("INSERT INTO customers SELECT n, 'customer ' || n FROM {numbers}")
}

/// Fails unless there are orders, each with all its lines, and every row has its parent. Returns
/// the orders.
fn checked(name: &str, found: &[i64]) -> Result<i64> {
    match *found {
        [orders, lines, 0] if orders > 0 && lines == LINES * orders => Ok(orders),
        [orders, lines, orphans] => {
            let found = format!("{orders} orders, {lines} lines and {orphans} orphans");
            Err(format!("{name} has {found}").into())
        }
        _ => Err(format!("{name} answers the check with {found:?}").into()),
    }
}

fn served(bench: &mut Bench, report: &mut Report, point: Point) -> Result<()> {
    let fill = fill_customers(&format!("generate_series(0, {}) AS g (n)", CUSTOMERS - 1));
    for (no, client) in bench.servers()?.iter().enumerate() {
        client.run("DROP TABLE IF EXISTS lines, orders, customers")?;
        for table in TABLES {
            client.run(table)?;
        }
        if no == 1 {
            client.run(index_of_customers())?;
        }
        client.run(&fill)?;
        client.run("CHECKPOINT")?;
    }
    let durability = if point.durable { "on" } else { "off" };
    let settings = format!("SET synchronous_commit = {durability}");
    let orders = RefCell::new([0; 2]);
    let figures = of_sides(
        bench,
        bench.rounds.min(3),
        &[0, 1],
        |bench, client, side, round| {
            let load = point.load(bench, round, orders.borrow()[side]);
            let rate = client.rate(&load, &settings)?;
            let found = client.numbers(CHECK)?;
            orders.borrow_mut()[side] = checked(client.name(), &found)?;
            Ok(rate)
        },
    )?;
    let peer = bench.servers()?[1].name().to_string();
    point.add(
        bench,
        report,
        ("served", &peer, &settings),
        [figures[0], figures[1]],
    )
}

fn in_process(bench: &Bench, report: &mut Report, sqlite: &mut Sqlite, point: Point) -> Result<()> {
    let directory = tempfile::tempdir_in(&bench.directory)?;
    let ours = ours(&directory.path().join("orders.strandline"))?;
    sqlite.clear()?;
    for table in TABLES {
        // Its rows follow a key of this type only.
        sqlite.numbers(&table.replace("id bigint PRIMARY KEY", "id INTEGER PRIMARY KEY"))?;
    }
    let numbers = format!(
        "(WITH RECURSIVE g (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM g WHERE n < {}) \
         SELECT n FROM g)",
        CUSTOMERS - 1
    );
    sqlite.numbers(index_of_customers())?;
    sqlite.numbers(&fill_customers(&numbers))?;
    let (name, settings) = (sqlite.peer.name.clone(), sqlite.peer.settings.clone());
    let (mut our_orders, mut their_orders) = (0, 0);
    let figures = interleave(
        bench.rounds.min(3),
        vec![
            Box::new(|round| {
                let load = point.load(bench, round, our_orders);
                let rate = in_process::rate(&ours, &load, point.durable)?;
                our_orders = checked("strandline", &in_process::numbers(&ours, CHECK)?)?;
                Ok(rate)
            }),
            Box::new(|round| {
                let load = point.load(bench, round, their_orders);
                let rate = sqlite.rate(&load, point.durable)?;
                their_orders = checked(&name, &sqlite.numbers(CHECK)?)?;
                Ok(rate)
            }),
        ],
    )?;
    let settings = format!("foreign_keys, {settings}");
    point.add(
        bench,
        report,
        ("in process", &name, &settings),
        [figures[0], figures[1]],
    )
}

fn ours(path: &Path) -> Result<Database> {
    let database = Database::builder(path).build()?;
    let mut connection = database.connect();
    for table in TABLES {
        connection.execute(table, ())?;
    }
    let numbers = format!("generate_series(0, {}) AS g (n)", CUSTOMERS - 1);
    connection.execute(&fill_customers(&numbers), ())?;
    Ok(database)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_lines_and_orphans_are_found() {
        assert_eq!(checked("s", &[3, 30, 0]).unwrap(), 3);
        for found in [[3, 29, 0], [3, 31, 0], [3, 30, 1], [0, 0, 0]] {
            assert!(checked("s", &found).is_err(), "{found:?}");
        }
    }

    #[test]
    fn our_orders_pass_the_check_and_its_queries_find_what_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let database = ours(&directory.path().join("d")).unwrap();
        let load = Load {
            script: script(),
            clients: 3,
            seconds: 0.01,
            seed: 1,
            first: 0,
            most: None,
        };
        assert!(in_process::rate(&database, &load, false).unwrap() > 0.0);
        let found = || in_process::numbers(&database, CHECK).unwrap();
        let orders = found()[0];
        assert_eq!(found(), [orders, orders * LINES, 0]);
        for sql in [
            "ALTER TABLE lines DROP CONSTRAINT lines_order_id_fkey",
            "ALTER TABLE orders DROP CONSTRAINT orders_customer_id_fkey",
            "DELETE FROM orders WHERE id = 0",
            "UPDATE orders SET customer_id = -1 WHERE id = 1",
        ] {
            database.connect().execute(sql, ()).unwrap();
        }
        assert_eq!(found(), [orders - 1, orders * LINES, LINES + 1]);
    }
}
