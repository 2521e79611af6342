//! The order desk: transactions as a clerk would enter them, through the row API.
//!
//! Invariants at every moment: the total of an order is the sum of its lines' prices; every order
//! has lines and every line an order; the ledger's counts equal the tables' counts. They hold in
//! every snapshot because each transaction keeps them; `schema::AUDIT` checks them.

use super::results::integers;
use super::schema;
use crate::session::{Connection, Error, Result, SqlState, TableHandle, Transaction, Value};
use strandline_base::rng::Rng;
use strandline_base::{Clock, ColumnId, SystemClock};
use tpchgen::generators::OrderGenerator;

/// The largest number of lines of an order (as in TPC-H).
const MAX_LINES: u64 = 7;
/// The largest quantity of a line (as in TPC-H).
const MAX_QUANTITY: u64 = 50;
/// Half of the changes go to this many of the newest orders.
const RECENT_ORDERS: u64 = 1_000;
/// Days since 1970 of 1992-01-01 and of the last order date of TPC-H (1998-08-02).
const FIRST_DAY: u64 = 8_035;
const LAST_DAY: u64 = 10_440;

const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const SHIP_MODES: [&str; 7] = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"];

/// The kind of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    NewOrder,
    ChangeQuantity,
    Deliver,
    Cancel,
}

impl Kind {
    pub const ALL: [Kind; 4] = [
        Kind::NewOrder,
        Kind::ChangeQuantity,
        Kind::Deliver,
        Kind::Cancel,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Kind::NewOrder => "new orders",
            Kind::ChangeQuantity => "changed quantities",
            Kind::Deliver => "deliveries",
            Kind::Cancel => "cancelled orders",
        }
    }
}

/// The state of an order. `None` in its place means that there is no such order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderState {
    pub total_cents: i64,
    pub lines: u64,
}

/// The effect of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The ledger's count of transactions after this one.
    pub sequence: i64,
    pub kind: Kind,
    pub order: i64,
    pub after: Option<OrderState>,
}

/// The parts of an order's line that its price depends on.
struct Line {
    part: i64,
    quantity: i64,
    discount_percent: i64,
    tax_percent: i64,
    extended_cents: i64,
}

impl Line {
    /// The price in cents after discount and tax, truncated as TPC-H does.
    fn price_cents(&self) -> i64 {
        let discounted = self.extended_cents * (100 - self.discount_percent) / 100;
        discounted * (100 + self.tax_percent) / 100
    }
}

/// Enters transactions one after the other.
pub struct OrderDesk {
    connection: Connection,
    tables: Tables,
    state: DeskState,
}

/// The state that the desk keeps in memory, so that it need not ask the database.
struct DeskState {
    rng: Rng,
    customers: u64,
    parts: u64,
    suppliers: u64,
    /// Index of the newest order key (see [`order_key`]).
    newest: u64,
    /// The ledger.
    transactions: i64,
    orders: i64,
    lines: i64,
}

/// The tables the desk works on, and the columns it reads or sets.
pub struct Tables {
    orders: TableHandle,
    order_total: ColumnId,
    order_status: ColumnId,
    lines: TableHandle,
    line_part: ColumnId,
    line_quantity: ColumnId,
    line_discount: ColumnId,
    line_tax: ColumnId,
    line_price: ColumnId,
    line_status: ColumnId,
    line_flag: ColumnId,
    parts: TableHandle,
    part_price: ColumnId,
    ledger: TableHandle,
    ledger_columns: [ColumnId; 4],
}

