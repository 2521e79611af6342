//! COALESCE, NULLIF, GREATEST, LEAST and ARRAY[…] over a quoted string and values of other types,
//! such as `coalesce(day, '2024-01-01')`, and over numerics that need more than 38 digits, such as
//! `coalesce(sum(bigint), 2.25)`.
//!
//! DataFusion's functions refuse such arguments before the analyzer converts them to one type
//! ([`crate::align`]). The functions here report the type of that conversion. A quoted string keeps
//! its own type until then beside a type to which Arrow casts no strings, such as uuid.

use crate::decimal::widest_numeric;
use crate::types::arrow_type;
use datafusion::arrow::compute::can_cast_types;
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

    /// The type of quoted strings beside values of other types than strings.
    fn type_of_open(&self, arg_types: &[DataType]) -> Result<Option<DataType>> {
        let known = arg_types.iter().filter(|t| !is_open(t) && !t.is_null());
        if !arg_types.iter().any(is_open) || known.clone().all(DataType::is_string) {
            return Ok(None);
        }
        let known: Vec<DataType> = known.cloned().collect();
        Ok(match known.as_slice() {
            [only] => Some(only.clone()),
            several => self.coerce_types(several)?.into_iter().next(),
        })
    }
}

/// Whether it may be the type of a quoted string.
fn is_open(data_type: &DataType) -> bool {
    *data_type == DataType::Utf8
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
        match self.type_of_open(arg_types)? {
            Some(common) => self.inner.return_type(&vec![common; arg_types.len()]),
            None => self.inner.return_type(arg_types),
        }
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types = args.arg_fields.iter().map(|field| field.data_type());
        let types: Vec<DataType> = types.cloned().collect();
        let Some(common) = self.type_of_open(&types)? else {
            return self.inner.return_field_from_args(args);
        };
        let fields = args.arg_fields.iter();
        let is_untyped = |t: &DataType| is_open(t) || t.is_null();
        let fields = fields.map(|field| match is_untyped(field.data_type()) {
            true => Arc::new(field.as_ref().clone().with_data_type(common.clone())),
            false => field.clone(),
        });
        let arg_fields: Vec<FieldRef> = fields.collect();
        self.inner.return_field_from_args(ReturnFieldArgs {
            arg_fields: &arg_fields,
            ..args
        })
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
        if let Some(common) = self.type_of_open(arg_types)? {
            let has_cast = can_cast_types(&DataType::Utf8, &common);
            let coerced = arg_types.iter().map(|t| match is_open(t) && !has_cast {
                true => t.clone(),
                false => common.clone(),
            });
            return Ok(coerced.collect());
        }
        let mut typed = arg_types.iter().filter(|t| !t.is_null());
        if let Some(widest) = widest_numeric(typed.clone()) {
            return Ok(vec![arrow_type(widest); arg_types.len()]);
        }
        // DataFusion has no common type of NULL and a binary of fixed size.
        if let Some(first) = typed.next()
            && typed.all(|t| t == first)
        {
            return Ok(vec![first.clone(); arg_types.len()]);
        }
        let fields = arg_types.iter().map(|t| Field::new("", t.clone(), true));
        let fields: Vec<FieldRef> = fields.map(Arc::new).collect();
        let coerced = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(coerced.iter().map(|f| f.data_type().clone()).collect())
    }
}
