//! `count(1)` as `count(*)`, which means the same. DataFusion gives both the same name, and refuses
//! a query that has both.

use super::calls::last_name;
use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};

/// Rewrites `count` of a number.
pub(super) fn count_rows(expr: &mut Expr) {
    let Expr::Function(function) = expr else {
        return;
    };
    let FunctionArguments::List(list) = &mut function.args else {
        return;
    };
    let [FunctionArg::Unnamed(argument)] = list.args.as_mut_slice() else {
        return;
    };
    let is_number = matches!(
        argument,
        FunctionArgExpr::Expr(Expr::Value(value)) if matches!(value.value, Value::Number(..))
    );
    if is_number
        && list.duplicate_treatment != Some(DuplicateTreatment::Distinct)
        && last_name(&function.name).as_deref() == Some("count")
    {
        *argument = FunctionArgExpr::Wildcard;
    }
}
