//! The tables: a shop's and TPC-C's. Their rows are the same on every engine.

use super::case::Dialect;
use crate::script::Draw;

/// How many rows the tables have.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// customers of the shop: five orders each, of ten lines each; half as many items
    pub customers: i64,
    /// customers of each of TPC-C's districts: one order each, of ten lines
    pub district_customers: i64,
}

impl Sizes {
    /// A measured run: tables of 10,000 to 1 million rows.
    pub const FULL: Self = Self {
        customers: 20_000,
        district_customers: 1_000,
    };

    /// A trial of the benchmark itself, in a debug build.
    pub const TRIAL: Self = Self {
        customers: 400,
        district_customers: 100,
    };

    /// Orders of the shop.
    pub fn orders(self) -> i64 {
        5 * self.customers
    }

    /// Items of the shop, and of TPC-C.
    pub fn items(self) -> i64 {
        self.customers / 2
    }

    /// The key of a customer of the shop.
    pub fn customer(self) -> Draw {
        Draw::Between(0, self.customers)
    }

    /// The address of a customer of the shop.
    pub fn email(self) -> Draw {
        let numbers = (1_000_000, 1_000_000 + self.customers);
        Draw::Text("user@host".into(), numbers.0, numbers.1, String::new())
    }

    /// The key of an order of the shop.
    pub fn order(self) -> Draw {
        Draw::Between(0, self.orders())
    }

    /// The number of a customer in a district of TPC-C.
    pub fn district_customer(self) -> Draw {
        Draw::Between(1, self.district_customers + 1)
    }
}

/// TPC-C's warehouses, each with ten districts.
pub const WAREHOUSES: i64 = 2;
/// Rows of the tables that statements begin with and add to.
const BASE_ROWS: i64 = 10_000;

struct Table {
    name: &'static str,
    /// `{key}`: the type and constraint of a bigint key; `{identity}`: of one that numbers itself
    columns: &'static str,
    rows: i64,
    /// a row's values from its number `n`, from 0; `{moment}` is `n` seconds after the year began,
    /// `{json}` the type of a document
    values: String,
    indexes: &'static [&'static str],
}

fn table(
    name: &'static str,
    columns: &'static str,
    rows: i64,
    values: impl Into<String>,
    indexes: &'static [&'static str],
) -> Table {
    Table {
        name,
        columns,
        rows,
        values: values.into(),
        indexes,
    }
}

fn shop(sizes: Sizes) -> Vec<Table> {
    let (customers, items) = (sizes.customers, sizes.items());
    vec![
        table(
            "customers",
            "id {key}, email text NOT NULL UNIQUE, name text NOT NULL, city text NOT NULL, \
             balance numeric(12,2) NOT NULL, active boolean NOT NULL, \
             created_at timestamp NOT NULL, note text",
            customers,
            "n, 'user@host' || (1000000 + n), 'Customer ' || (1000000 + n), 'city ' || (n % 100), \
             n % 1000, n % 7 <> 0, {moment}, CASE WHEN n % 3 = 0 THEN 'note ' || n END",
            &[],
        ),
        table(
            "orders",
            "id {key}, customer_id bigint NOT NULL, status text NOT NULL, \
             total numeric(12,2) NOT NULL, placed_at timestamp NOT NULL",
            sizes.orders(),
            format!(
                "n, n % {customers}, CASE n / 3 % 4 WHEN 0 THEN 'new' WHEN 1 THEN 'paid' \
                 WHEN 2 THEN 'sent' ELSE 'done' END, n % 5000, {{moment}}"
            ),
            &["CREATE INDEX orders_customer ON orders (customer_id)"],
        ),
        table(
            "lines",
            "order_id bigint NOT NULL, line integer NOT NULL, item_id bigint NOT NULL, \
             quantity integer NOT NULL, price numeric(10,2) NOT NULL, PRIMARY KEY (order_id, line)",
            10 * sizes.orders(),
            format!("n / 10, n % 10 + 1, n * 7 % {items}, n % 9 + 1, n % 500"),
            &[],
        ),
        table(
            "items",
            "id {key}, sku text NOT NULL UNIQUE, title text NOT NULL, \
             price numeric(10,2) NOT NULL, stock integer NOT NULL, details json NOT NULL",
            items,
            "n, 'SKU-' || (1000000 + n), 'Item ' || n, n % 500, 1000000, \
             CAST('{\"color\": \"c' || (n % 10) || '\", \"size\": ' || (n % 7) || '}' AS {json})",
            &[],
        ),
    ]
}

