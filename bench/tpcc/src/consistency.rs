//! The consistency conditions [TPC-C 3.3.2]: 1 to 10 and 12. Condition 11 holds of the initial
//! population only.

use std::collections::BTreeMap;

use strandline_base::{Error, Result};

use crate::workload::{Contents, Found};

/// What is known of an order.
#[derive(Default)]
struct OrderFacts {
    customer: u32,
    is_delivered: bool,
    lines: u64,
    lines_found: u64,
    lines_delivered: u64,
    amount: i64,
}

/// What is known of a district.
#[derive(Default)]
struct DistrictFacts {
    next_order: u32,
    ytd: i64,
    history: i64,
    orders: BTreeMap<u32, OrderFacts>,
    new_orders: Vec<u32>,
    /// balance and payments as the rows have them, and the sum of HISTORY
    customers: BTreeMap<u32, (i64, i64, i64)>,
}

/// Numbers of rows that a check has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub orders: u64,
    pub order_lines: u64,
    pub new_orders: u64,
    pub history: u64,
}

/// The districts by warehouse and number.
#[derive(Default)]
struct Districts(BTreeMap<(u32, u32), DistrictFacts>);

impl Districts {
    fn facts(&mut self, warehouse: u32, district: u32) -> &mut DistrictFacts {
        self.0.entry((warehouse, district)).or_default()
    }
}

/// Checks the conditions.
///
/// # Errors
/// XX000 that names the first condition that does not hold, with the values; those of reading.
pub fn check(contents: &dyn Contents) -> Result<Summary> {
    let mut warehouses: BTreeMap<u32, i64> = BTreeMap::new();
    let mut districts = Districts::default();
    let mut summary = Summary::default();
    contents.visit(&mut |found| {
        if let Found::Warehouse(row) = &found {
            warehouses.insert(row.id, row.ytd);
        }
        note(&mut districts, &mut summary, found);
    })?;
    for (&warehouse, &ytd) in &warehouses {
        let own = districts.0.range((warehouse, 0)..=(warehouse, u32::MAX));
        let (of_districts, of_history) = own.fold((0, 0), |(ytds, sums), (_, facts)| {
            (ytds + facts.ytd, sums + facts.history)
        });
        let place = format!("warehouse {warehouse}");
        equal(1, &place, "W_YTD and sum of D_YTD", ytd, of_districts)?;
        equal(8, &place, "W_YTD and sum of H_AMOUNT", ytd, of_history)?;
    }
    for (&(warehouse, district), facts) in &districts.0 {
        check_district(&format!("district {warehouse}.{district}"), facts)?;
    }
    Ok(summary)
}

fn note(districts: &mut Districts, summary: &mut Summary, found: Found) {
    match found {
        Found::Warehouse(_) => {}
        Found::District(row) => {
            let facts = districts.facts(row.warehouse, row.id);
            (facts.next_order, facts.ytd) = (row.next_order, row.ytd);
        }
        Found::Customer(row) => {
            let facts = districts.facts(row.warehouse, row.district);
            let customer = facts.customers.entry(row.id).or_default();
            (customer.0, customer.1) = (row.balance, row.ytd_payment);
        }
        Found::History(row) => {
            summary.history += 1;
            districts.facts(row.warehouse, row.district).history += row.amount;
            let facts = districts.facts(row.customer_warehouse, row.customer_district);
            facts.customers.entry(row.customer).or_default().2 += row.amount;
        }
        Found::Order(row) => {
            summary.orders += 1;
            let facts = districts.facts(row.warehouse, row.district);
            let order = facts.orders.entry(row.id).or_default();
            order.customer = row.customer;
            order.is_delivered = row.carrier != 0;
            order.lines += u64::from(row.lines);
        }
        Found::OrderLine(row) => {
            summary.order_lines += 1;
            let facts = districts.facts(row.warehouse, row.district);
            let order = facts.orders.entry(row.order).or_default();
            order.lines_found += 1;
            order.lines_delivered += u64::from(row.delivery != 0);
            order.amount += row.amount;
        }
        Found::NewOrder([warehouse, district, order]) => {
            summary.new_orders += 1;
            districts.facts(warehouse, district).new_orders.push(order);
        }
    }
}

fn check_district(place: &str, facts: &DistrictFacts) -> Result<()> {
    let orders = &facts.orders;
    let newest = i64::from(orders.keys().next_back().copied().unwrap_or(0));
    let next = i64::from(facts.next_order) - 1;
    equal(2, place, "D_NEXT_O_ID - 1 and max(O_ID)", next, newest)?;
    if let (Some(least), Some(most)) =
        (facts.new_orders.iter().min(), facts.new_orders.iter().max())
    {
        let most_order = i64::from(*most);
        equal(
            2,
            place,
            "D_NEXT_O_ID - 1 and max(NO_O_ID)",
            next,
            most_order,
        )?;
        let (span, count) = (i64::from(most - least) + 1, facts.new_orders.len() as i64);
        equal(3, place, "range and number of NO_O_ID", span, count)?;
    }
    let sum = |of: fn(&OrderFacts) -> u64| orders.values().map(of).sum::<u64>() as i64;
    let (said, found) = (sum(|order| order.lines), sum(|order| order.lines_found));
    equal(4, place, "sum of O_OL_CNT and lines", said, found)?;
    equal(
        9,
        place,
        "D_YTD and sum of H_AMOUNT",
        facts.ytd,
        facts.history,
    )?;
    let delivered = check_orders(place, facts)?;
    for (id, (balance, payments, history)) in &facts.customers {
        let place = format!("{place}, customer {id}");
        let amount = delivered.get(id).copied().unwrap_or(0);
        equal(
            10,
            &place,
            "C_BALANCE and its orders",
            *balance,
            amount - history,
        )?;
        let both = balance + payments;
        equal(
            12,
            &place,
            "C_BALANCE + C_YTD_PAYMENT and its orders",
            both,
            amount,
        )?;
    }
    Ok(())
}

/// Checks a district's orders by themselves; returns the delivered amount of each customer.
fn check_orders(place: &str, facts: &DistrictFacts) -> Result<BTreeMap<u32, i64>> {
    let orders = &facts.orders;
    let mut delivered: BTreeMap<u32, i64> = BTreeMap::new();
    let mut undelivered = 0;
    for (number, order) in orders {
        let place = format!("{place}, order {number}");
        let (said, found) = (order.lines as i64, order.lines_found as i64);
        equal(6, &place, "O_OL_CNT and lines", said, found)?;
        let expected = if order.is_delivered { found } else { 0 };
        let with_date = order.lines_delivered as i64;
        equal(7, &place, "lines with a delivery date", with_date, expected)?;
        match order.is_delivered {
            true => *delivered.entry(order.customer).or_default() += order.amount,
            false => undelivered += 1,
        }
    }
    let new_orders = facts.new_orders.iter();
    let open = new_orders.filter(|&order| orders.get(order).is_some_and(|it| !it.is_delivered));
    let (open, all) = (open.count() as i64, facts.new_orders.len() as i64);
    equal(
        5,
        place,
        "NEW-ORDERs and those without a carrier",
        all,
        open,
    )?;
    equal(
        5,
        place,
        "orders without a carrier and NEW-ORDERs",
        undelivered,
        all,
    )?;
    Ok(delivered)
}

fn equal(condition: u8, place: &str, what: &str, left: i64, right: i64) -> Result<()> {
    if left == right {
        return Ok(());
    }
    let message = format!("{place}: condition 3.3.2.{condition}: {what} are {left} and {right}");
    Err(Error::internal(message))
}

#[cfg(test)]
mod tests;
