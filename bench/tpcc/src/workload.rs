//! What a database must do to run the benchmark.

use strandline_base::Result;

use crate::input::{Delivery, Input, NewOrder, OrderStatus, Payment, StockLevel};
use crate::rows::{Customer, District, History, Order, OrderLine, Warehouse};

/// The end of a transaction that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is durable. Of New-Order: in cents before discount and taxes; of Stock-Level: items below
    /// the threshold; of Delivery: districts that had an order; else 0.
    Committed(i64),
    /// a New-Order with an unused item
    RolledBack,
}

/// The five transactions. Each returns when it is durable.
pub trait Workload: Sync {
    /// Enters an order [TPC-C 2.4].
    fn new_order(&self, input: &NewOrder) -> Result<Outcome>;
    /// Books a payment [TPC-C 2.5].
    fn payment(&self, input: &Payment) -> Result<Outcome>;
    /// Reads a customer's last order [TPC-C 2.6].
    fn order_status(&self, input: &OrderStatus) -> Result<Outcome>;
    /// Delivers the oldest order of each district [TPC-C 2.7].
    fn delivery(&self, input: &Delivery) -> Result<Outcome>;
    /// Counts items of recent orders with a low stock [TPC-C 2.8].
    fn stock_level(&self, input: &StockLevel) -> Result<Outcome>;

    /// Runs the transaction of an input.
    fn run(&self, input: &Input) -> Result<Outcome> {
        match input {
            Input::NewOrder(input) => self.new_order(input),
            Input::Payment(input) => self.payment(input),
            Input::OrderStatus(input) => self.order_status(input),
            Input::Delivery(input) => self.delivery(input),
            Input::StockLevel(input) => self.stock_level(input),
        }
    }
}

/// A row that the conditions of clause 3.3.2 are about.
#[derive(Clone, Debug)]
pub enum Found {
    Warehouse(Warehouse),
    District(District),
    Customer(Box<Customer>),
    History(History),
    Order(Order),
    OrderLine(OrderLine),
    /// warehouse, district, order
    NewOrder([u32; 3]),
}

/// The rows, while no transaction runs.
pub trait Contents {
    /// Visits every row of the tables in [`Found`], in any order.
    fn visit(&self, visit: &mut dyn FnMut(Found)) -> Result<()>;
}