/// The shop's tables that statements add to and take from.
fn changing() -> Vec<Table> {
    vec![
        table(
            "jobs",
            "id {key}, state text NOT NULL, priority integer NOT NULL, payload text NOT NULL, \
             attempts integer NOT NULL",
            BASE_ROWS,
            "-1 - n, 'ready', n % 3, 'payload ' || n, 0",
            &["CREATE INDEX jobs_state ON jobs (state, priority, id)"],
        ),
        table(
            "counters",
            "name text NOT NULL, day integer NOT NULL, n bigint NOT NULL, PRIMARY KEY (name, day)",
            BASE_ROWS,
            "'page ' || (1000000 + n), 1, 0",
            &[],
        ),
        table(
            "events",
            "id {key}, customer_id bigint NOT NULL, kind text NOT NULL, payload text, \
             at timestamp NOT NULL",
            BASE_ROWS,
            "-1 - n, n % 1000, 'seen', 'payload ' || n, {moment}",
            &[],
        ),
        table(
            "carts",
            "id {key}, owner bigint NOT NULL, item_id bigint NOT NULL",
            BASE_ROWS,
            "-1 - n, n % 1000, n % 77",
            &[],
        ),
        table(
            "baskets",
            "owner bigint NOT NULL, item_id bigint NOT NULL, quantity integer NOT NULL, \
             PRIMARY KEY (owner, item_id)",
            BASE_ROWS,
            "-1 - n / 3, n % 3, 1",
            &[],
        ),
        table(
            "notes",
            "id {identity}, body text NOT NULL, created_at timestamp NOT NULL",
            0,
            "",
            &[],
        ),
    ]
}

fn tpcc(sizes: Sizes) -> Vec<Table> {
    let customers = sizes.district_customers;
    let all = 10 * WAREHOUSES * customers;
    vec![
        table(
            "warehouse",
            "w_id integer PRIMARY KEY, w_name text NOT NULL, w_street_1 text NOT NULL, \
             w_city text NOT NULL, w_state text NOT NULL, w_zip text NOT NULL, \
             w_tax numeric(4,4) NOT NULL, w_ytd numeric(12,2) NOT NULL",
            WAREHOUSES,
            "n + 1, 'w' || n, 'street', 'city', 'st', '123456789', 0.1, 300000",
            &[],
        ),
        table(
            "district",
            "d_id integer, d_w_id integer, d_name text NOT NULL, d_street_1 text NOT NULL, \
             d_city text NOT NULL, d_tax numeric(4,4) NOT NULL, d_ytd numeric(12,2) NOT NULL, \
             d_next_o_id integer NOT NULL, PRIMARY KEY (d_w_id, d_id)",
            10 * WAREHOUSES,
            format!(
                "n % 10 + 1, n / 10 + 1, 'd' || n, 'street', 'city', 0.05, 30000, {customers} + 1"
            ),
            &[],
        ),
        table(
            "customer",
            "c_id integer, c_d_id integer, c_w_id integer, c_first text NOT NULL, \
             c_middle text NOT NULL, c_last text NOT NULL, c_credit text NOT NULL, \
             c_discount numeric(4,4) NOT NULL, c_balance numeric(12,2) NOT NULL, \
             c_ytd_payment numeric(12,2) NOT NULL, c_payment_cnt integer NOT NULL, \
             c_data text NOT NULL, PRIMARY KEY (c_w_id, c_d_id, c_id)",
            all,
            format!(
                "n % {customers} + 1, {}, 'first ' || (1000000 + n * 7 % {all}), 'OE', \
                 'name ' || (n % {customers} / 10), 'GC', 0.1, -10, 10, 1, 'data ' || n",
                place(customers)
            ),
            &["CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first)"],
        ),
    ]
}

/// A place of a row, the number of whose district follows from its number: so many rows of the
/// district follow each other.
fn place(rows: i64) -> String {
    format!("n / {rows} % 10 + 1, n / {} + 1", 10 * rows)
}

fn tpcc_orders(sizes: Sizes) -> Vec<Table> {
    let (customers, items) = (sizes.district_customers, sizes.items());
    let all = 10 * WAREHOUSES * customers;
    vec![
        table(
            "oorder",
            "o_id integer, o_d_id integer, o_w_id integer, o_c_id integer NOT NULL, \
             o_entry_d timestamp NOT NULL, o_carrier_id integer, o_ol_cnt integer NOT NULL, \
             o_all_local integer NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id)",
            all,
            format!(
                "n % {customers} + 1, {}, n * 7 % {customers} + 1, {{moment}}, \
                 CASE WHEN n % 10 < 7 THEN n % 9 + 1 END, 10, 1",
                place(customers)
            ),
            &["CREATE INDEX oorder_customer ON oorder (o_w_id, o_d_id, o_c_id, o_id)"],
        ),
        table(
            "new_order",
            "no_o_id integer, no_d_id integer, no_w_id integer, \
             PRIMARY KEY (no_w_id, no_d_id, no_o_id)",
            all,
            format!("n % {customers} + 1, {}", place(customers)),
            &[],
        ),
        table(
            "order_line",
            "ol_o_id integer, ol_d_id integer, ol_w_id integer, ol_number integer, \
             ol_i_id integer NOT NULL, ol_supply_w_id integer NOT NULL, ol_delivery_d timestamp, \
             ol_quantity integer NOT NULL, ol_amount numeric(8,2) NOT NULL, \
             ol_dist_info text NOT NULL, PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)",
            10 * all,
            format!(
                "n / 10 % {customers} + 1, {}, n % 10 + 1, n * 31 % {items} + 1, \
                 n / {} + 1, {{moment}}, 5, n % 1000, 'dist'",
                place(10 * customers),
                100 * customers
            ),
            &[],
        ),
    ]
}

