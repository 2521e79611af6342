//! The declaration of one column: type, NULLs, default, identity; and the constraints written with
//! it.

use super::constraint::{Declared, Key};
use super::foreign_key;
use super::refusals::{refuse_aggregates, refuse_subqueries};
use super::types;
use crate::parse::names;
use crate::planning::context::StatementContext;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr as Plan, ExprSchemable};
use datafusion::sql::sqlparser::ast::{
    self, ColumnOption, Expr, GeneratedAs, SequenceOptions, UnaryOperator,
};
use strandline_base::{ColumnId, Error, Result, SqlState, SqlType};
use strandline_engine::catalog::{ColumnDef, IdentityDef};
use strandline_semantics::cast::{Mode, cast_array};
use strandline_semantics::error::convert;

/// A column and the constraints written with it.
#[derive(Debug)]
pub struct DeclaredColumn {
    /// the definition; its id is assigned later
    pub def: ColumnDef,
    /// PRIMARY KEY, UNIQUE, CHECK and REFERENCES of the column
    pub constraints: Vec<Declared>,
}

/// Reads a column's declaration.
pub fn declare(context: &StatementContext, column: &ast::ColumnDef) -> Result<DeclaredColumn> {
    let name = names::fold(&column.name);
    names::check_column(&name)?;
    let serial = types::serial(&column.data_type);
    let sql_type = match serial {
        Some(sql_type) => sql_type,
        None => types::sql_type(&column.data_type)?,
    };
    let identity = serial.map(|_| IdentityDef {
        always: false,
        start: 1,
        increment: 1,
    });
    let mut declared = DeclaredColumn {
        def: new_column(&name, sql_type, serial.is_some(), identity),
        constraints: Vec::new(),
    };
    for option in &column.options {
        let constraint_name = option.name.as_ref().map(names::fold);
        apply(context, &mut declared, &option.option, constraint_name)?;
    }
    if declared.def.identity.is_some() && declared.def.default.is_some() {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            format!("both default and identity specified for column \"{name}\""),
        ));
    }
    Ok(declared)
}

/// A column without default.
pub fn new_column(
    name: &str,
    sql_type: SqlType,
    not_null: bool,
    identity: Option<IdentityDef>,
) -> ColumnDef {
    ColumnDef {
        not_null,
        identity,
        ..ColumnDef::new(ColumnId(0), name, sql_type)
    }
}

fn apply(
    context: &StatementContext,
    column: &mut DeclaredColumn,
    option: &ColumnOption,
    constraint_name: Option<String>,
) -> Result<()> {
    match option {
        ColumnOption::Null => {
            if column.def.not_null {
                return Err(Error::invalid(
                    SqlState::SYNTAX_ERROR,
                    format!(
                        "conflicting NULL/NOT NULL declarations for column \"{}\"",
                        column.def.name
                    ),
                ));
            }
        }
        ColumnOption::NotNull => column.def.not_null = true,
        ColumnOption::Default(expr) => {
            column.def.default =
                default_text(context, expr, column.def.sql_type, &column.def.name)?;
        }
        ColumnOption::PrimaryKey(written) => {
            column.def.not_null = true;
            let key = Key::primary(written, Some(&column.def.name))?;
            column
                .constraints
                .push(Declared::Key(key.named(constraint_name)));
        }
        ColumnOption::Unique(written) => {
            let key = Key::unique(written, Some(&column.def.name))?;
            column
                .constraints
                .push(Declared::Key(key.named(constraint_name)));
        }
        ColumnOption::Check(check) => column.constraints.push(Declared::Check {
            name: constraint_name,
            expression: (*check.expr).clone(),
            column: Some(column.def.name.clone()),
        }),
        ColumnOption::ForeignKey(written) => {
            let key = foreign_key::declare(written, constraint_name, Some(&column.def.name))?;
            column.constraints.push(Declared::ForeignKey(key));
        }
        ColumnOption::Generated {
            generated_as,
            sequence_options,
            generation_expr,
            ..
        } => {
            if generation_expr.is_some() {
                return Err(Error::unsupported("generated columns are not supported")
                    .with_hint("A view can compute the column."));
            }
            column.def.identity = Some(identity(generated_as, sequence_options, &column.def)?);
            column.def.not_null = true;
        }
        ColumnOption::Comment(text) => column.def.comment = Some(text.clone()),
        ColumnOption::Collation(name) => check_collation(&name.to_string())?,
        other => {
            return Err(Error::unsupported(format!(
                "{other} of a column is not supported"
            )));
        }
    }
    Ok(())
}

