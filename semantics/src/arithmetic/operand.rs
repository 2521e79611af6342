//! Operands of vectorised kernels: a column of values or one constant, and the loops over them.
//!
//! Kernels compute every slot, including NULL slots, so that the loops have no branches. They must
//! therefore be total functions. Faults are collected as a flag and examined afterwards:
//! [`any_valid`] tells whether a slot that is not NULL is at fault.

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

/// One operand with values of the native type `T`.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a, T> {
    /// One value per row.
    Column(&'a [T]),
    /// The same value for every row.
    Constant(T),
}

impl<T: Copy> Operand<'_, T> {
    /// The value of row `i`.
    pub fn get(&self, i: usize) -> T {
        match self {
            Operand::Column(values) => values[i],
            Operand::Constant(value) => *value,
        }
    }
}

/// `f` of every row. `f` must be total: it also sees the contents of NULL slots.
pub fn zip<A: Copy, B: Copy, O>(
    rows: usize,
    a: Operand<A>,
    b: Operand<B>,
    mut f: impl FnMut(A, B) -> O,
) -> Vec<O> {
    match (a, b) {
        (Operand::Column(a), Operand::Column(b)) => {
            a.iter().zip(b).map(|(&x, &y)| f(x, y)).collect()
        }
        (Operand::Column(a), Operand::Constant(y)) => a.iter().map(|&x| f(x, y)).collect(),
        (Operand::Constant(x), Operand::Column(b)) => b.iter().map(|&y| f(x, y)).collect(),
        (Operand::Constant(x), Operand::Constant(y)) => (0..rows).map(|_| f(x, y)).collect(),
    }
}

/// Whether `bad` holds in a row that is not NULL.
pub fn any_valid(rows: usize, nulls: Option<&NullBuffer>, bad: impl Fn(usize) -> bool) -> bool {
    (0..rows).any(|i| nulls.is_none_or(|n| n.is_valid(i)) && bad(i))
}

/// An argument as an array; a constant becomes an array of one row.
#[derive(Debug)]
pub struct Argument {
    array: ArrayRef,
    constant: bool,
}

impl Argument {
    /// Wraps an argument of a function.
    pub fn new(value: &ColumnarValue) -> Result<Self> {
        Ok(match value {
            ColumnarValue::Array(array) => Self {
                array: Arc::clone(array),
                constant: false,
            },
            ColumnarValue::Scalar(scalar) => Self {
                array: scalar.to_array_of_size(1)?,
                constant: true,
            },
        })
    }
    /// The argument's type.
    pub fn data_type(&self) -> &DataType {
        self.array.data_type()
    }
    /// Whether it is one constant that is NULL.
    pub fn is_constant_null(&self) -> bool {
        self.constant && self.array.is_null(0)
    }
    /// Its values as native values of `P`; the caller has checked the type.
    pub fn operand<P: ArrowPrimitiveType>(&self) -> Operand<'_, P::Native> {
        let values = self.array.as_primitive::<P>().values();
        if self.constant {
            Operand::Constant(values[0])
        } else {
            Operand::Column(values)
        }
    }
    fn nulls(&self) -> Option<&NullBuffer> {
        if self.constant {
            None
        } else {
            self.array.nulls()
        }
    }
}

/// Two arguments of a kernel and the rows it has to compute.
#[derive(Debug)]
pub struct Pair {
    /// The left argument.
    pub left: Argument,
    /// The right argument.
    pub right: Argument,
    /// Rows of the result; 1 if both are constants.
    pub rows: usize,
    /// The rows in which either argument is NULL.
    pub nulls: Option<NullBuffer>,
    /// Whether the result is one value.
    pub constant: bool,
}

impl Pair {
    /// Combines two arguments of a batch of `rows` rows.
    pub fn new(left: &ColumnarValue, right: &ColumnarValue, rows: usize) -> Result<Self> {
        let left = Argument::new(left)?;
        let right = Argument::new(right)?;
        let constant = left.constant && right.constant;
        let nulls = NullBuffer::union(left.nulls(), right.nulls());
        Ok(Self {
            left,
            right,
            rows: if constant { 1 } else { rows },
            nulls,
            constant,
        })
    }
    /// Whether the result is NULL in every row because an argument is the constant NULL.
    pub fn is_null(&self) -> bool {
        self.left.is_constant_null() || self.right.is_constant_null()
    }
    /// The kernel's output in DataFusion's form.
    pub fn finish<P: ArrowPrimitiveType>(
        &self,
        values: Vec<P::Native>,
        data_type: &DataType,
    ) -> Result<ColumnarValue> {
        let array = PrimitiveArray::<P>::new(values.into(), self.nulls.clone())
            .with_data_type(data_type.clone());
        if self.constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &array, 0,
            )?));
        }
        Ok(ColumnarValue::Array(Arc::new(array)))
    }
}
