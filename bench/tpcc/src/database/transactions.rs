//! The five transactions. Each reads, makes its write set, commits it with one log record, makes
//! the changes, and then waits until the record is durable.
//!
//! Isolation: two-phase locks for every row that a transaction changes and for the rows that the
//! change depends on. Locks are given back once the changes are made and before they are durable:
//! a transaction that has seen them has its record behind theirs in the log. Stock-Level reads
//! committed rows without locks, as it may [TPC-C 2.8.2.3].
//!
//! Lock order: districts ascending, then stocks ascending, then a warehouse. A district's lock
//! covers its row, its customers, orders, order lines and new orders.

use std::collections::BTreeSet;

use strandline_base::sync::{Mutex, MutexGuard};
use strandline_base::{Error, Result, RowId, Value};
use strandline_index::{AccessMethod, Direction};
use strandline_storage::wal::Lsn;

use super::Database;
use super::tables::{Index, Indexed, text_value, values};
use super::write_set::WriteSet;
use crate::input::{CustomerBy, Delivery, NewOrder, OrderStatus, Payment, Scale, StockLevel};
use crate::rows::{
    Customer, District, History, Item, Order, OrderLine, Stock, Table, Warehouse, padded,
};
use crate::workload::{Outcome, Workload};

/// Locks that stocks share.
const STOCK_LOCKS: usize = 4_096;
/// Orders that Stock-Level looks at.
const RECENT_ORDERS: u32 = 20;

/// The locks of a database.
#[derive(Debug)]
pub struct Locks {
    districts_of_warehouse: usize,
    districts: Vec<Mutex<()>>,
    stocks: Vec<Mutex<()>>,
    warehouses: Vec<Mutex<()>>,
}

impl Locks {
    pub fn new(scale: Scale) -> Self {
        let locks = |count: usize| (0..count).map(|_| Mutex::new(())).collect();
        let warehouses = scale.warehouses as usize;
        let districts_of_warehouse = scale.districts as usize;
        Self {
            districts_of_warehouse,
            districts: locks(warehouses * districts_of_warehouse),
            stocks: locks(STOCK_LOCKS),
            warehouses: locks(warehouses),
        }
    }

    fn district(&self, warehouse: u32, district: u32) -> usize {
        (warehouse as usize - 1) * self.districts_of_warehouse + district as usize - 1
    }

    fn lock_districts(&self, of: &[(u32, u32)]) -> Vec<MutexGuard<'_, ()>> {
        let places = of.iter().map(|&(w, d)| self.district(w, d));
        let places: BTreeSet<usize> = places.collect();
        places.iter().map(|&at| self.districts[at].lock()).collect()
    }

    fn lock_stocks(&self, of: impl Iterator<Item = (u32, u32)>) -> Vec<MutexGuard<'_, ()>> {
        let place = |(warehouse, item): (u32, u32)| {
            let hash = u64::from(warehouse) << 32 | u64::from(item);
            (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % STOCK_LOCKS
        };
        let places: BTreeSet<usize> = of.map(place).collect();
        places.iter().map(|&at| self.stocks[at].lock()).collect()
    }

    fn lock_warehouse(&self, warehouse: u32) -> MutexGuard<'_, ()> {
        self.warehouses[warehouse as usize - 1].lock()
    }
}

impl Database {
    /// Commits a transaction and makes its changes; the caller still has its locks. Durable once
    /// the log is so up to the position returned.
    pub(super) fn commit(&self, writes: &WriteSet) -> Result<Lsn> {
        self.check_usable()?;
        let begun = self.journal.begin(writes)?;
        let made = writes
            .apply(&self.tables)
            .and_then(|()| self.journal.finish(&begun));
        if let Err(e) = made {
            // The pages lack a part of a committed transaction until the next recovery.
            return Err(self.close(&e));
        }
        Ok(begun.commit)
    }

    fn customer(&self, (w, d): (u32, u32), by: &CustomerBy) -> Result<(RowId, Customer)> {
        let last = match by {
            CustomerBy::Number(id) => return self.tables.get(Index::Customer, &[w, d, *id]),
            CustomerBy::LastName(last) => last,
        };
        let mut leading = values(&[w, d]);
        leading.push(text_value(last.as_bytes()));
        let rows = self.tables.rows_below(Index::CustomerName, &leading)?;
        // The middle one, rounded up [TPC-C 2.5.2.2].
        let Some(&row) = rows.get(rows.len().div_ceil(2).saturating_sub(1)) else {
            let place = format!("no customer of district {w}.{d} is named {last}");
            return Err(Error::internal(place));
        };
        Ok((row, self.tables.row(row)?))
    }