fn tpcc_stock(sizes: Sizes) -> Vec<Table> {
    let (customers, items) = (sizes.district_customers, sizes.items());
    let all = 10 * WAREHOUSES * customers;
    vec![
        table(
            "item",
            "i_id integer PRIMARY KEY, i_name text NOT NULL, i_price numeric(6,2) NOT NULL, \
             i_data text NOT NULL",
            items,
            "n + 1, 'item ' || n, n % 100 + 1, 'data'",
            &[],
        ),
        table(
            "stock",
            "s_i_id integer, s_w_id integer, s_quantity integer NOT NULL, s_dist_01 text NOT NULL, \
             s_ytd integer NOT NULL, s_order_cnt integer NOT NULL, s_remote_cnt integer NOT NULL, \
             s_data text NOT NULL, PRIMARY KEY (s_w_id, s_i_id)",
            WAREHOUSES * items,
            format!("n % {items} + 1, n / {items} + 1, 50, 'dist', 0, 0, 0, 'data'"),
            &[],
        ),
        table(
            "history",
            "h_c_id integer, h_c_d_id integer, h_c_w_id integer, h_d_id integer, h_w_id integer, \
             h_date timestamp, h_amount numeric(6,2), h_data text",
            all,
            format!(
                "n % {customers} + 1, {0}, {0}, {{moment}}, 10, 'h'",
                place(customers)
            ),
            &[],
        ),
    ]
}

/// Table, referencing columns and referenced table. Servers check the rows that are there at once,
/// when all are; SQLite has the constraints from the beginning, as it must.
const REFERENCES: [(&str, &str, &str); 4] = [
    ("orders", "customer_id", "customers"),
    ("lines", "order_id", "orders"),
    ("oorder", "o_w_id, o_d_id, o_c_id", "customer"),
    ("order_line", "ol_w_id, ol_d_id, ol_o_id", "oorder"),
];

fn all(sizes: Sizes) -> impl Iterator<Item = Table> {
    let parts = [
        shop(sizes),
        changing(),
        tpcc(sizes),
        tpcc_orders(sizes),
        tpcc_stock(sizes),
    ];
    parts.into_iter().flatten()
}

/// The statements that make and fill the tables.
pub fn script(dialect: Dialect, sizes: Sizes) -> Vec<String> {
    let mut script = Vec::new();
    let (key, identity, moment, json) = match dialect {
        Dialect::Server => (
            "bigint PRIMARY KEY",
            "bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
            "TIMESTAMP '2026-01-01 00:00:00' + n * INTERVAL '1 second'",
            "json",
        ),
        Dialect::Sqlite => (
            // Its rows follow a key of this type only.
            "INTEGER PRIMARY KEY",
            "INTEGER PRIMARY KEY",
            "datetime('2026-01-01 00:00:00', n || ' seconds')",
            "text",
        ),
    };
    for table in all(sizes) {
        let name = table.name;
        let columns = table
            .columns
            .replace("{key}", key)
            .replace("{identity}", identity);
        let constraints = REFERENCES.iter().filter(|(of, ..)| *of == name);
        let constraints: String = match dialect {
            Dialect::Server => String::new(),
            Dialect::Sqlite => constraints
                .map(|(_, columns, to)| format!(", FOREIGN KEY ({columns}) REFERENCES {to}"))
                .collect(),
        };
        script.push(format!("CREATE TABLE {name} ({columns}{constraints})"));
        if table.rows > 0 {
            let numbers = dialect.numbers(0, table.rows - 1);
            let values = table
                .values
                .replace("{moment}", moment)
                .replace("{json}", json);
            script.push(format!("INSERT INTO {name} SELECT {values} FROM {numbers}"));
        }
        script.extend(table.indexes.iter().map(|index| (*index).to_string()));
    }
    if dialect == Dialect::Server {
        script.extend(REFERENCES.map(|(table, columns, to)| {
            format!("ALTER TABLE {table} ADD FOREIGN KEY ({columns}) REFERENCES {to}")
        }));
    }
    script
}
