//! Declarations of PRIMARY KEY, UNIQUE, CHECK and FOREIGN KEY, and their addition to a table's
//! definition. Default names are PostgreSQL's: `t_pkey`, `t_a_b_key`, `t_a_check`.

use super::constraint_names::{constraint_name, is_constraint};
use super::foreign_key::{self, ForeignKey};
use super::refusals::{refuse_aggregates, refuse_subqueries};
use super::{ordered_keys, relation_names};
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::planning::provider::table_schema::condition_schema;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::ExprSchemable;
use datafusion::sql::sqlparser::ast::{
    Expr, IndexColumn, NullsDistinctOption, PrimaryKeyConstraint, TableConstraint, UniqueConstraint,
};
use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::index::ConstraintTiming;
use strandline_engine::catalog::{Catalog, CheckDef, KeyDef, TableDef};
use strandline_semantics::error::convert;

/// A declared constraint.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "few, and gone when the statement is planned"
)]
pub enum Declared {
    /// PRIMARY KEY or UNIQUE
    Key(Key),
    /// CHECK
    Check {
        /// the given name
        name: Option<String>,
        /// the condition
        expression: Expr,
        /// the column that it was declared with
        column: Option<String>,
    },
    /// FOREIGN KEY
    ForeignKey(ForeignKey),
}

/// A declared PRIMARY KEY or UNIQUE constraint.
#[derive(Clone, Debug)]
pub struct Key {
    /// the given name
    name: Option<String>,
    /// PRIMARY KEY
    primary: bool,
    /// column names in order
    columns: Vec<String>,
    /// NULLS NOT DISTINCT
    nulls_not_distinct: bool,
    /// the time of the check
    timing: ConstraintTiming,
}

impl Key {
    /// Reads PRIMARY KEY; `column`: the column that it is declared with.
    pub fn primary(written: &PrimaryKeyConstraint, column: Option<&str>) -> Result<Self> {
        Ok(Self {
            name: written.name.as_ref().map(names::fold),
            primary: true,
            columns: key_columns(&written.columns, column)?,
            nulls_not_distinct: false,
            timing: foreign_key::timing(written.characteristics.as_ref())?,
        })
    }

    /// Reads UNIQUE; `column`: the column that it is declared with.
    pub fn unique(written: &UniqueConstraint, column: Option<&str>) -> Result<Self> {
        let nulls = &written.nulls_distinct;
        Ok(Self {
            name: written.name.as_ref().map(names::fold),
            primary: false,
            columns: key_columns(&written.columns, column)?,
            nulls_not_distinct: matches!(nulls, NullsDistinctOption::NotDistinct),
            timing: foreign_key::timing(written.characteristics.as_ref())?,
        })
    }

    /// Takes the name of CONSTRAINT, if there is one.
    pub fn named(mut self, name: Option<String>) -> Self {
        self.name = name.or(self.name);
        self
    }
}

/// Reads a table constraint.
pub fn declare(constraint: &TableConstraint) -> Result<Declared> {
    match constraint {
        TableConstraint::PrimaryKey(key) => Key::primary(key, None).map(Declared::Key),
        TableConstraint::Unique(key) => Key::unique(key, None).map(Declared::Key),
        TableConstraint::Check(check) => Ok(Declared::Check {
            name: check.name.as_ref().map(names::fold),
            expression: (*check.expr).clone(),
            column: None,
        }),
        TableConstraint::ForeignKey(key) => {
            foreign_key::declare(key, None, None).map(Declared::ForeignKey)
        }
        other => Err(Error::unsupported(format!("{other} is not supported"))),
    }
}

fn key_columns(columns: &[IndexColumn], column: Option<&str>) -> Result<Vec<String>> {
    if let Some(column) = column {
        return Ok(vec![column.to_string()]);
    }
    columns
        .iter()
        .map(|column| match &column.column.expr {
            Expr::Identifier(ident) => Ok(names::fold(ident)),
            other => Err(Error::unsupported(format!(
                "a key over the expression {other} is not supported"
            ))),
        })
        .collect()
}