impl Tables {
    /// Finds the tables and columns in the catalog.
    pub fn find(connection: &Connection) -> Result<Self> {
        let orders = connection.table("orders")?;
        let lines = connection.table("lineitem")?;
        let parts = connection.table("part")?;
        let ledger = connection.table("demo_ledger")?;
        Ok(Self {
            order_total: orders.column("o_totalprice")?,
            order_status: orders.column("o_orderstatus")?,
            orders,
            line_part: lines.column("l_partkey")?,
            line_quantity: lines.column("l_quantity")?,
            line_discount: lines.column("l_discount")?,
            line_tax: lines.column("l_tax")?,
            line_price: lines.column("l_extendedprice")?,
            line_status: lines.column("l_linestatus")?,
            line_flag: lines.column("l_returnflag")?,
            lines,
            part_price: parts.column("p_retailprice")?,
            parts,
            ledger_columns: [
                ledger.column("transactions")?,
                ledger.column("orders")?,
                ledger.column("lines")?,
                ledger.column("entered_at")?,
            ],
            ledger,
        })
    }
}

/// Creates the ledger with the counts of the loaded rows.
pub fn open_ledger(connection: &mut Connection) -> Result<()> {
    connection.execute(schema::LEDGER_DDL, ())?;
    let orders = connection
        .query("SELECT count(*) FROM orders", ())?
        .single::<i64>()?;
    let lines = connection
        .query("SELECT count(*) FROM lineitem", ())?
        .single::<i64>()?;
    let ledger = connection.table("demo_ledger")?;
    let row = [
        Value::Integer(1),
        Value::BigInt(0),
        Value::BigInt(orders),
        Value::BigInt(lines),
        Value::TimestampTz(wall_clock_us()),
    ];
    let mut transaction = connection.transaction()?;
    transaction.insert(&ledger, &row)?;
    transaction.commit()
}

impl OrderDesk {
    /// Opens a desk on its own connection. Only one may be open at a time, since it numbers the
    /// orders itself.
    pub fn open(mut connection: Connection, seed: u64) -> Result<Self> {
        let mut number = |sql: &str| connection.query(sql, ())?.single::<i64>();
        let customers = number("SELECT count(*) FROM customer")?;
        let parts = number("SELECT count(*) FROM part")?;
        let suppliers = number("SELECT count(*) FROM supplier")?;
        let newest = number("SELECT max(o_orderkey) FROM orders")?;
        let [transactions, orders, lines, _] = integers(&mut connection, schema::LEDGER_READ)?;
        Ok(Self {
            tables: Tables::find(&connection)?,
            connection,
            state: DeskState {
                rng: Rng::new(seed),
                customers: customers.unsigned_abs(),
                parts: parts.unsigned_abs(),
                suppliers: suppliers.unsigned_abs(),
                newest: order_index(newest),
                transactions,
                orders,
                lines,
            },
        })
    }

    /// Runs one transaction. `before_commit` receives its effect before the commit.
    pub fn enter(&mut self, before_commit: impl FnOnce(&Effect) -> Result<()>) -> Result<Effect> {
        let Self {
            connection,
            tables,
            state,
        } = self;
        let mut transaction = connection.transaction()?;
        let mut work = Work {
            tables,
            state,
            transaction: &mut transaction,
        };
        let Done {
            kind,
            order,
            after,
            lines,
        } = work.any()?;
        let orders = match kind {
            Kind::NewOrder => 1,
            Kind::Cancel => -1,
            Kind::ChangeQuantity | Kind::Deliver => 0,
        };
        let effect = Effect {
            sequence: state.transactions + 1,
            kind,
            order,
            after,
        };
        let values = [
            Value::BigInt(effect.sequence),
            Value::BigInt(state.orders + orders),
            Value::BigInt(state.lines + lines),
            Value::TimestampTz(wall_clock_us()),
        ];
        let set: Vec<_> = tables.ledger_columns.into_iter().zip(values).collect();
        expect_found(transaction.update(&tables.ledger, &[Value::Integer(1)], &set)?)?;
        before_commit(&effect)?;
        transaction.commit()?;
        state.transactions = effect.sequence;
        state.orders += orders;
        state.lines += lines;
        if kind == Kind::NewOrder {
            state.newest += 1;
        }
        Ok(effect)
    }
}

