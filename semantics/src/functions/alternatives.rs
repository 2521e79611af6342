//! COALESCE, NULLIF, GREATEST, LEAST and ARRAY[…] over a quoted string and values of other types,
//! such as `coalesce(day, '2024-01-01')`, and over numerics that need more than 38 digits, such as
//! `coalesce(sum(bigint), 2.25)`.
//!
//! DataFusion's functions refuse such arguments before the analyzer converts them to one type
//! ([`crate::align`]). The functions here report the type of that conversion.

use crate::decimal::widest_numeric;
use crate::types::arrow_type;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::functions::core;
use datafusion::functions_nested::make_array::make_array_udf;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use std::sync::{Arc, LazyLock};

/// The functions of this file.
pub fn functions() -> Vec<ScalarUDF> {
    [
        core::coalesce(),
        core::nullif(),
        core::greatest(),
        core::least(),
        make_array_udf(),
    ]
    .map(|inner| ScalarUDF::from(Alternatives::new(inner)))
    .into()
}

/// `ARRAY[…]`
pub fn array(items: Vec<Expr>) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(ScalarUDF::from(Alternatives::new(make_array_udf()))));
    FUNCTION.call(items)
}

/// One of DataFusion's functions whose arguments have one type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Alternatives {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl Alternatives {
    fn new(inner: Arc<ScalarUDF>) -> Self {
        let signature = Signature::user_defined(inner.signature().volatility);
        Self { inner, signature }
    }
}

impl ScalarUDFImpl for Alternatives {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, info)
    }
    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }
    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let is_open = |t: &&DataType| **t == DataType::Utf8;
        let known = arg_types.iter().filter(|t| !is_open(t) && !t.is_null());
        if arg_types.iter().any(|t| is_open(&t)) && known.clone().any(|t| !t.is_string()) {
            let known: Vec<DataType> = known.cloned().collect();
            let common = match known.as_slice() {
                [only] => only.clone(),
                several => {
                    let coerced = self.coerce_types(several)?.into_iter().next();
                    coerced.unwrap_or(DataType::Utf8)
                }
            };
            return Ok(vec![common; arg_types.len()]);
        }
        let typed = arg_types.iter().filter(|t| !t.is_null());
        if let Some(widest) = widest_numeric(typed) {
            return Ok(vec![arrow_type(widest); arg_types.len()]);
        }
        let fields = arg_types.iter().map(|t| Field::new("", t.clone(), true));
        let fields: Vec<FieldRef> = fields.map(Arc::new).collect();
        let coerced = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(coerced.iter().map(|f| f.data_type().clone()).collect())
    }
}