fn check_collation(name: &str) -> Result<()> {
    match name.trim_matches('"') {
        "C" | "POSIX" | "ucs_basic" | "default" | "c" => Ok(()),
        _ => Err(
            Error::unsupported(format!("collation {name} is not supported"))
                .with_hint("Text compares by bytes (collation \"C\")."),
        ),
    }
}

/// The identity in GENERATED … AS IDENTITY (…).
pub fn identity(
    generated_as: &GeneratedAs,
    options: &Option<Vec<SequenceOptions>>,
    column: &ColumnDef,
) -> Result<IdentityDef> {
    if !matches!(
        column.sql_type,
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt
    ) {
        return Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            "identity column type must be smallint, integer, or bigint",
        ));
    }
    let always = match generated_as {
        GeneratedAs::Always => true,
        GeneratedAs::ByDefault => false,
        GeneratedAs::ExpStored => {
            return Err(Error::unsupported("generated columns are not supported"));
        }
    };
    let mut def = IdentityDef {
        always,
        start: 1,
        increment: 1,
    };
    let mut started = false;
    for option in options.iter().flatten() {
        match option {
            SequenceOptions::StartWith(value, _) => {
                def.start = integer(value)?;
                started = true;
            }
            SequenceOptions::IncrementBy(value, _) => def.increment = integer(value)?,
            SequenceOptions::Cache(_) | SequenceOptions::Cycle(false) => {}
            SequenceOptions::MinValue(None) | SequenceOptions::MaxValue(None) => {}
            other => {
                return Err(Error::unsupported(format!(
                    "{} of an identity column is not supported",
                    other.to_string().trim()
                )));
            }
        }
    }
    if def.increment == 0 {
        return Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            "INCREMENT must not be zero",
        ));
    }
    if !started && def.increment < 0 {
        def.start = -1;
    }
    Ok(def)
}

fn integer(expr: &Expr) -> Result<i64> {
    let text = match expr {
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => format!("-{expr}"),
        other => other.to_string(),
    };
    text.parse().map_err(|_| {
        Error::invalid(
            SqlState::SYNTAX_ERROR,
            format!("{text} is not a whole number"),
        )
    })
}

/// The stored text of a DEFAULT. It must be a scalar without columns that casts to the column's
/// type. `DEFAULT NULL` is no default.
pub fn default_text(
    context: &StatementContext,
    expr: &Expr,
    sql_type: SqlType,
    column: &str,
) -> Result<Option<String>> {
    if let Expr::Value(v) = expr
        && v.value == ast::Value::Null
    {
        return Ok(None);
    }
    refuse_subqueries(expr, "DEFAULT")?;
    let empty = DFSchema::empty();
    let planned = context.plan_expression(expr, &empty).map_err(|error| {
        if error.sqlstate() == SqlState::UNDEFINED_COLUMN {
            Error::invalid(
                SqlState::FEATURE_NOT_SUPPORTED,
                "cannot use column reference in DEFAULT expression",
            )
        } else {
            error
        }
    })?;
    refuse_aggregates(&planned, "DEFAULT expressions")?;
    check_literal(&planned, sql_type)?;
    let found = planned.get_type(&empty).map_err(convert)?;
    let wanted = strandline_column::types::arrow_type(sql_type);
    if !datafusion::arrow::compute::can_cast_types(&found, &wanted)
        && !found.is_null()
        && !is_text(&found)
    {
        return Err(Error::invalid(
            SqlState::DATATYPE_MISMATCH,
            format!("column \"{column}\" is of type {sql_type} but default expression is not"),
        ));
    }
    Ok(Some(expr.to_string()))
}

/// Checks a quoted string by the column's type. Its length is checked when it is stored.
fn check_literal(planned: &Plan, sql_type: SqlType) -> Result<()> {
    let Plan::Literal(value, _) = planned else {
        return Ok(());
    };
    if !is_text(&value.data_type()) || matches!(sql_type, SqlType::Varchar(_) | SqlType::Char(_)) {
        return Ok(());
    }
    let value = value.to_array().map_err(convert)?;
    cast_array(&value, sql_type, Mode::Assignment).map_err(convert)?;
    Ok(())
}

fn is_text(t: &datafusion::arrow::datatypes::DataType) -> bool {
    use datafusion::arrow::datatypes::DataType as T;
    matches!(t, T::Utf8 | T::Utf8View | T::LargeUtf8)
}
