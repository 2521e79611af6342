//! Inputs of the transactions and their mix [TPC-C 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1, 5.2.3].

use strandline_base::rng::Rng;

use crate::random::{between, customer, item, last_name_of_input};

/// The number of rows, by which inputs and the initial population go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub warehouses: u32,
    /// of a warehouse; at most 10
    pub districts: u32,
    /// of a district; orders as well
    pub customers: u32,
    pub items: u32,
}

impl Scale {
    /// The specification's numbers of rows for so many warehouses.
    pub fn of(warehouses: u32) -> Self {
        Self {
            warehouses,
            districts: 10,
            customers: 3_000,
            items: 100_000,
        }
    }

    /// Initial orders of a district without a delivery: the newest three tenths.
    pub fn new_orders(&self) -> u32 {
        self.customers * 3 / 10
    }
}

/// One line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// may be an unused number
    pub item: u32,
    pub supply_warehouse: u32,
    pub quantity: u32,
}

/// Input of New-Order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOrder {
    pub warehouse: u32,
    pub district: u32,
    pub customer: u32,
    pub lines: Vec<Line>,
    pub entry: i64,
}

/// How a customer is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CustomerBy {
    Number(u32),
    LastName(String),
}

/// Input of Payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    pub warehouse: u32,
    pub district: u32,
    pub customer_warehouse: u32,
    pub customer_district: u32,
    pub customer: CustomerBy,
    /// cents
    pub amount: i64,
    pub date: i64,
}

/// Input of Order-Status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderStatus {
    pub warehouse: u32,
    pub district: u32,
    pub customer: CustomerBy,
}

/// Input of Delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub warehouse: u32,
    /// from 1 to 10
    pub carrier: u8,
    pub date: i64,
}

/// Input of Stock-Level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockLevel {
    pub warehouse: u32,
    pub district: u32,
    pub threshold: u32,
}

/// Input of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

/// A deck of 23 cards [TPC-C 5.2.4.2]: ten New-Orders, ten Payments, one of each other kind.
const DECK: [u8; 23] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4,
];

/// The inputs of one terminal, which belongs to a district.
#[derive(Clone, Debug)]
pub struct Inputs {
    rng: Rng,
    scale: Scale,
    warehouse: u32,
    district: u32,
    deck: Vec<u8>,
    /// dates are numbers of transactions: they take part in nothing but equality with 0
    date: i64,
}

impl Inputs {
    /// The inputs of terminal `number`, from 0 on.
    pub fn new(scale: Scale, number: u32, seed: u64) -> Self {
        Self {
            rng: Rng::new(seed ^ (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            scale,
            warehouse: number % scale.warehouses + 1,
            district: number / scale.warehouses % scale.districts + 1,
            deck: Vec::new(),
            date: 0,
        }
    }

    /// A share of 1 by which a wait may be scaled, exponentially distributed, at most 10
    /// [TPC-C 5.2.5.4].
    pub fn wait_share(&mut self) -> f64 {
        let uniform = (self.rng.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64;
        (-uniform.ln()).min(10.0)
    }

    /// The next input.
    pub fn draw(&mut self) -> Input {
        self.date += 1;
        if self.deck.is_empty() {
            self.deck.extend(DECK);
        }
        let at = self.rng.below(self.deck.len() as u64) as usize;
        match self.deck.swap_remove(at) {
            0 => Input::NewOrder(self.new_order()),
            1 => Input::Payment(self.payment()),
            2 => Input::OrderStatus(self.order_status()),
            3 => Input::Delivery(Delivery {
                warehouse: self.warehouse,
                carrier: between(&mut self.rng, 1, 10) as u8,
                date: self.date,
            }),
            _ => Input::StockLevel(StockLevel {
                warehouse: self.warehouse,
                district: self.district,
                threshold: between(&mut self.rng, 10, 20) as u32,
            }),
        }
    }

    fn any_district(&mut self) -> u32 {
        between(&mut self.rng, 1, self.scale.districts.into()) as u32
    }

    /// Another warehouse, if there is one.
    fn remote(&mut self) -> u32 {
        if self.scale.warehouses == 1 {
            return self.warehouse;
        }
        let other = between(&mut self.rng, 1, u64::from(self.scale.warehouses) - 1) as u32;
        other + u32::from(other >= self.warehouse)
    }

    fn new_order(&mut self) -> NewOrder {
        let district = self.any_district();
        let lines = between(&mut self.rng, 5, 15);
        let mut lines: Vec<Line> = (0..lines)
            .map(|_| Line {
                item: item(&mut self.rng, self.scale.items),
                supply_warehouse: match self.rng.one_in(100) {
                    true => self.remote(),
                    false => self.warehouse,
                },
                quantity: between(&mut self.rng, 1, 10) as u32,
            })
            .collect();
        if self.rng.one_in(100)
            && let Some(last) = lines.last_mut()
        {
            last.item = self.scale.items + 1;
        }
        NewOrder {
            warehouse: self.warehouse,
            district,
            customer: customer(&mut self.rng, self.scale.customers),
            lines,
            entry: self.date,
        }
    }

    fn customer_by(&mut self) -> CustomerBy {
        let customers = self.scale.customers;
        match self.rng.below(100) < 60 {
            true => CustomerBy::LastName(last_name_of_input(&mut self.rng, customers)),
            false => CustomerBy::Number(customer(&mut self.rng, customers)),
        }
    }

    fn payment(&mut self) -> Payment {
        let district = self.any_district();
        let is_local = self.rng.below(100) < 85;
        let (customer_warehouse, customer_district) = match is_local {
            true => (self.warehouse, district),
            false => (self.remote(), self.any_district()),
        };
        Payment {
            warehouse: self.warehouse,
            district,
            customer_warehouse,
            customer_district,
            customer: self.customer_by(),
            amount: between(&mut self.rng, 100, 500_000) as i64,
            date: self.date,
        }
    }

    fn order_status(&mut self) -> OrderStatus {
        OrderStatus {
            warehouse: self.warehouse,
            district: self.any_district(),
            customer: self.customer_by(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_has_the_shares_of_the_deck() {
        let mut inputs = Inputs::new(Scale::of(2), 3, 7);
        let mut counts = [0; 5];
        let (mut unused, mut remote) = (0, 0);
        for _ in 0..2_300 {
            let kind = match inputs.draw() {
                Input::NewOrder(order) => {
                    assert!((5..=15).contains(&order.lines.len()));
                    assert_eq!(order.warehouse, 2);
                    unused += usize::from(order.lines.iter().any(|line| line.item > 100_000));
                    remote += order
                        .lines
                        .iter()
                        .filter(|line| line.supply_warehouse == 1)
                        .count();
                    0
                }
                Input::Payment(_) => 1,
                Input::OrderStatus(_) => 2,
                Input::Delivery(_) => 3,
                Input::StockLevel(level) => {
                    assert_eq!((level.warehouse, level.district), (2, 2));
                    4
                }
            };
            counts[kind] += 1;
        }
        assert_eq!(counts, [1_000, 1_000, 100, 100, 100]);
        assert!(
            (2..30).contains(&unused) && (50..200).contains(&remote),
            "{unused} {remote}"
        );
    }

    #[test]
    fn waits_are_exponential_and_bounded() {
        let mut inputs = Inputs::new(Scale::of(1), 0, 1);
        let waits: Vec<f64> = (0..10_000).map(|_| inputs.wait_share()).collect();
        let mean = waits.iter().sum::<f64>() / 10_000.0;
        assert!((0.9..1.1).contains(&mean), "{mean}");
        assert!(waits.iter().all(|wait| (0.0..=10.0).contains(wait)));
    }
}
