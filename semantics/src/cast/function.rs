//! A cast as a scalar function, where DataFusion's own cast differs.

use super::{Kind, Mode, cast_array, kind};
use crate::error::invalid;
use crate::types::{arrow_type, field, sql_name};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// `CAST(x AS t)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct CastTo {
    target: SqlType,
    mode: Mode,
    name: String,
    signature: Signature,
}

impl CastTo {
    /// The cast to `target`.
    pub fn new(target: SqlType, mode: Mode) -> Self {
        Self {
            target,
            mode,
            name: target.to_string(),
            signature: Signature::any(1, Volatility::Immutable),
        }
    }

    /// Whether some value cannot be converted.
    pub fn can_fail(&self) -> bool {
        self.target != SqlType::Text
    }
}

impl ScalarUDFImpl for CastTo {
    fn name(&self) -> &str {
        &self.name
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(arrow_type(self.target))
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|f| f.is_nullable());
        Ok(Arc::new(field(&self.name, self.target, nullable)))
    }
    fn is_strict(&self) -> bool {
        true
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(cast_array(
                array,
                self.target,
                self.mode,
            )?)),
            [ColumnarValue::Scalar(value)] => Ok(ColumnarValue::Scalar(cast_scalar(
                value,
                self.target,
                self.mode,
            )?)),
            _ => internal_err!("a cast takes one argument"),
        }
    }
}

/// Converts one value to the SQL type.
pub fn cast_scalar(value: &ScalarValue, to: SqlType, mode: Mode) -> Result<ScalarValue> {
    let array = cast_array(&value.to_array_of_size(1)?, to, mode)?;
    ScalarValue::try_from_array(&array, 0)
}

/// Converts `operand`, of the Arrow type `from`, to the SQL type `to`. A literal is converted
/// immediately; other operands get the cheapest expression.
///
/// # Errors
/// 42846 (explicit) or 42804 (assignment) if there is no such cast; errors of invalid literals.
pub fn cast_expression(operand: Expr, from: &DataType, to: SqlType, mode: Mode) -> Result<Expr> {
    let Some(kind) = kind(from, to, mode) else {
        let from = sql_name(from);
        return Err(match mode {
            Mode::Explicit => invalid(
                SqlState::CANNOT_COERCE,
                format!("cannot cast type {from} to {to}"),
            ),
            Mode::Assignment => invalid(
                SqlState::DATATYPE_MISMATCH,
                format!("value is of type {from} but the column is of type {to}"),
            ),
        });
    };
    // A literal cannot show that it is char(n), whose trailing blanks are insignificant.
    let is_char = matches!(to, SqlType::Char(_));
    if let Expr::Literal(value, _) = &operand
        && !is_char
    {
        let metadata = FieldMetadata::new_from_field(&field("", to, true));
        let metadata = Some(metadata).filter(|m| !m.is_empty());
        return Ok(Expr::Literal(cast_scalar(value, to, mode)?, metadata));
    }
    Ok(match kind {
        Kind::Identity => operand,
        Kind::Native => Expr::Cast(Cast::new(Box::new(operand), arrow_type(to))),
        Kind::Checked => Expr::ScalarFunction(ScalarFunction::new_udf(
            Arc::new(ScalarUDF::from(CastTo::new(to, mode))),
            vec![operand],
        )),
    })
}
