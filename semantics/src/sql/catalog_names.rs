//! Spellings in clients' queries of system tables: names and operators with schema `pg_catalog`,
//! the `reg…` types, collations that compare bytes, `ARRAY(SELECT …)`, functions that make rows
//! from arrays.

use super::calls::{call, last_name};
use super::cast_syntax::cast;
use super::series;
use crate::functions::SYSTEM_TYPES;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, ObjectName, ObjectNamePart, SelectItem, SetExpr,
    TableAlias, TableAliasColumnDef, TableFactor, Value,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// The schemas whose functions are found without a qualifier.
const SYSTEM_SCHEMAS: [&str; 2] = ["pg_catalog", "information_schema"];

/// Rewrites an expression to supported spellings.
pub(super) fn expression(expr: &mut Expr) {
    match expr {
        Expr::Function(function) => {
            strip_schema(&mut function.name);
            let name = last_name(&function.name).unwrap_or_default();
            match (name.as_str(), &mut function.args) {
                ("array", FunctionArguments::Subquery(query)) => {
                    let query = Expr::Subquery(std::mem::replace(query, empty_query()));
                    *expr = call("array_of", vec![query]);
                }
                ("generate_subscripts", FunctionArguments::List(list)) => {
                    let subscripts = call("array_subscripts", plain_arguments(&list.args));
                    *expr = call("unnest", vec![subscripts]);
                }
                ("_pg_expandarray", FunctionArguments::List(_)) => {
                    let items = std::mem::replace(expr, Expr::Value(Value::Null.into()));
                    *expr = call("unnest", vec![items]);
                }
                ("regexp_split_to_table", FunctionArguments::List(list)) => {
                    let parts = call("regexp_split_to_array", plain_arguments(&list.args));
                    *expr = call("unnest", vec![parts]);
                }
                _ => {}
            }
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            if let [AccessExpr::Dot(Expr::Identifier(field))] = access_chain.as_slice() {
                let name = match field.quote_style {
                    Some(_) => field.value.clone(),
                    None => field.value.to_ascii_lowercase(),
                };
                let name = Expr::Value(Value::SingleQuotedString(name).into());
                let root = std::mem::replace(root.as_mut(), Expr::Value(Value::Null.into()));
                *expr = call("get_field", vec![root, name]);
            }
        }
        Expr::Collate {
            expr: inner,
            collation,
        } if is_ours(collation) => {
            let inner = std::mem::replace(inner.as_mut(), Expr::Value(Value::Null.into()));
            *expr = inner;
        }
        Expr::BinaryOp { op, .. } => {
            if let BinaryOperator::PGCustomBinaryOperator(parts) = op
                && let Some(plain) = parts.last().and_then(|symbol| operator(symbol))
            {
                *op = plain;
            }
        }
        Expr::TypedString(typed) if matches!(typed.data_type, DataType::Custom(..)) => {
            let text = Expr::Value(typed.value.clone());
            let mut data_type = typed.data_type.clone();
            plain_type(&mut data_type);
            *expr = cast(text, data_type);
            named_object(expr);
        }
        Expr::Cast {
            kind: CastKind::Cast | CastKind::DoubleColon,
            data_type,
            ..
        } => {
            plain_type(data_type);
            named_object(expr);
        }
        _ => {}
    }
}

fn empty_query() -> Box<datafusion::sql::sqlparser::ast::Query> {
    Box::new(datafusion::sql::sqlparser::ast::Query {
        with: None,
        body: Box::new(datafusion::sql::sqlparser::ast::SetExpr::Values(
            datafusion::sql::sqlparser::ast::Values {
                explicit_row: false,
                value_keyword: false,
                rows: Vec::new(),
            },
        )),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    })
}

fn plain_argument(arg: &FunctionArg) -> Option<&Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

fn plain_arguments(args: &[FunctionArg]) -> Vec<Expr> {
    args.iter().filter_map(plain_argument).cloned().collect()
}

/// Removes the schema from the name of a system function.
fn strip_schema(name: &mut ObjectName) {
    if let [schema, _] = name.0.as_slice()
        && let Some(schema) = schema.as_ident()
        && SYSTEM_SCHEMAS.contains(&schema.value.to_ascii_lowercase().as_str())
    {
        name.0.remove(0);
    }
}

