//! The operators `+ - * / %` with PostgreSQL's types and errors, as scalar functions.
//!
//! DataFusion's own operators wrap on integer overflow, keep 64-bit decimals at 64 bits and type
//! `date + interval` as a date, so the SQL planner hook ([`super::operators`]) plans these
//! functions instead. They are ordinary immutable functions to the optimizer: constants are
//! folded, common subexpressions shared, filters pushed down.
//!
//! Typing ([`resolve`]):
//! integers widen to the wider of the two and stay there; numeric with integer is numeric; real
//! with real is real, any other pair with a float is double precision; see [`numeric`] and
//! [`temporal`] for the rest. Text operands are refused (42883): string *literals* have been
//! given a type before they get here.

pub mod float;
pub mod integer;
pub mod numeric;
pub mod operand;
pub mod temporal;

use super::decimal::Shape;
use super::error::invalid;
use super::types::sql_name;
use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use operand::Pair;
use std::sync::{Arc, LazyLock};
use strandline_base::SqlState;
use temporal::Typed;

/// An arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

impl Operation {
    const ALL: [Operation; 5] = [
        Self::Add,
        Self::Subtract,
        Self::Multiply,
        Self::Divide,
        Self::Modulo,
    ];

    /// The operator's sign.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
        }
    }
    fn function_name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Subtract => "subtract",
            Self::Multiply => "multiply",
            Self::Divide => "divide",
            Self::Modulo => "mod",
        }
    }
}

/// `left operation right` as an expression.
pub fn expression(operation: Operation, left: Expr, right: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(
        function(operation),
        vec![left, right],
    ))
}

/// The function that computes `operation`.
pub fn function(operation: Operation) -> Arc<ScalarUDF> {
    static FUNCTIONS: LazyLock<Vec<Arc<ScalarUDF>>> = LazyLock::new(|| {
        Operation::ALL
            .map(|o| Arc::new(ScalarUDF::from(Arithmetic::new(o))))
            .to_vec()
    });
    Arc::clone(&FUNCTIONS[operation as usize])
}

/// The functions that can also be called by name: `mod(a, b)`.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![function(Operation::Modulo)]
}

/// The integer type that holds both operands, as PostgreSQL widens them. Unsigned integers occur
/// only as results of DataFusion's functions; they count as the next wider signed type.
pub fn common_integer(left: &DataType, right: &DataType) -> Option<DataType> {
    let rank = |t: &DataType| match t {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => Some(0),
        DataType::UInt16 | DataType::Int32 => Some(1),
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => Some(2),
        _ => None,
    };
    let wider = rank(left)?.max(rank(right)?);
    Some([DataType::Int16, DataType::Int32, DataType::Int64][wider].clone())
}

/// A decimal or integer as the decimal type that holds it.
pub fn as_decimal(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::UInt8 | DataType::UInt16 => Some(Shape::new(5, 0).data_type()),
        DataType::UInt32 => Some(Shape::new(10, 0).data_type()),
        DataType::UInt64 => Some(Shape::new(20, 0).data_type()),
        DataType::Decimal64(_, s) | DataType::Decimal128(_, s) if *s >= 0 => {
            Some(data_type.clone())
        }
        _ => Shape::of(data_type).map(Shape::data_type),
    }
}

/// Operand types and result type of `left operation right`; 42883 if there is no such operator.
pub fn resolve(operation: Operation, left: &DataType, right: &DataType) -> Result<Typed> {
    let found = match (left, right) {
        (DataType::Null, DataType::Null) => known(operation, &DataType::Int32, &DataType::Int32),
        (DataType::Null, t) => with_null(t, |null| known(operation, null, t)),
        (t, DataType::Null) => with_null(t, |null| known(operation, t, null)),
        _ => known(operation, left, right),
    };
    found.ok_or_else(|| {
        invalid(
            SqlState::UNDEFINED_FUNCTION,
            format!(
                "operator does not exist: {} {} {}",
                sql_name(left),
                operation.symbol(),
                sql_name(right)
            ),
        )
    })
}

/// The first type for a bare NULL beside `other` that gives an operator.
fn with_null(other: &DataType, attempt: impl Fn(&DataType) -> Option<Typed>) -> Option<Typed> {
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    [other, &DataType::Int32, &interval]
        .into_iter()
        .find_map(attempt)
}

fn known(operation: Operation, left: &DataType, right: &DataType) -> Option<Typed> {
    let uniform = |t: DataType| {
        Some(Typed {
            operands: [t.clone(), t.clone()],
            result: t,
        })
    };
    if let Some(common) = common_integer(left, right) {
        return uniform(common);
    }
    let float = |t: &DataType| t.is_floating();
    if float(left) || float(right) {
        if !(left.is_numeric() && right.is_numeric()) {
            return temporal::resolve(operation, left, right);
        }
        if operation == Operation::Modulo {
            return None;
        }
        let real = |t: &DataType| matches!(t, DataType::Float16 | DataType::Float32);
        return uniform(if real(left) && real(right) {
            DataType::Float32
        } else {
            DataType::Float64
        });
    }
    if let (Some(l), Some(r)) = (as_decimal(left), as_decimal(right)) {
        let result = numeric::result_type(operation, Shape::of(&l)?, Shape::of(&r)?);
        return Some(Typed {
            operands: [l, r],
            result,
        });
    }
    temporal::resolve(operation, left, right)
}

/// The function behind an operator.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Arithmetic {
    operation: Operation,
    signature: Signature,
}

impl Arithmetic {
    fn new(operation: Operation) -> Self {
        Self {
            operation,
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &str {
        self.operation.function_name()
    }
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let side = |e: &Expr| match e {
            Expr::ScalarFunction(f) if f.func.inner().is::<Self>() => {
                format!("({})", e.schema_name())
            }
            _ => e.schema_name().to_string(),
        };
        match args {
            [left, right] => Ok(format!(
                "{} {} {}",
                side(left),
                self.operation.symbol(),
                side(right)
            )),
            _ => internal_err!("{} takes two arguments", self.name()),
        }
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        match arg_types {
            [left, right] => Ok(resolve(self.operation, left, right)?.operands.to_vec()),
            _ => internal_err!("{} takes two arguments", self.name()),
        }
    }
    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [left, right] => Ok(resolve(self.operation, left, right)?.result),
            _ => internal_err!("{} takes two arguments", self.name()),
        }
    }
    fn is_strict(&self) -> bool {
        true
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return internal_err!("{} takes two arguments", self.name());
        };
        let pair = Pair::new(left, right, args.number_rows)?;
        let result = args.return_field.data_type();
        if pair.is_null() {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(result)?));
        }
        match (pair.left.data_type(), pair.right.data_type()) {
            (DataType::Int16, DataType::Int16) => integer::smallint(self.operation, &pair),
            (DataType::Int32, DataType::Int32) => integer::integer(self.operation, &pair),
            (DataType::Int64, DataType::Int64) => integer::bigint(self.operation, &pair),
            (DataType::Float32, DataType::Float32) => float::real(self.operation, &pair),
            (DataType::Float64, DataType::Float64) => float::double(self.operation, &pair),
            (l, r) if l.is_decimal() && r.is_decimal() => numeric::compute(self.operation, &pair),
            _ => temporal::compute(self.operation, &pair, result),
        }
    }
}