/// Begins an order with a key far above all others, enters half of it, and leaves the transaction
/// open.
pub fn leave_half_done<'c>(
    connection: &'c mut Connection,
    tables: &Tables,
    order: i64,
) -> Result<Transaction<'c>> {
    let mut transaction = connection.transaction()?;
    let header = order_row(order, 1, 0, FIRST_DAY as i32, PRIORITIES[0]);
    transaction.insert(&tables.orders, &header)?;
    let line = Line {
        part: 1,
        quantity: 1,
        discount_percent: 0,
        tax_percent: 0,
        extended_cents: 100,
    };
    let row = line_row(order, 1, &line, 1, FIRST_DAY as i32, SHIP_MODES[0]);
    transaction.insert(&tables.lines, &row)?;
    Ok(transaction)
}

/// A transaction being put together.
struct Work<'a, 'c> {
    tables: &'a Tables,
    state: &'a mut DeskState,
    transaction: &'a mut Transaction<'c>,
}

/// The effect of the work.
struct Done {
    kind: Kind,
    order: i64,
    after: Option<OrderState>,
    /// Lines added minus lines removed.
    lines: i64,
}

impl Work<'_, '_> {
    fn any(&mut self) -> Result<Done> {
        match self.state.rng.below(100) {
            0..40 => self.new_order(),
            40..75 => self.change_quantity(),
            75..90 => self.deliver(),
            _ => self.cancel(),
        }
    }

    fn new_order(&mut self) -> Result<Done> {
        let order = order_key(self.state.newest + 1);
        let customer = self.one_of(self.state.customers);
        let day = (FIRST_DAY + self.state.rng.below(LAST_DAY - FIRST_DAY + 1)) as i32;
        let count = 1 + self.state.rng.below(MAX_LINES);
        let mut total_cents = 0;
        for number in 1..=count {
            let part = self.one_of(self.state.parts);
            let quantity = self.one_of(MAX_QUANTITY);
            let line = Line {
                part,
                quantity,
                discount_percent: self.state.rng.below(11) as i64,
                tax_percent: self.state.rng.below(9) as i64,
                extended_cents: self.retail_cents(part)? * quantity,
            };
            total_cents += line.price_cents();
            let supplier = self.one_of(self.state.suppliers);
            let ship_day = day + self.one_of(121) as i32;
            let mode = pick(&SHIP_MODES, &mut self.state.rng);
            let row = line_row(order, number as i32, &line, supplier, ship_day, mode);
            self.transaction.insert(&self.tables.lines, &row)?;
        }
        let priority = pick(&PRIORITIES, &mut self.state.rng);
        let row = order_row(order, customer, total_cents, day, priority);
        self.transaction.insert(&self.tables.orders, &row)?;
        let after = Some(OrderState {
            total_cents,
            lines: count,
        });
        Ok(Done {
            kind: Kind::NewOrder,
            order,
            after,
            lines: count as i64,
        })
    }

    fn change_quantity(&mut self) -> Result<Done> {
        let (order, mut lines) = self.existing_order()?;
        let number = self.state.rng.below(lines.len() as u64) as usize;
        let quantity = self.one_of(MAX_QUANTITY);
        let line = &mut lines[number];
        line.quantity = quantity;
        line.extended_cents = self.retail_cents(line.part)? * quantity;
        let set = [
            (self.tables.line_quantity, cents(line.quantity * 100)),
            (self.tables.line_price, cents(line.extended_cents)),
        ];
        let key = line_key(order, number as i32 + 1);
        expect_found(self.transaction.update(&self.tables.lines, &key, &set)?)?;
        let after = state_of(&lines);
        let set = [(self.tables.order_total, cents(after.total_cents))];
        let key = [Value::BigInt(order)];
        expect_found(self.transaction.update(&self.tables.orders, &key, &set)?)?;
        Ok(Done {
            kind: Kind::ChangeQuantity,
            order,
            after: Some(after),
            lines: 0,
        })
    }

