//! All rows, for the consistency check, and the check that rows and index entries are the same.

use strandline_base::{Error, Result};
use strandline_index::{AccessMethod, Direction, KeyRange};

use super::Database;
use super::tables::{Index, Indexed, decoded, numbers_of};
use crate::rows::{Customer, District, History, Item, Order, OrderLine, Row, Stock, Warehouse};
use crate::workload::{Contents, Found};

impl Contents for Database {
    fn visit(&self, visit: &mut dyn FnMut(Found)) -> Result<()> {
        self.each::<Warehouse>(&mut |row| visit(Found::Warehouse(row)))?;
        self.each::<District>(&mut |row| visit(Found::District(row)))?;
        self.each::<Customer>(&mut |row| visit(Found::Customer(Box::new(row))))?;
        self.each::<History>(&mut |row| visit(Found::History(row)))?;
        self.each::<Order>(&mut |row| visit(Found::Order(row)))?;
        self.each::<OrderLine>(&mut |row| visit(Found::OrderLine(row)))?;
        let index = self.tables.index(Index::NewOrder);
        let mut cursor = index.cursor(&KeyRange::default(), Direction::Forward)?;
        while let Some((key, _)) = cursor.next()? {
            let key = numbers_of(&key);
            let key = key.first_chunk().copied();
            let damaged = || Error::corrupt("index NewOrder", "a key without three numbers");
            visit(Found::NewOrder(key.ok_or_else(damaged)?));
        }
        Ok(())
    }
}

impl Database {
    fn each<R: Row>(&self, visit: &mut dyn FnMut(R)) -> Result<()> {
        self.tables.heap(R::TABLE).visit(&mut |_, bytes| {
            visit(decoded(bytes)?);
            Ok(())
        })
    }

    /// Checks the indexes by themselves, and that they have the entries of all rows and no others,
    /// while no transaction runs.
    ///
    /// # Errors
    /// XX001 that names the index.
    pub fn check_indexes(&self) -> Result<()> {
        let mut expected = [0; Index::ALL.len()];
        self.check_entries::<Warehouse>(&mut expected)?;
        self.check_entries::<District>(&mut expected)?;
        self.check_entries::<Customer>(&mut expected)?;
        self.check_entries::<History>(&mut expected)?;
        self.check_entries::<Order>(&mut expected)?;
        self.check_entries::<OrderLine>(&mut expected)?;
        self.check_entries::<Item>(&mut expected)?;
        self.check_entries::<Stock>(&mut expected)?;
        for index in Index::ALL {
            let mut damage = Vec::new();
            self.tables.index(index).check(&mut damage)?;
            let (held, rows) = (self.tables.index(index).len(), expected[index as usize]);
            if held != rows {
                damage.push(format!("{held} entries of {rows} rows"));
            }
            if let Some(damage) = damage.first() {
                return Err(Error::corrupt(format!("index {index:?}"), damage));
            }
        }
        Ok(())
    }

    fn check_entries<R: Indexed>(&self, expected: &mut [usize]) -> Result<()> {
        self.tables.heap(R::TABLE).visit(&mut |row, bytes| {
            for (index, key) in decoded::<R>(bytes)?.keys() {
                expected[index as usize] += 1;
                let mut rows = Vec::new();
                let access = self.tables.index(index);
                access.lookup(&access.encode(&key), &mut rows)?;
                if !rows.contains(&row) {
                    let what = format!("no entry {key:?} of row {}", row.0);
                    return Err(Error::corrupt(format!("index {index:?}"), what));
                }
            }
            Ok(())
        })
    }
}