/// Whether the collation compares texts by bytes, as all texts compare here.
fn is_ours(collation: &ObjectName) -> bool {
    matches!(
        last_name(collation).as_deref(),
        Some("default" | "c" | "posix" | "ucs_basic")
    )
}

/// The operator in `OPERATOR(schema.symbol)`.
fn operator(symbol: &str) -> Option<BinaryOperator> {
    let parsed = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(&format!("a {symbol} b"))
        .ok()?
        .parse_expr()
        .ok()?;
    match parsed {
        Expr::BinaryOp { op, .. } => Some(op),
        _ => None,
    }
}

/// `pg_catalog.int4` as `int4`.
fn plain_type(data_type: &mut DataType) {
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, size)) => {
            // As in PostgreSQL, the number of dimensions and their lengths are ignored.
            *size = None;
            plain_type(item);
            if let DataType::Array(ArrayElemTypeDef::SquareBracket(..)) = item.as_ref() {
                *data_type = (**item).clone();
            }
        }
        DataType::Custom(name, modifiers) => {
            strip_schema(name);
            if let ([part], []) = (name.0.as_slice(), modifiers.as_slice())
                && let Some(ident) = part.as_ident()
                && ident.quote_style.is_none()
                && let Ok(mut parser) =
                    Parser::new(&PostgreSqlDialect {}).try_with_sql(&ident.value)
                && let Ok(plain) = parser.parse_data_type()
            {
                *data_type = plain;
            }
        }
        _ => {}
    }
}

/// Types whose values are objects, with their input and output functions.
const OBJECT_TYPES: [(&str, &str, &str); 6] = [
    ("regclass", "regclassin", "regclassout"),
    ("regtype", "regtypein", "regtypeout"),
    ("regnamespace", "regnamespacein", "regnamespaceout"),
    ("regrole", "regrolein", "regroleout"),
    ("regproc", "regprocin", "regprocin"),
    ("regprocedure", "regprocin", "regprocin"),
];

/// Rewrites a cast to a `reg…` type to a call of its input function, and a cast of such a value to
/// text to a call of its output function.
fn named_object(expr: &mut Expr) {
    let Expr::Cast {
        expr: operand,
        data_type,
        ..
    } = expr
    else {
        return;
    };
    let wanted = data_type.to_string().to_ascii_lowercase();
    let is_parameter =
        matches!(operand.as_ref(), Expr::Value(v) if matches!(v.value, Value::Placeholder(_)));
    let function = if let Some((_, input, _)) = OBJECT_TYPES.iter().find(|t| t.0 == wanted) {
        input
    } else if let Some((_, input)) = SYSTEM_TYPES.iter().find(|t| t.0 == wanted)
        && !is_parameter
    {
        input
    } else if let ("text" | "varchar" | "name", Expr::Function(inner)) =
        (wanted.as_str(), operand.as_ref())
    {
        let name = last_name(&inner.name).unwrap_or_default();
        match OBJECT_TYPES.iter().find(|t| t.1 == name) {
            Some((_, _, output)) => output,
            None => return,
        }
    } else {
        return;
    };
    let operand = std::mem::replace(operand.as_mut(), Expr::Value(Value::Null.into()));
    *expr = call(function, vec![operand]);
}

/// Functions without arguments that return rows of the system; they are tables here.
const SET_FUNCTIONS: [&str; 1] = ["pg_get_keywords"];

/// Table functions of DataFusion too.
const TABLE_FUNCTIONS: [&str; 5] = [
    "generate_series",
    "range",
    "strandline_history",
    "strandline_stats",
    "strandline_tiers",
];

/// The name, the arguments and the alias of a table function.
type TableCall<'a> = (
    &'a mut ObjectName,
    &'a mut Vec<FunctionArg>,
    &'a mut Option<TableAlias>,
);

/// A table function in FROM, with or without LATERAL.
fn table_call(factor: &mut TableFactor) -> Option<TableCall<'_>> {
    match factor {
        TableFactor::Table {
            name,
            args: Some(args),
            alias,
            ..
        } => Some((name, &mut args.args, alias)),
        TableFactor::Function {
            name, args, alias, ..
        } => Some((name, args, alias)),
        _ => None,
    }
}