    fn deliver(&mut self) -> Result<Done> {
        let (order, lines) = self.existing_order()?;
        let set = [(self.tables.order_status, Value::from("F"))];
        let key = [Value::BigInt(order)];
        expect_found(self.transaction.update(&self.tables.orders, &key, &set)?)?;
        let set = [
            (self.tables.line_status, Value::from("F")),
            (self.tables.line_flag, Value::from("A")),
        ];
        for number in 1..=lines.len() as i32 {
            let key = line_key(order, number);
            expect_found(self.transaction.update(&self.tables.lines, &key, &set)?)?;
        }
        Ok(Done {
            kind: Kind::Deliver,
            order,
            after: Some(state_of(&lines)),
            lines: 0,
        })
    }

    fn cancel(&mut self) -> Result<Done> {
        let (order, lines) = self.existing_order()?;
        let key = [Value::BigInt(order)];
        expect_found(self.transaction.delete(&self.tables.orders, &key)?)?;
        for number in 1..=lines.len() as i32 {
            let key = line_key(order, number);
            expect_found(self.transaction.delete(&self.tables.lines, &key)?)?;
        }
        Ok(Done {
            kind: Kind::Cancel,
            order,
            after: None,
            lines: -(lines.len() as i64),
        })
    }

    /// Picks an order that has not been cancelled; returns it with its lines.
    fn existing_order(&mut self) -> Result<(i64, Vec<Line>)> {
        loop {
            let newest = self.state.newest;
            let index = if self.state.rng.one_in(2) {
                newest - self.state.rng.below(RECENT_ORDERS.min(newest))
            } else {
                1 + self.state.rng.below(newest)
            };
            let order = order_key(index);
            let key = [Value::BigInt(order)];
            if self
                .transaction
                .get(&self.tables.orders, &key, &[])?
                .is_some()
            {
                let lines = read_lines(self.transaction, self.tables, order)?;
                return Ok((order, lines));
            }
        }
    }

    fn retail_cents(&mut self, part: i64) -> Result<i64> {
        let key = [Value::BigInt(part)];
        let row = self
            .transaction
            .get(&self.tables.parts, &key, &[self.tables.part_price])?;
        match row.as_deref() {
            Some([Value::Numeric(unscaled)]) => Ok(*unscaled as i64),
            other => Err(wrong_row("part", part, other)),
        }
    }

    /// A random number from 1 to `count`.
    fn one_of(&mut self, count: u64) -> i64 {
        1 + self.state.rng.below(count) as i64
    }
}

/// The lines of an order; they are numbered from 1 without a gap.
fn read_lines(transaction: &mut Transaction<'_>, tables: &Tables, order: i64) -> Result<Vec<Line>> {
    let columns = [
        tables.line_part,
        tables.line_quantity,
        tables.line_discount,
        tables.line_tax,
        tables.line_price,
    ];
    let mut lines = Vec::new();
    loop {
        let key = line_key(order, lines.len() as i32 + 1);
        match transaction.get(&tables.lines, &key, &columns)?.as_deref() {
            Some(
                [
                    Value::BigInt(part),
                    Value::Numeric(quantity),
                    Value::Numeric(discount),
                    Value::Numeric(tax),
                    Value::Numeric(extended),
                ],
            ) => lines.push(Line {
                part: *part,
                quantity: (*quantity / 100) as i64,
                discount_percent: *discount as i64,
                tax_percent: *tax as i64,
                extended_cents: *extended as i64,
            }),
            None => return Ok(lines),
            other => return Err(wrong_row("lineitem", order, other)),
        }
    }
}

/// The state of an order in the database.
pub fn read_order(
    connection: &mut Connection,
    tables: &Tables,
    order: i64,
) -> Result<Option<OrderState>> {
    let mut transaction = connection.transaction()?;
    let key = [Value::BigInt(order)];
    let row = transaction.get(&tables.orders, &key, &[tables.order_total])?;
    let lines = read_lines(&mut transaction, tables, order)?;
    transaction.commit()?;
    let found = state_of(&lines);
    match row.as_deref() {
        None if lines.is_empty() => Ok(None),
        None => Err(inconsistent(format!(
            "order {order} is gone, {} of its lines are not",
            found.lines
        ))),
        Some([Value::Numeric(total)]) if *total == i128::from(found.total_cents) => Ok(Some(found)),
        Some(other) => Err(inconsistent(format!(
            "order {order} says {other:?}, its {} lines add up to {} cents",
            found.lines, found.total_cents
        ))),
    }
}

