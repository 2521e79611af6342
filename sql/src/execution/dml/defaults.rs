//! DEFAULT and identity values of columns as plan expressions.

use super::assignment::{assign, null};
use super::query::plan_scalars;
use super::target::Target;
use crate::planning::context::StatementContext;
use datafusion::arrow::array::{ArrayRef, Int16Array, Int32Array, Int64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_column::types::arrow_type;
use strandline_engine::Statement;
use strandline_engine::catalog::{ColumnDef, TableDef};
use strandline_semantics::error::raise;

/// The value of DEFAULT for each column in `positions`: the next identity value, the DEFAULT
/// expression, or NULL.
pub(super) async fn plan(
    context: &StatementContext,
    target: &Target,
    positions: &[usize],
) -> Result<Vec<Expr>> {
    let table = &target.table;
    let mut written = context.defaults(table)?;
    let needed: Vec<usize> = positions
        .iter()
        .copied()
        .filter(|p| table.columns[*p].identity.is_none() && written[*p].is_some())
        .collect();
    let parsed = needed.iter().filter_map(|p| written[*p].take()).collect();
    let planned = plan_scalars(context, None, parsed, "DEFAULT").await?;
    let mut by_position: Vec<Option<Expr>> = vec![None; table.columns.len()];
    for (position, expr) in needed.into_iter().zip(planned) {
        let column = &table.columns[position];
        by_position[position] = Some(assign(expr, &DFSchema::empty(), column)?);
    }
    positions
        .iter()
        .map(|p| {
            let column = &table.columns[*p];
            match (&column.identity, by_position[*p].clone()) {
                (Some(_), _) => Ok(next_identity(context, table, column)),
                (None, Some(expr)) => Ok(expr),
                (None, None) => null(column.sql_type),
            }
        })
        .collect()
}

/// 428C9 for INSERT.
pub(super) fn generated_always(column: &ColumnDef) -> Error {
    Error::invalid(
        SqlState::GENERATED_ALWAYS,
        format!(
            "cannot insert a non-DEFAULT value into column \"{}\"",
            column.name
        ),
    )
    .with_detail(format!(
        "Column \"{}\" is an identity column defined as GENERATED ALWAYS.",
        column.name
    ))
    .with_hint("Use OVERRIDING SYSTEM VALUE to override.")
}

/// 428C9 for UPDATE.
pub(super) fn only_default(column: &ColumnDef) -> Error {
    Error::invalid(
        SqlState::GENERATED_ALWAYS,
        format!("column \"{}\" can only be updated to DEFAULT", column.name),
    )
    .with_detail(format!(
        "Column \"{}\" is an identity column defined as GENERATED ALWAYS.",
        column.name
    ))
}

fn next_identity(context: &StatementContext, table: &Arc<TableDef>, column: &ColumnDef) -> Expr {
    let function = ScalarUDF::from(NextIdentity {
        statement: context.statement.clone(),
        table: table.clone(),
        column: column.clone(),
        signature: Signature::nullary(Volatility::Volatile),
    });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), Vec::new()))
}

/// Whether the function draws identity values for one statement.
pub(crate) fn draws_identity(function: &ScalarUDF) -> bool {
    function.inner().is::<NextIdentity>()
}

/// A fresh identity value per row.
struct NextIdentity {
    statement: Arc<Statement>,
    table: Arc<TableDef>,
    column: ColumnDef,
    signature: Signature,
}

/// `rows` fresh values of an identity column.
pub(super) fn identity_values(
    statement: &Statement,
    table: &TableDef,
    column: &ColumnDef,
    rows: usize,
) -> Result<ArrayRef> {
    let db = statement.transaction().db();
    let values = (0..rows)
        .map(|_| db.next_identity(table, column.id))
        .collect::<Result<Vec<i64>>>()?;
    let exhausted = |_| {
        Error::invalid(
            SqlState("2200H"),
            format!(
                "the identity values of column \"{}\" have passed the largest {}",
                column.name, column.sql_type
            ),
        )
        .with_hint("Change the column to bigint.")
    };
    Ok(match column.sql_type {
        SqlType::SmallInt => {
            let narrow = values
                .into_iter()
                .map(i16::try_from)
                .collect::<Result<Vec<_>, _>>();
            Arc::new(Int16Array::from(narrow.map_err(exhausted)?))
        }
        SqlType::Integer => {
            let narrow = values
                .into_iter()
                .map(i32::try_from)
                .collect::<Result<Vec<_>, _>>();
            Arc::new(Int32Array::from(narrow.map_err(exhausted)?))
        }
        SqlType::BigInt => Arc::new(Int64Array::from(values)),
        other => {
            return Err(Error::internal(format!(
                "identity column \"{}\" has type {other}",
                column.name
            )));
        }
    })
}

impl std::fmt::Debug for NextIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NextIdentity({}.{})", self.table.name, self.column.name)
    }
}

impl PartialEq for NextIdentity {
    fn eq(&self, other: &Self) -> bool {
        self.table.id == other.table.id && self.column.id == other.column.id
    }
}

impl Eq for NextIdentity {}

impl Hash for NextIdentity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.table.id, self.column.id).hash(state);
    }
}

impl ScalarUDFImpl for NextIdentity {
    fn name(&self) -> &str {
        "next_identity"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _args: &[DataType]) -> datafusion::error::Result<DataType> {
        Ok(arrow_type(self.column.sql_type))
    }

    fn invoke_with_args(
        &self,
        args: ScalarFunctionArgs,
    ) -> datafusion::error::Result<ColumnarValue> {
        identity_values(&self.statement, &self.table, &self.column, args.number_rows)
            .map(ColumnarValue::Array)
            .map_err(raise)
    }
}
