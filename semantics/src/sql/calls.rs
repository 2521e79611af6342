//! Casts, intervals and function calls that DataFusion would name or type differently.

use super::cast_syntax::cast;
use super::numbers;
use crate::cast::CAST_AS;
use crate::functions::MAKE_INTERVAL_NAMES;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    self, CaseWhen, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Value, WindowFrameBound, WindowSpec, WindowType,
};
use strandline_base::{Error, Result, SqlState};

/// `name(args)`
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args
        .into_iter()
        .map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e)))
        .collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

pub(super) fn last_name(name: &ObjectName) -> Option<String> {
    name.0
        .last()?
        .as_ident()
        .map(|ident| ident.value.to_ascii_lowercase())
}

/// The type of a written cast or a typed literal.
pub(super) fn cast_type(expr: &Expr) -> Option<DataType> {
    match expr {
        Expr::TypedString(typed) => Some(typed.data_type.clone()),
        Expr::Function(function) if last_name(&function.name)? == CAST_AS => {
            let FunctionArguments::List(list) = &function.args else {
                return None;
            };
            match list.args.last()? {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Cast { data_type, .. })) => {
                    Some(data_type.clone())
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// `CAST(x AS t)` as `cast_as(x, CAST(NULL AS t))`; a parameter takes its type from the cast.
pub(super) fn named_cast(expr: &mut Expr) {
    let Expr::Cast {
        expr: operand,
        data_type,
        format: None,
        ..
    } = expr
    else {
        return;
    };
    let is_parameter =
        |e: &Expr| matches!(e, Expr::Value(v) if matches!(v.value, Value::Placeholder(_)));
    if is_parameter(operand) {
        return;
    }
    let null = cast(Expr::Value(Value::Null.into()), data_type.clone());
    let operand = std::mem::replace(operand.as_mut(), numbers::plain("0"));
    *expr = call(CAST_AS, vec![operand, null]);
}

/// Undoes [`super::moments::interval`] for a frame bound, where DataFusion requires the literal
/// itself.
pub(super) fn plain_interval(expr: &mut Expr) {
    let Expr::Cast {
        expr: text,
        data_type: DataType::Interval { .. },
        ..
    } = expr
    else {
        return;
    };
    *expr = Expr::Interval(ast::Interval {
        value: text.clone(),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    });
}

pub(super) fn plain_frame(spec: &mut WindowSpec) {
    let Some(frame) = &mut spec.window_frame else {
        return;
    };
    for bound in std::iter::once(&mut frame.start_bound).chain(frame.end_bound.as_mut()) {
        if let WindowFrameBound::Preceding(Some(n)) | WindowFrameBound::Following(Some(n)) = bound {
            numbers::restore(n);
            plain_interval(n);
        }
    }
}

pub(super) fn plain_argument(arg: &mut FunctionArg) {
    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) = arg {
        numbers::restore(e);
    }
}

/// Changes names that DataFusion spells differently, restores plain numbers where it requires
/// literals, and makes the results of window functions bigint.
///
/// # Errors
/// 0A000 for `lag(x, NULL)`.
pub(super) fn function(expr: &mut Expr) -> Result<()> {
    let Expr::Function(function) = expr else {
        return Ok(());
    };
    let name = last_name(&function.name).unwrap_or_default();
    let other_name = match name.as_str() {
        "every" => "bool_and",
        "variance" => "var_samp",
        _ => name.as_str(),
    };
    if other_name != name {
        function.name = ObjectName::from(vec![Ident::new(other_name)]);
    }
    if let ("make_interval", FunctionArguments::List(list)) = (name.as_str(), &mut function.args) {
        in_places(&name, &mut list.args, &MAKE_INTERVAL_NAMES)?;
    }
    if let ("scale", FunctionArguments::List(list)) = (name.as_str(), &mut function.args) {
        numbers_of_their_digits(&mut list.args)?;
    }
    if let ("round" | "trunc", FunctionArguments::List(list)) = (name.as_str(), &mut function.args)
    {
        // The number of digits determines the result's type.
        list.args.iter_mut().skip(1).for_each(plain_argument);
    }
    let Some(over) = &mut function.over else {
        return Ok(());
    };
    if let WindowType::WindowSpec(spec) = over {
        plain_frame(spec);
    }
    let first_plain = if name == "ntile" { 0 } else { 1 };
    if let FunctionArguments::List(list) = &mut function.args {
        list.args
            .iter_mut()
            .skip(first_plain)
            .for_each(plain_argument);
    }
    let result = match name.as_str() {
        "row_number" | "rank" | "dense_rank" => DataType::BigInt(None),
        "ntile" => DataType::Integer(None),
        "lag" | "lead" => return neighbour(function),
        _ => return Ok(()),
    };
    let inner = std::mem::replace(expr, numbers::plain("0"));
    *expr = cast(inner, result);
    Ok(())
}

/// A quoted number gets the scale that it is written with, not the scale of a column.
fn numbers_of_their_digits(args: &mut [FunctionArg]) -> Result<()> {
    for arg in args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg else {
            continue;
        };
        if let Expr::Value(value) = expr
            && let Value::SingleQuotedString(text) = &value.value
        {
            let digits = text.trim().trim_start_matches(['-', '+']);
            let is_digit = |c: char| c.is_ascii_digit() || c == '.';
            if digits.starts_with(|c: char| c.is_ascii_digit()) && digits.chars().all(is_digit) {
                *expr = numbers::typed(digits)?;
            }
        }
    }
    Ok(())
}

/// Puts named arguments into their positions; missing ones are 0. 42883 for an unknown name.
fn in_places(function: &str, args: &mut Vec<FunctionArg>, names: &[&str]) -> Result<()> {
    let zero = || FunctionArg::Unnamed(FunctionArgExpr::Expr(numbers::plain("0")));
    let mut placed: Vec<FunctionArg> = Vec::new();
    for given in args.iter() {
        let (name, value) = match given {
            FunctionArg::Unnamed(_) => {
                placed.push(given.clone());
                continue;
            }
            FunctionArg::Named { name, arg, .. } => (name.value.clone(), arg),
            FunctionArg::ExprNamed { name, arg, .. } => (name.to_string(), arg),
        };
        let is_name = |known: &&str| name.eq_ignore_ascii_case(known);
        let Some(at) = names.iter().position(is_name) else {
            return Err(Error::invalid(
                SqlState::UNDEFINED_FUNCTION,
                format!("function {function}({name} => ...) does not exist"),
            ));
        };
        while placed.len() <= at {
            placed.push(zero());
        }
        if let Some(place) = placed.get_mut(at) {
            *place = FunctionArg::Unnamed(value.clone());
        }
    }
    *args = placed;
    Ok(())
}

/// `lag(x, n, default)`: gives the value a type that can also hold the default.
fn neighbour(function: &mut Function) -> Result<()> {
    let FunctionArguments::List(list) = &mut function.args else {
        return Ok(());
    };
    let argument = |arg: Option<&FunctionArg>| match arg {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(e))) => Some(e.clone()),
        _ => None,
    };
    let distance = argument(list.args.get(1));
    if distance.is_some_and(|e| matches!(e, Expr::Value(v) if v.value == Value::Null)) {
        let name = function.name.to_string();
        return Err(Error::unsupported(format!(
            "{name} with a distance of NULL is not supported"
        )));
    }
    let default = argument(list.args.get(2));
    let (Some(value), Some(default)) = (argument(list.args.first()), default) else {
        return Ok(());
    };
    let is_numeric = |e: &Expr| {
        matches!(
            e,
            Expr::Cast {
                data_type: DataType::Numeric(_) | DataType::DoublePrecision,
                ..
            }
        )
    };
    let numeric = match &default {
        Expr::UnaryOp { expr, .. } => is_numeric(expr),
        other => is_numeric(other),
    };
    if numeric {
        let yes = Expr::Value(Value::Boolean(true).into());
        let wide = Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions: vec![CaseWhen {
                condition: yes,
                result: value,
            }],
            else_result: Some(Box::new(default)),
        };
        list.args[0] = FunctionArg::Unnamed(FunctionArgExpr::Expr(wide));
    }
    Ok(())
}
