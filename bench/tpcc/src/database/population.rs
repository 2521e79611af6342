//! The initial population [TPC-C 4.3.3].

use strandline_base::rng::Rng;
use strandline_base::{Result, RowId};
use strandline_index::{AccessMethod, BulkLoad};

use super::tables::{Index, Indexed, Tables};
use crate::input::Scale;
use crate::random::{between, data, last_name_of_customer, permutation, text};
use crate::rows::{
    Customer, District, History, Item, Order, OrderLine, Stock, Table, Warehouse, padded,
};

/// Rows that are written to their heap together.
const BATCH_ROWS: usize = 512;
/// The date of everything that is loaded.
const LOADED: i64 = 1;

/// A load of all tables.
struct Load<'a> {
    tables: &'a Tables,
    scale: Scale,
    rng: Rng,
    indexes: Vec<Box<dyn BulkLoad + 'a>>,
    /// by table: rows with places that are not written yet
    rows: Vec<Vec<(RowId, Vec<u8>)>>,
}

/// Fills empty tables; calls `between_parts` after the items and after each warehouse.
pub fn populate(
    tables: &Tables,
    scale: Scale,
    seed: u64,
    between_parts: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let mut rng = Rng::new(seed);
    for part in 0..=scale.warehouses {
        let mut load = Load {
            tables,
            scale,
            rng: Rng::new(rng.next_u64()),
            indexes: Index::ALL
                .into_iter()
                .map(|index| tables.index(index).bulk_load())
                .collect(),
            rows: vec![Vec::new(); Table::ALL.len()],
        };
        match part {
            0 => load.items()?,
            warehouse => load.warehouse(warehouse)?,
        }
        load.finish()?;
        between_parts()?;
    }
    Ok(())
}

impl Load<'_> {
    fn put<R: Indexed>(&mut self, row: &R) -> Result<()> {
        let place = self.tables.heap(R::TABLE).reserve()?;
        for (index, key) in row.keys() {
            self.indexes[index as usize].push(&key, place, &mut Vec::new())?;
        }
        self.rows[R::TABLE as usize].push((place, row.encode()));
        match self.rows[R::TABLE as usize].len() >= BATCH_ROWS {
            true => self.write(R::TABLE),
            false => Ok(()),
        }
    }

    fn write(&mut self, table: Table) -> Result<()> {
        let rows = std::mem::take(&mut self.rows[table as usize]);
        let rows = rows.iter().map(|(row, bytes)| (*row, bytes.as_slice()));
        self.tables.heap(table).put(rows)
    }

    fn finish(mut self) -> Result<()> {
        Table::ALL
            .into_iter()
            .try_for_each(|table| self.write(table))?;
        self.indexes.into_iter().try_for_each(BulkLoad::finish)
    }

    fn items(&mut self) -> Result<()> {
        for id in 1..=self.scale.items {
            let rng = &mut self.rng;
            let item = Item {
                id,
                image: between(rng, 1, 10_000) as u32,
                name: text(rng),
                price: between(rng, 100, 10_000) as i64,
                data: data(rng),
            };
            self.put(&item)?;
        }
        Ok(())
    }

    fn warehouse(&mut self, id: u32) -> Result<()> {
        let rng = &mut self.rng;
        let warehouse = Warehouse {
            id,
            name: text(rng),
            address: text(rng),
            tax: rng.below(2_001) as u32,
            ytd: 1_000 * i64::from(self.scale.customers * self.scale.districts),
        };
        self.put(&warehouse)?;
        for item in 1..=self.scale.items {
            let rng = &mut self.rng;
            let stock = Stock {
                warehouse: id,
                item,
                quantity: between(rng, 10, 100) as u32,
                dist: text(rng),
                ytd: 0,
                orders: 0,
                remote: 0,
                data: data(rng),
            };
            self.put(&stock)?;
        }
        (1..=self.scale.districts).try_for_each(|district| self.district(id, district))
    }

    fn district(&mut self, warehouse: u32, id: u32) -> Result<()> {
        let rng = &mut self.rng;
        let district = District {
            warehouse,
            id,
            name: text(rng),
            address: text(rng),
            tax: rng.below(2_001) as u32,
            ytd: 1_000 * i64::from(self.scale.customers),
            next_order: self.scale.customers + 1,
        };
        self.put(&district)?;
        for customer in 1..=self.scale.customers {
            self.customer(warehouse, id, customer)?;
        }
        let customers = permutation(&mut self.rng, self.scale.customers);
        for (order, customer) in (1..).zip(customers) {
            self.order([warehouse, id, order, customer])?;
        }
        Ok(())
    }

    fn customer(&mut self, warehouse: u32, district: u32, id: u32) -> Result<()> {
        let rng = &mut self.rng;
        let customer = Customer {
            warehouse,
            district,
            id,
            first: text(rng),
            middle: *b"OE",
            last: padded(last_name_of_customer(rng, id).as_bytes()),
            address: text(rng),
            phone: text(rng),
            since: LOADED,
            credit: if rng.one_in(10) { *b"BC" } else { *b"GC" },
            credit_limit: 5_000_000,
            discount: rng.below(5_001) as u32,
            balance: -1_000,
            ytd_payment: 1_000,
            payments: 1,
            deliveries: 0,
            data: text(rng),
        };
        let history = History {
            customer_warehouse: warehouse,
            customer_district: district,
            customer: id,
            warehouse,
            district,
            date: LOADED,
            amount: 1_000,
            data: text(rng),
        };
        self.put(&customer)?;
        self.put(&history)
    }

    fn order(&mut self, [warehouse, district, id, customer]: [u32; 4]) -> Result<()> {
        let rng = &mut self.rng;
        let is_new = id > self.scale.customers - self.scale.new_orders();
        let order = Order {
            warehouse,
            district,
            id,
            customer,
            entry: LOADED,
            carrier: if is_new { 0 } else { between(rng, 1, 10) as u8 },
            lines: between(rng, 5, 15) as u8,
            is_local: 1,
        };
        self.put(&order)?;
        for number in 1..=order.lines {
            let rng = &mut self.rng;
            let line = OrderLine {
                warehouse,
                district,
                order: id,
                number,
                item: between(rng, 1, self.scale.items.into()) as u32,
                supply_warehouse: warehouse,
                delivery: if is_new { 0 } else { LOADED },
                quantity: 5,
                amount: match is_new {
                    true => between(rng, 1, 999_999) as i64,
                    false => 0,
                },
                dist_info: text(rng),
            };
            self.put(&line)?;
        }
        Ok(())
    }
}