    fn enter_order(&self, input: &NewOrder) -> Result<Option<(Lsn, i64)>> {
        let (w, d) = (input.warehouse, input.district);
        let tables = &self.tables;
        let _district = self.locks.lock_districts(&[(w, d)]);
        tables.get::<Warehouse>(Index::Warehouse, &[w])?;
        let (district_row, mut district) = tables.get::<District>(Index::District, &[w, d])?;
        tables.get::<Customer>(Index::Customer, &[w, d, input.customer])?;
        let number = district.next_order;
        district.next_order += 1;
        let mut writes = WriteSet::default();
        writes.set(district_row, &district);

        let supplies = input.lines.iter().map(|it| (it.supply_warehouse, it.item));
        let _stocks = self.locks.lock_stocks(supplies);
        let (mut lines, mut total) = (Vec::new(), 0);
        let mut stocks: Vec<(RowId, Stock)> = Vec::new();
        for (at, line) in input.lines.iter().enumerate() {
            let Some(item) = tables.find(Index::Item, &[line.item])? else {
                return Ok(None);
            };
            let item: Item = tables.row(item)?;
            let stock_key = [line.supply_warehouse, line.item];
            let row = tables.find(Index::Stock, &stock_key)?;
            let row = row.ok_or_else(|| Error::internal(format!("no stock of {stock_key:?}")))?;
            // An order may have an item twice.
            let known = stocks.iter().position(|(known, _)| *known == row);
            let known = match known {
                Some(known) => known,
                None => {
                    stocks.push((row, tables.row(row)?));
                    stocks.len() - 1
                }
            };
            let stock = &mut stocks[known].1;
            take_from(stock, line.quantity, line.supply_warehouse != w);
            let amount = i64::from(line.quantity) * item.price;
            total += amount;
            lines.push(OrderLine {
                warehouse: w,
                district: d,
                order: number,
                number: at as u8 + 1,
                item: line.item,
                supply_warehouse: line.supply_warehouse,
                delivery: 0,
                quantity: line.quantity as u8,
                amount,
                dist_info: stock.dist_info(d),
            });
        }
        stocks
            .iter()
            .for_each(|(row, stock)| writes.set(*row, stock));
        let is_local = input.lines.iter().all(|line| line.supply_warehouse == w);
        let order = Order {
            warehouse: w,
            district: d,
            id: number,
            customer: input.customer,
            entry: input.entry,
            carrier: 0,
            lines: lines.len() as u8,
            is_local: u8::from(is_local),
        };
        self.put_order(&mut writes, &order, &lines)?;
        Ok(Some((self.commit(&writes)?, total)))
    }

    /// Adds a new order and its lines to a write set.
    fn put_order(&self, writes: &mut WriteSet, order: &Order, lines: &[OrderLine]) -> Result<()> {
        let order_row = self.tables.heap(Table::Order).reserve()?;
        let heap = self.tables.heap(Table::OrderLine);
        let rows = lines.iter().map(|_| heap.reserve());
        let rows: Vec<RowId> = rows.collect::<Result<_>>()?;
        for (line, row) in lines.iter().zip(&rows) {
            writes.set(*row, line);
        }
        writes.set(order_row, order);
        let mut add = |keys: Vec<(Index, Vec<Value>)>, row: RowId| {
            for (index, key) in keys {
                writes.add(index, self.tables.index(index).encode(&key), row);
            }
        };
        for (line, row) in lines.iter().zip(rows) {
            add(line.keys(), row);
        }
        add(order.keys(), order_row);
        Ok(())
    }

    fn book(&self, input: &Payment) -> Result<Lsn> {
        let own = (input.warehouse, input.district);
        let of_customer = (input.customer_warehouse, input.customer_district);
        let tables = &self.tables;
        let _districts = self.locks.lock_districts(&[own, of_customer]);
        let (district_row, mut district) =
            tables.get::<District>(Index::District, &[own.0, own.1])?;
        let (customer_row, mut customer) = self.customer(of_customer, &input.customer)?;
        district.ytd += input.amount;
        customer.balance -= input.amount;
        customer.ytd_payment += input.amount;
        customer.payments += 1;
        if customer.credit == *b"BC" {
            let (c, amount) = (&customer, input.amount);
            let (cd, cw) = (c.district, c.warehouse);
            let entry = format!("{} {cd} {cw} {} {} {amount} ", c.id, own.1, own.0);
            let data = [entry.as_bytes(), &customer.data].concat();
            customer.data = padded(&data);
        }
        let history_row = tables.heap(Table::History).reserve()?;
        let _warehouse = self.locks.lock_warehouse(own.0);
        let (warehouse_row, mut warehouse) = tables.get::<Warehouse>(Index::Warehouse, &[own.0])?;
        warehouse.ytd += input.amount;
        let history = History {
            customer_warehouse: customer.warehouse,
            customer_district: customer.district,
            customer: customer.id,
            warehouse: own.0,
            district: own.1,
            date: input.date,
            amount: input.amount,
            data: padded(&[&warehouse.name[..], b"    ", &district.name].concat()),
        };
        let mut writes = WriteSet::default();
        writes.set(district_row, &district);
        writes.set(customer_row, &customer);
        writes.set(history_row, &history);
        writes.set(warehouse_row, &warehouse);
        self.commit(&writes)
    }

