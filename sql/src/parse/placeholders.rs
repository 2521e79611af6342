//! Replaces a statement's parameters by placeholders, so that it can be planned without values.

use super::params;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Select, TableFactor, Value as Literal, ValueWithSpan,
    VisitMut, VisitorMut,
};
use std::ops::ControlFlow;
use strandline_base::{Error, Result, SqlType};
use strandline_semantics as semantics;
use strandline_semantics::sql::walk::walk_mut;

/// The stand-in for a parameter during planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Placeholder,
    Null,
}

/// Replaces a statement's parameters by placeholders of their types.
pub(crate) fn place_parameters<T: VisitMut>(tree: &mut T, types: &[Option<SqlType>]) -> Result<()> {
    let mut types = types.to_vec();
    let mut placing = Placing {
        types: &mut types,
        hold: Hold::Placeholder,
    };
    match walk_mut(tree, &mut placing) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Replaces parameters by expressions that can be planned: placeholders, cast to their types if
/// those are known.
pub struct Placing<'a> {
    pub types: &'a mut [Option<SqlType>],
    pub hold: Hold,
}

impl Placing<'_> {
    fn is_parameter(expr: &Expr) -> Option<usize> {
        match expr {
            Expr::Value(ValueWithSpan {
                value: Literal::Placeholder(name),
                ..
            }) => params::number(name).ok(),
            _ => None,
        }
    }

    /// Replaces a parameter that must be a constant by a sample value of its type.
    fn fix(&mut self, expr: &mut Expr) -> Result<()> {
        let Some(number) = Self::is_parameter(expr) else {
            return Ok(());
        };
        let sample = match *self.types[number - 1].get_or_insert(SqlType::Integer) {
            SqlType::SmallInt | SqlType::Integer => "1",
            SqlType::BigInt => "9223372036854775807",
            SqlType::Numeric { .. } | SqlType::Double | SqlType::Real => "1.0",
            SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz => "'2000-01-01'",
            _ => "''",
        };
        *expr = super::expression(sample)?;
        Ok(())
    }

    fn place(&mut self, factor: &mut TableFactor) -> Result<()> {
        if let TableFactor::Table {
            version: Some(version),
            ..
        } = factor
        {
            let _ = walk_mut(version, &mut Moments(self.types));
        }
        for arg in params::function_arguments(factor) {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg {
                self.fix(expr)?;
            }
        }
        Ok(())
    }
}

impl VisitorMut for Placing<'_> {
    type Break = Error;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        params::name_parameters(select);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match self.place(factor) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Some(number) = Self::is_parameter(expr) else {
            return ControlFlow::Continue(());
        };
        if self.hold == Hold::Null {
            *expr = Expr::value(Literal::Null);
        }
        let Some(known) = self.types[number - 1] else {
            return ControlFlow::Continue(());
        };
        let data_type = match super::expression(&format!("CAST(0 AS {})", params::type_name(known)))
        {
            Ok(Expr::Cast { data_type, .. }) => data_type,
            Ok(_) => return ControlFlow::Break(Error::internal("a cast is no cast")),
            Err(error) => return ControlFlow::Break(error),
        };
        let operand = std::mem::replace(expr, Expr::value(Literal::Null));
        *expr = semantics::sql::cast(operand, data_type);
        ControlFlow::Continue(())
    }
}

/// Replaces parameters in FOR SYSTEM_TIME by `now()`.
struct Moments<'a>(&'a mut [Option<SqlType>]);

impl VisitorMut for Moments<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(number) = Placing::is_parameter(expr)
            && let Ok(now) = super::expression("now()")
        {
            self.0[number - 1].get_or_insert(SqlType::TimestampTz);
            *expr = now;
        }
        ControlFlow::Continue(())
    }
}