/// Adds a declared constraint to `table`, which need not be in `catalog` yet. `catalog` has the
/// names of the other relations.
pub fn add(
    context: &StatementContext,
    catalog: &Catalog,
    table: &mut TableDef,
    declared: &Declared,
) -> Result<()> {
    match declared {
        Declared::ForeignKey(key) => foreign_key::add(context, catalog, table, key),
        Declared::Key(key) => add_key(context, catalog, table, key),
        Declared::Check {
            name,
            expression,
            column,
        } => add_check(context, table, name.clone(), expression, column.as_deref()),
    }
}

fn add_key(
    context: &StatementContext,
    catalog: &Catalog,
    table: &mut TableDef,
    declared: &Key,
) -> Result<()> {
    let (primary, columns) = (declared.primary, declared.columns.as_slice());
    if primary && table.primary_key().is_some() {
        return Err(Error::invalid(
            SqlState::INVALID_TABLE_DEFINITION,
            format!(
                "multiple primary keys for table \"{}\" are not allowed",
                table.name
            ),
        ));
    }
    let mut ids = Vec::with_capacity(columns.len());
    for column in columns {
        let found = table.column(column).ok_or_else(|| {
            Error::invalid(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{column}\" named in key does not exist"),
            )
        })?;
        if ids.contains(&found.id) {
            return Err(Error::invalid(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{column}\" appears twice in key"),
            ));
        }
        ids.push(found.id);
    }
    if primary {
        for column in &mut table.columns {
            column.not_null |= ids.contains(&column.id);
        }
    }
    let name = key_name(catalog, table, declared.name.clone(), primary, columns)?;
    let key = KeyDef {
        nulls_not_distinct: declared.nulls_not_distinct,
        timing: declared.timing,
        ..KeyDef::new(name, primary, ids)
    };
    table
        .keys
        .push(ordered_keys::with_index(context, table, key)?);
    Ok(())
}

fn add_check(
    context: &StatementContext,
    table: &mut TableDef,
    name: Option<String>,
    expression: &Expr,
    column: Option<&str>,
) -> Result<()> {
    check_condition(context, table, expression)?;
    let base = match column {
        Some(column) => format!("{}_{column}_check", table.name),
        None => format!("{}_check", table.name),
    };
    let name = constraint_name(table, name, &base)?;
    // The catalogs show it in parentheses, which a dump brings back.
    let mut expression = expression;
    while let Expr::Nested(inner) = expression {
        expression = inner;
    }
    table.checks.push(CheckDef {
        name,
        expression: expression.to_string(),
    });
    Ok(())
}

fn check_condition(context: &StatementContext, table: &TableDef, expr: &Expr) -> Result<()> {
    refuse_subqueries(expr, "CHECK")?;
    let schema = condition_schema(table)?;
    let planned = context.plan_expression(expr, &schema)?;
    refuse_aggregates(&planned, "check constraints")?;
    let found = planned.get_type(&schema).map_err(convert)?;
    if !matches!(found, DataType::Boolean | DataType::Null) {
        return Err(Error::invalid(
            SqlState::DATATYPE_MISMATCH,
            "argument of CHECK must be type boolean",
        ));
    }
    Ok(())
}

/// The given name, if it is free, or a free name; the key's index has the same name.
fn key_name(
    catalog: &Catalog,
    table: &TableDef,
    given: Option<String>,
    primary: bool,
    columns: &[String],
) -> Result<String> {
    let is_taken = |name: &str| {
        name == table.name
            || is_constraint(table, name)
            || relation_names::is_taken(catalog, &table.schema, name)
    };
    let Some(name) = given else {
        let (columns, label) = match primary {
            true => (&[][..], "pkey"),
            false => (columns, "key"),
        };
        return Ok(relation_names::choose(
            &table.name,
            columns,
            label,
            &is_taken,
        ));
    };
    let name = constraint_name(table, Some(name), "")?;
    match is_taken(&name) {
        true => Err(relation_names::taken(&name)),
        false => Ok(name),
    }
}