    /// Delivers the oldest order of a district; None if there is none.
    fn deliver(&self, (w, d): (u32, u32), input: &Delivery) -> Result<Option<Lsn>> {
        let tables = &self.tables;
        let _district = self.locks.lock_districts(&[(w, d)]);
        let oldest = tables.end_below(Index::NewOrder, &[w, d], Direction::Forward)?;
        let Some((key, order_row)) = oldest else {
            return Ok(None);
        };
        let mut order: Order = tables.row(order_row)?;
        order.carrier = input.carrier;
        let mut writes = WriteSet::default();
        writes.set(order_row, &order);
        let mut amount = 0;
        for row in tables.rows_below(Index::OrderLine, &values(&[w, d, order.id]))? {
            let mut line: OrderLine = tables.row(row)?;
            line.delivery = input.date;
            amount += line.amount;
            writes.set(row, &line);
        }
        let customer_key = [w, d, order.customer];
        let (customer_row, mut customer) =
            tables.get::<Customer>(Index::Customer, &customer_key)?;
        customer.balance += amount;
        customer.deliveries += 1;
        writes.set(customer_row, &customer);
        writes.remove(Index::NewOrder, key, order_row);
        self.commit(&writes).map(Some)
    }
}

/// Books the sale of `quantity` pieces [TPC-C 2.4.2.2].
fn take_from(stock: &mut Stock, quantity: u32, is_remote: bool) {
    let left = stock.quantity.checked_sub(quantity);
    stock.quantity = match left.filter(|&left| left >= 10) {
        Some(left) => left,
        None => stock.quantity + 91 - quantity,
    };
    stock.ytd += quantity;
    stock.orders += 1;
    stock.remote += u32::from(is_remote);
}

impl Workload for Database {
    fn new_order(&self, input: &NewOrder) -> Result<Outcome> {
        let Some((commit, total)) = self.enter_order(input)? else {
            return Ok(Outcome::RolledBack);
        };
        self.wait_durable(commit)?;
        Ok(Outcome::Committed(total))
    }

    fn payment(&self, input: &Payment) -> Result<Outcome> {
        let commit = self.book(input)?;
        self.wait_durable(commit)?;
        Ok(Outcome::Committed(0))
    }

    fn order_status(&self, input: &OrderStatus) -> Result<Outcome> {
        let (w, d) = (input.warehouse, input.district);
        let _district = self.locks.lock_districts(&[(w, d)]);
        let (_, customer) = self.customer((w, d), &input.customer)?;
        let leading = [w, d, customer.id];
        let newest =
            self.tables
                .end_below(Index::OrderOfCustomer, &leading, Direction::Backward)?;
        let Some((_, row)) = newest else {
            return Ok(Outcome::Committed(0));
        };
        let order: Order = self.tables.row(row)?;
        let leading = values(&[w, d, order.id]);
        for row in self.tables.rows_below(Index::OrderLine, &leading)? {
            self.tables.row::<OrderLine>(row)?;
        }
        Ok(Outcome::Committed(0))
    }

    fn delivery(&self, input: &Delivery) -> Result<Outcome> {
        let (mut last, mut delivered) = (Lsn(0), 0);
        for district in 1..=self.scale.districts {
            if let Some(commit) = self.deliver((input.warehouse, district), input)? {
                last = last.max(commit);
                delivered += 1;
            }
        }
        self.wait_durable(last)?;
        Ok(Outcome::Committed(delivered))
    }

    fn stock_level(&self, input: &StockLevel) -> Result<Outcome> {
        let (w, d) = (input.warehouse, input.district);
        let tables = &self.tables;
        let (_, district) = tables.get::<District>(Index::District, &[w, d])?;
        let next = district.next_order;
        let orders = (next.saturating_sub(RECENT_ORDERS), next);
        let mut items = BTreeSet::new();
        for row in tables.rows_between(Index::OrderLine, &[w, d], orders)? {
            items.insert(tables.row::<OrderLine>(row)?.item);
        }
        let mut low = 0;
        for item in items {
            let (_, stock) = tables.get::<Stock>(Index::Stock, &[w, item])?;
            low += i64::from(stock.quantity < input.threshold);
        }
        Ok(Outcome::Committed(low))
    }
}
