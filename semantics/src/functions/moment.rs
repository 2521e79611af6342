//! The current moment. Within a transaction it is constant: the planner replaces these functions by
//! the start time of the statement's transaction.

use crate::calendar::{DAY, split_micros};
use crate::types::arrow_type;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::SqlType;

/// `now()` and its relatives.
pub fn functions() -> Vec<ScalarUDF> {
    let forms: [(&str, &[&str], SqlType); 5] = [
        (
            "now",
            &[
                "current_timestamp",
                "transaction_timestamp",
                "statement_timestamp",
            ],
            SqlType::TimestampTz,
        ),
        ("localtimestamp", &[], SqlType::Timestamp),
        ("current_date", &["today"], SqlType::Date),
        ("current_time", &[], SqlType::Time),
        ("localtime", &[], SqlType::Time),
    ];
    forms
        .into_iter()
        .map(|(name, aliases, sql_type)| {
            ScalarUDF::from(CurrentMoment {
                name,
                aliases: aliases.iter().map(|a| a.to_string()).collect(),
                sql_type,
                signature: Signature::nullary(Volatility::Stable),
            })
        })
        .collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CurrentMoment {
    name: &'static str,
    aliases: Vec<String>,
    sql_type: SqlType,
    signature: Signature,
}

impl CurrentMoment {
    fn value(&self, micros: i64) -> ScalarValue {
        let (days, time) = split_micros(micros);
        match arrow_type(self.sql_type) {
            DataType::Date32 => ScalarValue::Date32(Some(days as i32)),
            DataType::Time64(_) => ScalarValue::Time64Microsecond(Some(time)),
            DataType::Timestamp(_, zone) => {
                ScalarValue::TimestampMicrosecond(Some(days * DAY + time), zone)
            }
            _ => ScalarValue::Null,
        }
    }
}

/// The value of a function of the current moment, `micros` after the epoch; None: another function.
pub fn moment_of(function: &ScalarUDF, micros: i64) -> Option<ScalarValue> {
    let moment = function.inner().downcast_ref::<CurrentMoment>()?;
    Some(moment.value(micros))
}

impl ScalarUDFImpl for CurrentMoment {
    fn name(&self) -> &str {
        self.name
    }
    fn aliases(&self) -> &[String] {
        &self.aliases
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(arrow_type(self.sql_type))
    }
    fn return_field_from_args(
        &self,
        _args: datafusion::logical_expr::ReturnFieldArgs,
    ) -> Result<datafusion::arrow::datatypes::FieldRef> {
        Ok(Arc::new(crate::types::field(
            self.name,
            self.sql_type,
            false,
        )))
    }
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(start) = info.query_execution_start_time() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let value = self.value(start.timestamp_micros());
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(value, None)))
    }
    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{} was not replaced while planning", self.name)
    }
}
