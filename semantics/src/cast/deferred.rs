//! `cast_as(x, CAST(NULL AS t))`, the form of a written cast in a plan until the analyzer replaces
//! it.
//!
//! DataFusion names a cast after its operand, so that `sum(x)` and `sum(x::numeric)` would be one
//! column. This function has its own name; the second argument's field has the type.

use super::target::cast_target;
use crate::types::{SQL_TYPE_KEY, sql_name};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature,
    Volatility,
};
use std::sync::Arc;

/// The function's name.
pub const CAST_AS: &str = "cast_as";

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct CastAs {
    signature: Signature,
}

impl Default for CastAs {
    fn default() -> Self {
        Self {
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

/// The cast of a call of the function.
pub fn as_cast(call: &Expr) -> Option<Cast> {
    let Expr::ScalarFunction(call) = call else {
        return None;
    };
    if !call.func.inner().is::<CastAs>() {
        return None;
    }
    match call.args.as_slice() {
        [operand, Expr::Cast(null)] => Some(Cast::new_from_field(
            Box::new(operand.clone()),
            Arc::clone(&null.field),
        )),
        _ => None,
    }
}

/// The type in messages, with its typmods.
fn type_text(field: &Field) -> String {
    let stored = field.metadata().get(SQL_TYPE_KEY);
    match (stored, field.data_type()) {
        (Some(stored), _) => stored.trim_matches(['{', '}', '"']).replace('"', ""),
        (None, DataType::Decimal64(p, s) | DataType::Decimal128(p, s)) => {
            format!("numeric({p},{s})")
        }
        (None, other) => sql_name(other),
    }
}

impl ScalarUDFImpl for CastAs {
    fn name(&self) -> &str {
        CAST_AS
    }
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match args {
            [operand, Expr::Cast(null)] => Ok(format!(
                "{}::{}",
                operand.schema_name(),
                type_text(&null.field)
            )),
            _ => internal_err!("{CAST_AS} takes a value and a typed NULL"),
        }
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types[1].clone())
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let [operand, target] = args.arg_fields else {
            return internal_err!("{CAST_AS} takes two arguments");
        };
        let literal = args.scalar_arguments.first().copied().flatten();
        match cast_target(literal, operand.data_type(), target)? {
            Some(sql_type) => Ok(Arc::new(crate::types::field(CAST_AS, sql_type, true))),
            None => Ok(Arc::clone(target)),
        }
    }
    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{CAST_AS} was not replaced while planning")
    }
}