fn state_of(lines: &[Line]) -> OrderState {
    OrderState {
        total_cents: lines.iter().map(Line::price_cents).sum(),
        lines: lines.len() as u64,
    }
}

fn line_key(order: i64, number: i32) -> [Value; 2] {
    [Value::BigInt(order), Value::Integer(number)]
}

fn inconsistent(message: String) -> Error {
    Error::invalid(SqlState::DATA_CORRUPTED, message)
}

fn wrong_row(table: &str, key: i64, row: Option<&[Value]>) -> Error {
    inconsistent(format!("row {key} of table {table} reads {row:?}"))
}

fn expect_found(found: bool) -> Result<()> {
    if found {
        return Ok(());
    }
    Err(inconsistent(
        "a row that this transaction has read cannot be written".to_string(),
    ))
}

/// The key of the order with this index. TPC-H uses 8 of every 32 keys.
fn order_key(index: u64) -> i64 {
    OrderGenerator::make_order_key(index as i64)
}

/// The inverse of [`order_key`].
fn order_index(key: i64) -> u64 {
    ((key.unsigned_abs() >> 5) << 3) | (key.unsigned_abs() & 7)
}

fn pick(choices: &[&'static str], rng: &mut Rng) -> &'static str {
    choices[rng.below(choices.len() as u64) as usize]
}

/// A numeric(15,2) of this many hundredths.
fn cents(hundredths: i64) -> Value {
    Value::Numeric(hundredths.into())
}

fn order_row(order: i64, customer: i64, total: i64, day: i32, priority: &str) -> [Value; 9] {
    [
        Value::BigInt(order),
        Value::BigInt(customer),
        Value::from("O"),
        cents(total),
        Value::Date(day),
        Value::from(priority),
        Value::from("Clerk#000000001"),
        Value::Integer(0),
        Value::from("entered by the demo"),
    ]
}

fn line_row(
    order: i64,
    number: i32,
    line: &Line,
    supplier: i64,
    ship_day: i32,
    mode: &str,
) -> [Value; 16] {
    [
        Value::BigInt(order),
        Value::BigInt(line.part),
        Value::BigInt(supplier),
        Value::Integer(number),
        cents(line.quantity * 100),
        cents(line.extended_cents),
        cents(line.discount_percent),
        cents(line.tax_percent),
        Value::from("N"),
        Value::from("O"),
        Value::Date(ship_day),
        Value::Date(ship_day + 14),
        Value::Date(ship_day + 7),
        Value::from("NONE"),
        Value::from(mode),
        Value::from("entered by the demo"),
    ]
}

/// Microseconds since the epoch.
pub fn wall_clock_us() -> i64 {
    i64::try_from(SystemClock.now_us()).expect("the year is below 290,000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_keys_and_indexes_are_inverse() {
        for index in 1..10_000 {
            assert_eq!(order_index(order_key(index)), index);
        }
    }

    #[test]
    fn prices_are_those_of_tpch() {
        let mut orders = OrderGenerator::new(0.001, 1, 1).iter();
        let lines = tpchgen::generators::LineItemGenerator::new(0.001, 1, 1);
        let mut totals = std::collections::BTreeMap::new();
        for l in lines.iter() {
            let line = Line {
                part: l.l_partkey,
                quantity: l.l_quantity,
                discount_percent: l.l_discount.into_inner(),
                tax_percent: l.l_tax.into_inner(),
                extended_cents: l.l_extendedprice.into_inner(),
            };
            *totals.entry(l.l_orderkey).or_insert(0) += line.price_cents();
        }
        assert!(orders.all(|o| totals.get(&o.o_orderkey) == Some(&o.o_totalprice.into_inner())));
    }
}
