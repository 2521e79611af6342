//! The rivals' point transactions, with the product's interface, and the adapter that gives them
//! the harness's interface, as `crate::ours` does for the product.

use super::super::engine::{Failure, Point, Step, UPDATED};
use strandline_base::{ColumnId, Result, Value};

/// Like `strandline::Transaction`.
pub trait PointTransaction {
    /// Appends the values of `columns` of the row with this key; false if there is none.
    fn get_into(
        &mut self,
        key: &[Value],
        columns: &[ColumnId],
        values: &mut Vec<Value>,
    ) -> Result<bool>;

    /// Sets columns of the row with this key; false if there is none.
    fn update(&mut self, key: &[Value], set: &[(ColumnId, Value)]) -> Result<bool>;
}

/// Buffers that a session reuses for its next transaction.
pub struct Buffers {
    columns: Vec<ColumnId>,
    row: Vec<Value>,
}

impl Buffers {
    /// Buffers for reads of the first `columns` columns.
    pub fn new(columns: usize) -> Self {
        Self {
            columns: (0..columns as u32).map(ColumnId).collect(),
            row: Vec::with_capacity(columns),
        }
    }
}

/// A transaction with the harness's interface.
pub struct Numbers<'b, T> {
    /// The rival's transaction.
    pub transaction: T,
    /// The buffers of its session.
    pub buffers: &'b mut Buffers,
}

impl<T: PointTransaction> Point for Numbers<'_, T> {
    fn read(&mut self, key: u64, values: &mut [i64]) -> Step<()> {
        let Buffers { columns, row } = &mut *self.buffers;
        row.clear();
        let wanted = [Value::BigInt(key as i64)];
        if !self.transaction.get_into(&wanted, columns, row)? {
            return Err(Failure::Error(format!("no row {key}")));
        }
        for (value, found) in values.iter_mut().zip(row) {
            let Value::BigInt(found) = found else {
                return Err(Failure::Error(format!("row {key} has {found:?}")));
            };
            *value = *found;
        }
        Ok(())
    }

    fn update(&mut self, key: u64, values: &[i64; UPDATED]) -> Step<()> {
        let set: [(ColumnId, Value); UPDATED] =
            std::array::from_fn(|i| (ColumnId(i as u32), Value::BigInt(values[i])));
        let found = self
            .transaction
            .update(&[Value::BigInt(key as i64)], &set)?;
        assert!(found, "row {key} exists");
        Ok(())
    }
}
