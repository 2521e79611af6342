//! Each condition finds the fault that it is about.

use super::*;
use crate::rows::{Customer, District, History, Order, OrderLine, Row, Warehouse, padded};

fn zeroed<R: Row>() -> R {
    R::decode(&vec![0; R::BYTES]).expect("enough bytes")
}

/// One warehouse and district, one customer with a payment of 5 and two orders, of which the first,
/// with one line of 7, is delivered.
struct Small {
    warehouse: Warehouse,
    district: District,
    customer: Customer,
    history: History,
    orders: [Order; 2],
    lines: [OrderLine; 2],
    new_orders: Vec<u32>,
}

impl Small {
    fn new() -> Self {
        let order = |id, carrier| Order {
            warehouse: 1,
            district: 1,
            id,
            customer: 1,
            carrier,
            lines: 1,
            ..zeroed()
        };
        let line = |order, delivery| OrderLine {
            warehouse: 1,
            district: 1,
            order,
            number: 1,
            delivery,
            amount: 7,
            dist_info: padded(b""),
            ..zeroed()
        };
        Self {
            warehouse: Warehouse {
                id: 1,
                ytd: 5,
                ..zeroed()
            },
            district: District {
                warehouse: 1,
                id: 1,
                ytd: 5,
                next_order: 3,
                ..zeroed()
            },
            customer: Customer {
                warehouse: 1,
                district: 1,
                id: 1,
                balance: 2,
                ytd_payment: 5,
                ..zeroed()
            },
            history: History {
                customer_warehouse: 1,
                customer_district: 1,
                customer: 1,
                warehouse: 1,
                district: 1,
                amount: 5,
                ..zeroed()
            },
            orders: [order(1, 3), order(2, 0)],
            lines: [line(1, 9), line(2, 0)],
            new_orders: vec![2],
        }
    }
}

impl Contents for Small {
    fn visit(&self, visit: &mut dyn FnMut(Found)) -> Result<()> {
        visit(Found::Warehouse(self.warehouse.clone()));
        visit(Found::District(self.district.clone()));
        visit(Found::Customer(Box::new(self.customer.clone())));
        visit(Found::History(self.history.clone()));
        for (order, line) in self.orders.iter().zip(&self.lines) {
            visit(Found::Order(order.clone()));
            visit(Found::OrderLine(line.clone()));
        }
        for order in &self.new_orders {
            visit(Found::NewOrder([1, 1, *order]));
        }
        Ok(())
    }
}

#[test]
fn a_consistent_database_passes() {
    let summary = check(&Small::new()).expect("consistent");
    assert_eq!((summary.orders, summary.order_lines), (2, 2));
    assert_eq!((summary.new_orders, summary.history), (1, 1));
}

#[test]
fn each_condition_finds_its_fault() {
    type Fault = fn(&mut Small);
    let faults: [(u8, Fault); 13] = [
        (1, |it| it.warehouse.ytd = 6),
        (2, |it| it.district.next_order = 4),
        (2, |it| it.new_orders = vec![1]),
        (3, |it| it.new_orders = vec![2, 2]),
        (4, |it| it.orders[0].lines = 2),
        (5, |it| it.new_orders.clear()),
        (5, |it| it.new_orders = vec![1, 2]),
        (6, |it| (it.orders[0].lines, it.orders[1].lines) = (2, 0)),
        (7, |it| it.lines[0].delivery = 0),
        (7, |it| it.lines[1].delivery = 9),
        (8, |it| (it.warehouse.ytd, it.district.ytd) = (6, 6)),
        (10, |it| it.customer.balance = 3),
        (12, |it| it.customer.ytd_payment = 6),
    ];
    for (condition, fault) in faults {
        let mut small = Small::new();
        fault(&mut small);
        let error = check(&small).expect_err("a fault").to_string();
        assert!(
            error.contains(&format!("3.3.2.{condition}:")),
            "{condition}: {error}"
        );
    }
}

#[test]
fn a_districts_history_is_its_own() {
    let mut small = Small::new();
    small.history.district = 2;
    let error = check(&small).expect_err("a fault").to_string();
    assert!(error.contains("3.3.2.9:"), "{error}");
}