/// `FROM f(x) AS a` with a scalar function as `FROM (SELECT f(x) AS a) AS a`.
fn as_subquery(
    function: &str,
    args: Vec<Expr>,
    alias: &mut Option<TableAlias>,
) -> Option<TableFactor> {
    let mut derived = derived("(SELECT 1 AS one) AS a")?;
    let TableFactor::Derived {
        subquery,
        alias: Some(shown),
        ..
    } = &mut derived
    else {
        return None;
    };
    let SetExpr::Select(select) = subquery.body.as_mut() else {
        return None;
    };
    let given = alias.take();
    let column = given.as_ref().and_then(|given| given.columns.first());
    let column = column.map(|column| column.name.clone());
    shown.name = given.map_or_else(|| Ident::new(function), |given| given.name);
    select.projection = vec![SelectItem::ExprWithAlias {
        expr: call(function, args),
        alias: column.unwrap_or_else(|| shown.name.clone()),
    }];
    Some(derived)
}

/// `pg_options_to_table(options)` as its rows: each option, `name=value`, in two columns.
fn options_as_rows(options: Option<&Expr>, alias: &mut Option<TableAlias>) -> Option<TableFactor> {
    let template = "(SELECT split_part(o, '=', 1) AS option_name, \
                    substr(o, strpos(o, '=') + 1) AS option_value \
                    FROM unnest(ARRAY['']) AS options (o)) AS pg_options_to_table";
    let options = options?.clone();
    let mut rows = derived(template)?;
    if let TableFactor::Derived {
        subquery,
        alias: shown,
        ..
    } = &mut rows
        && let SetExpr::Select(select) = subquery.body.as_mut()
        && let Some(TableFactor::UNNEST { array_exprs, .. }) =
            select.from.first_mut().map(|table| &mut table.relation)
    {
        *array_exprs = vec![options];
        *shown = alias.take().or(shown.take());
    }
    Some(rows)
}

/// The item of FROM with the text `sql`.
fn derived(sql: &str) -> Option<TableFactor> {
    let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).ok()?;
    parser.parse_table_factor().ok()
}

/// Names the only column of a table function like the table, and the table like the function.
fn name_column(alias: &mut Option<TableAlias>, function: &str) {
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::new(function),
        columns: Vec::new(),
        at: None,
    });
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef {
            name: alias.name.clone(),
            data_type: None,
        });
    }
}

/// Removes the schema from a system function in FROM. A function that makes rows from an array, or
/// from arguments that are unknown before execution, becomes UNNEST.
pub(super) fn table_factor(factor: &mut TableFactor) {
    if let TableFactor::UNNEST {
        alias, array_exprs, ..
    } = factor
    {
        if array_exprs.len() == 1 {
            name_column(alias, "unnest");
        }
        return;
    }
    if let TableFactor::Table { name, args, .. } = factor
        && args.is_some()
        && SET_FUNCTIONS.contains(&last_name(name).unwrap_or_default().as_str())
    {
        strip_schema(name);
        let schema = Ident::new(SYSTEM_SCHEMAS[0]);
        name.0.insert(0, ObjectNamePart::Identifier(schema));
        *args = None;
        return;
    }
    let Some((name, args, alias)) = table_call(factor) else {
        return;
    };
    strip_schema(name);
    let name = last_name(name).unwrap_or_default();
    let array = match name.as_str() {
        "unnest" => args.first().and_then(plain_argument).cloned(),
        "generate_subscripts" => Some(call("array_subscripts", plain_arguments(args))),
        "regexp_split_to_table" => Some(call("regexp_split_to_array", plain_arguments(args))),
        "generate_series" if !series::is_constant(args) => {
            Some(call("generate_series", plain_arguments(args)))
        }
        _ => None,
    };
    let replaced = match array {
        Some(array) => {
            let mut alias = alias.take();
            name_column(&mut alias, &name);
            Some(TableFactor::UNNEST {
                alias,
                array_exprs: vec![array],
                with_offset: false,
                with_offset_alias: None,
                with_ordinality: false,
            })
        }
        None if name == "pg_options_to_table" => {
            options_as_rows(args.first().and_then(plain_argument), alias)
        }
        None if TABLE_FUNCTIONS.contains(&name.as_str()) => None,
        None => as_subquery(&name, plain_arguments(args), alias),
    };
    if let Some(replaced) = replaced {
        *factor = replaced;
    }
}
