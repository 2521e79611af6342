//! Rows of TPC-H's orders and lines as the order desk writes them: keys, prices, values.

use crate::session::Value;
use tpchgen::generators::OrderGenerator;

/// Days since 1970 of 1992-01-01 and of the last order date of TPC-H (1998-08-02).
pub const FIRST_DAY: u64 = 8_035;
pub const LAST_DAY: u64 = 10_440;

pub const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
pub const SHIP_MODES: [&str; 7] = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"];

/// The parts of an order's line that its price depends on.
pub struct Line {
    pub part: i64,
    pub quantity: i64,
    pub discount_percent: i64,
    pub tax_percent: i64,
    pub extended_cents: i64,
}

impl Line {
    /// The price in cents after discount and tax, truncated as TPC-H does.
    pub fn price_cents(&self) -> i64 {
        let discounted = self.extended_cents * (100 - self.discount_percent) / 100;
        discounted * (100 + self.tax_percent) / 100
    }
}

/// The key of the order with this index. TPC-H uses 8 of every 32 keys.
pub fn order_key(index: u64) -> i64 {
    OrderGenerator::make_order_key(index as i64)
}

/// The inverse of [`order_key`].
pub fn order_index(key: i64) -> u64 {
    ((key.unsigned_abs() >> 5) << 3) | (key.unsigned_abs() & 7)
}

pub fn line_key(order: i64, number: i32) -> [Value; 2] {
    [Value::BigInt(order), Value::Integer(number)]
}

/// A numeric(15,2) of this many hundredths.
pub fn cents(hundredths: i64) -> Value {
    Value::Numeric(hundredths.into())
}

pub fn order_row(order: i64, customer: i64, total: i64, day: i32, priority: &str) -> [Value; 9] {
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

pub fn line_row(
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
