//! The order desk: transactions as a clerk would enter them, through the row API.
//!
//! Invariants at every moment: the total of an order is the sum of its lines' prices; every order
//! has lines and every line an order; the ledger's counts equal the tables' counts. They hold in
//! every snapshot because each transaction keeps them; `schema::AUDIT` checks them.

mod rows;
mod tables;
mod transactions;

pub use tables::{OrderState, Tables, read_order};
pub use transactions::Kind;

use super::results::integers;
use super::schema;
use crate::session::{Connection, Result, Transaction, Value};
use rows::{FIRST_DAY, Line, PRIORITIES, SHIP_MODES, line_row, order_index, order_row};
use strandline_base::rng::Rng;
use strandline_base::{Clock, SystemClock};
use tables::expect_found;
use transactions::{DeskState, Done, Work};

/// The effect of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The ledger's count of transactions after this one.
    pub sequence: i64,
    pub kind: Kind,
    pub order: i64,
    pub after: Option<OrderState>,
}

/// Enters transactions one after the other.
pub struct OrderDesk {
    connection: Connection,
    tables: Tables,
    state: DeskState,
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

/// Microseconds since the epoch.
pub fn wall_clock_us() -> i64 {
    i64::try_from(SystemClock.now_us()).expect("the year is below 290,000")
}
