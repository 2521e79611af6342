//! Casts to types of PostgreSQL's system tables: `oid`, `xid`, `name` and `"char"`. Their
//! fields have the type's name as metadata.

use crate::cast::{Mode, cast_array};
use crate::error::invalid;
use crate::types::{PG_TYPE_KEY, arrow_type};
use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// The types and the functions that cast to them.
pub const SYSTEM_TYPES: [(&str, &str); 4] = [
    ("oid", "oidin"),
    ("xid", "xidin"),
    ("name", "namein"),
    ("\"char\"", "charin"),
];

/// The most bytes of a name.
const NAME_BYTES: usize = 63;

/// The functions of [`SYSTEM_TYPES`].
pub fn functions() -> Vec<ScalarUDF> {
    SYSTEM_TYPES
        .map(|(pg_type, function)| {
            ScalarUDF::from(ToSystemType {
                pg_type: pg_type.trim_matches('"'),
                function,
                signature: Signature::any(1, Volatility::Immutable),
            })
        })
        .into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToSystemType {
    pg_type: &'static str,
    function: &'static str,
    signature: Signature,
}

impl ToSystemType {
    fn sql_type(&self) -> SqlType {
        match self.pg_type {
            "name" | "char" => SqlType::Text,
            _ => SqlType::Integer,
        }
    }

    fn converted(&self, array: &ArrayRef) -> Result<ArrayRef> {
        if self.sql_type() == SqlType::Text {
            let text = cast_array(array, SqlType::Text, Mode::Explicit)?;
            let most = if self.pg_type == "name" {
                NAME_BYTES
            } else {
                1
            };
            let cut = text
                .as_string_view()
                .iter()
                .map(|text| text.map(|text| &text[..text.floor_char_boundary(most)]));
            return Ok(Arc::new(cut.collect::<StringViewArray>()));
        }
        let numbers = cast_array(array, SqlType::BigInt, Mode::Explicit)?;
        let numbers = numbers.as_primitive::<Int64Type>().iter();
        let numbers = numbers.map(|number| number.map(|n| self.number(n)).transpose());
        Ok(Arc::new(numbers.collect::<Result<Int32Array>>()?))
    }

    /// A number as an integer; larger numbers, which PostgreSQL has, do not exist here.
    fn number(&self, number: i64) -> Result<i32> {
        let number = i32::try_from(number).ok().filter(|n| *n >= 0);
        number.ok_or_else(|| {
            let message = format!("{} out of range", self.pg_type);
            invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
        })
    }
}

impl ScalarUDFImpl for ToSystemType {
    fn name(&self) -> &str {
        self.function
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(arrow_type(self.sql_type()))
    }
    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        let field = Field::new(self.function, arrow_type(self.sql_type()), true);
        let metadata = [(PG_TYPE_KEY.into(), self.pg_type.into())];
        Ok(Arc::new(field.with_metadata(metadata.into())))
    }
    fn is_strict(&self) -> bool {
        true
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(self.converted(array)?)),
            [ColumnarValue::Scalar(value)] => {
                let array = self.converted(&value.to_array_of_size(1)?)?;
                let value = ScalarValue::try_from_array(&array, 0)?;
                Ok(ColumnarValue::Scalar(value))
            }
            _ => internal_err!("a cast takes one argument"),
        }
    }
}
