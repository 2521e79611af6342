//! The arguments of EXECUTE, which are known before the prepared statement runs.
//!
//! A literal is read without a plan. A query of its own computes all other arguments, once. An
//! argument is cast to the type that PREPARE declares. Without a declared type it keeps its own
//! type, and a quoted literal takes the type of the parameter's place.

use super::Session;
use super::description::of_parameter;
use super::prepared::PreparedStatement;
use crate::execution::dml;
use crate::execution::row_executor::argument;
use crate::parse::names;
use crate::parse::params;
use crate::statements::plan_cache::is_of_type;
use datafusion::arrow::array::RecordBatch;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{DataType, Expr, SelectItem, Statement as Parsed, Value};
use futures::TryStreamExt;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_semantics::column_builder::ColumnBuilder;
use strandline_semantics::error::convert;
use strandline_semantics::sql::cast;
use strandline_semantics::types;

/// An EXECUTE with its arguments evaluated.
pub(super) struct Executed {
    pub prepared: Arc<PreparedStatement>,
    pub values: Vec<ScalarValue>,
    /// None: the type comes from the parameter's place
    pub types: Vec<Option<SqlType>>,
}

/// A value and its type.
type Argument = (ScalarValue, Option<SqlType>);

impl Session {
    /// The statement that EXECUTE names, and its arguments. An argument may be an `outer`
    /// parameter.
    pub(super) async fn executed(
        &self,
        statement: &Parsed,
        outer: &[ScalarValue],
    ) -> Result<Executed> {
        let Parsed::Execute {
            parameters,
            using,
            into,
            ..
        } = statement
        else {
            return Err(Error::internal("not an EXECUTE"));
        };
        let prepared = self.prepared_by(statement)?;
        if !using.is_empty() || !into.is_empty() {
            return Err(Error::unsupported(
                "EXECUTE … USING and INTO are not supported",
            ));
        }
        if parameters.len() != prepared.parameter_count() {
            return Err(wrong_count(statement, &prepared, parameters.len()));
        }
        let mut arguments = Vec::with_capacity(parameters.len());
        let mut computed = Vec::new();
        for (at, expr) in parameters.iter().enumerate() {
            let declared = prepared.declared_type(at);
            let known = literal(expr, outer, declared)?;
            if known.is_none() {
                let mut expr = expr.clone();
                params::substitute_in_expr(&mut expr, outer)?;
                let expr = match declared {
                    Some(data_type) => cast(expr, data_type.clone()),
                    None => expr,
                };
                computed.push((at, expr));
            }
            arguments.push(known.unwrap_or((ScalarValue::Null, None)));
        }
        if !computed.is_empty() {
            let (places, exprs): (Vec<usize>, Vec<Expr>) = computed.into_iter().unzip();
            let found = Box::pin(self.compute(exprs)).await?;
            for (place, argument) in places.into_iter().zip(found) {
                arguments[place] = argument;
            }
        }
        let (values, types) = arguments.into_iter().unzip();
        Ok(Executed {
            prepared,
            values,
            types,
        })
    }

    /// Evaluates expressions without columns.
    async fn compute(&self, exprs: Vec<Expr>) -> Result<Vec<Argument>> {
        let item = |(n, expr)| SelectItem::ExprWithAlias {
            expr,
            alias: names::ident(&format!("#{n}")),
        };
        let items = exprs.into_iter().enumerate().map(item).collect();
        let query = dml::plain_select(items, Vec::new(), None);
        let cancel = self.cancel.clone();
        cancel.start();
        let _timer = self.timer();
        let (context, implicit) = self.context_aside()?;
        let run = async {
            let (schema, rows) = context.run(context.plan_query(&query).await?).await?;
            let batches: Vec<RecordBatch> = rows.try_collect().await.map_err(convert)?;
            Ok((schema, batches))
        };
        let ran = cancel.guard(run).await;
        if let Some(transaction) = implicit {
            transaction.rollback();
        }
        let (schema, batches) = ran?;
        let mut rows = batches.iter().filter(|batch| batch.num_rows() > 0);
        let (Some(row), None) = (rows.next(), rows.next()) else {
            return Err(not_one());
        };
        if row.num_rows() != 1 {
            return Err(not_one());
        }
        let mut arguments = Vec::with_capacity(row.num_columns());
        for (field, column) in schema.fields().iter().zip(row.columns()) {
            let value = ScalarValue::try_from_array(column, 0).map_err(convert)?;
            arguments.push((value, types::sql_type_of(field).map(of_parameter)));
        }
        Ok(arguments)
    }
}

/// The value of a literal, cast to the declared type if there is one. None: a query must compute
/// it.
fn literal(
    expr: &Expr,
    outer: &[ScalarValue],
    declared: Option<&DataType>,
) -> Result<Option<Argument>> {
    if let (Some(DataType::Array(_)), Expr::Value(value)) = (declared, expr)
        && let Value::SingleQuotedString(text) = &value.value
    {
        return Ok(Some((ScalarValue::Utf8(Some(text.clone())), None)));
    }
    let Some(value) = argument(expr, outer, declared) else {
        return Ok(None);
    };
    let Some(declared) = declared else {
        return Ok(Some(params::own_type(&value)));
    };
    let Some(declared) = types::from_ast(declared)? else {
        return Ok(None);
    };
    if value.is_null() || is_of_type(&value, declared) {
        return Ok(Some((value, Some(of_parameter(declared)))));
    }
    // An invalid value goes to the computation, which reports the error.
    let read = value
        .try_as_str()
        .flatten()
        .and_then(|text| ColumnBuilder::value_of(declared, text).ok());
    Ok(read.map(|value| (value, Some(of_parameter(declared)))))
}

fn not_one() -> Error {
    Error::unsupported("set-returning functions are not allowed in EXECUTE")
}

fn wrong_count(statement: &Parsed, prepared: &PreparedStatement, given: usize) -> Error {
    let name = match statement {
        Parsed::Execute {
            name: Some(name), ..
        } => names::single(name).unwrap_or_default(),
        _ => String::new(),
    };
    Error::invalid(
        SqlState::SYNTAX_ERROR,
        format!("wrong number of parameters for prepared statement \"{name}\""),
    )
    .with_detail(format!(
        "Expected {} parameters but got {given}.",
        prepared.parameter_count()
    ))
}
