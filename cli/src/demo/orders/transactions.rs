//! The transactions of the order desk: a new order, another quantity, a delivery, a cancellation.

use super::rows::{
    FIRST_DAY, LAST_DAY, Line, PRIORITIES, SHIP_MODES, cents, line_key, line_row, order_key,
    order_row,
};
use super::tables::{OrderState, Tables, expect_found, read_lines, state_of, wrong_row};
use crate::session::{Result, Transaction, Value};
use strandline_base::rng::Rng;

/// The largest number of lines of an order (as in TPC-H).
const MAX_LINES: u64 = 7;
/// The largest quantity of a line (as in TPC-H).
const MAX_QUANTITY: u64 = 50;
/// Half of the changes go to this many of the newest orders.
const RECENT_ORDERS: u64 = 1_000;

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

/// The state that the desk keeps in memory, so that it need not ask the database.
pub struct DeskState {
    pub rng: Rng,
    pub customers: u64,
    pub parts: u64,
    pub suppliers: u64,
    /// Index of the newest order key (see [`order_key`]).
    pub newest: u64,
    /// The ledger.
    pub transactions: i64,
    pub orders: i64,
    pub lines: i64,
}

/// A transaction being put together.
pub struct Work<'a, 'c> {
    pub tables: &'a Tables,
    pub state: &'a mut DeskState,
    pub transaction: &'a mut Transaction<'c>,
}

/// The effect of the work.
pub struct Done {
    pub kind: Kind,
    pub order: i64,
    pub after: Option<OrderState>,
    /// Lines added minus lines removed.
    pub lines: i64,
}

impl Work<'_, '_> {
    /// A transaction of a random kind.
    pub fn any(&mut self) -> Result<Done> {
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

fn pick(choices: &[&'static str], rng: &mut Rng) -> &'static str {
    choices[rng.below(choices.len() as u64) as usize]
}
