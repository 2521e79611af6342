//! Names of result columns, chosen as in PostgreSQL.
//!
//! Columns with the same name get a suffix in a plan ([`crate::output_names`]); [`output_name`]
//! removes it for users.

use crate::output_names::{SEPARATOR, output_name};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, DataType, Expr, Ident, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, TimezoneInfo, TrimWhereField, Value,
};
use futures::StreamExt;
use std::collections::HashMap;
use std::sync::Arc;

/// The schema of a plan with the names that users see.
pub fn output_schema(schema: &SchemaRef) -> SchemaRef {
    if !schema.fields().iter().any(|f| f.name().contains(SEPARATOR)) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().map(|f| {
        let name = output_name(f.name());
        if name == f.name() {
            Arc::clone(f)
        } else {
            Arc::new(f.as_ref().clone().with_name(name))
        }
    });
    let fields = fields.collect::<Vec<_>>();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The batches of `stream` with the names of `schema`, which has the same types.
pub fn renamed(stream: SendableRecordBatchStream, schema: SchemaRef) -> SendableRecordBatchStream {
    let names = Arc::clone(&schema);
    let batches = stream.map(move |batch| {
        let batch = batch?;
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        let types = batch.schema();
        let fields = names.fields().iter().zip(types.fields());
        let fields = fields.map(|(name, f)| Arc::new(f.as_ref().clone().with_name(name.name())));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(RecordBatch::try_new_with_options(schema, columns, &rows)?)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

/// Gives every column of the list an explicit, distinct name.
pub fn name_columns(select: &mut Select) {
    distinguish_from_wildcards(&mut select.projection);
    let mut seen: HashMap<String, usize> = HashMap::new();
    for item in &mut select.projection {
        let name = match item {
            SelectItem::UnnamedExpr(expr) => column_name(expr),
            SelectItem::ExprWithAlias { alias, .. } => folded(alias),
            _ => continue,
        };
        let times = seen.entry(name.clone()).or_insert(0);
        *times += 1;
        let distinct = match *times {
            1 => name,
            n => format!("{name}{SEPARATOR}{n}"),
        };
        let first = *times == 1;
        match item {
            SelectItem::UnnamedExpr(expr) if !(first && is_column(expr)) => {
                let alias = Ident::with_quote('"', distinct);
                let expr = std::mem::replace(expr, Expr::Identifier(Ident::new("")));
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
            SelectItem::ExprWithAlias { alias, .. } if !first => {
                *alias = Ident::with_quote('"', distinct);
            }
            _ => {}
        }
    }
}

/// Renames named columns that a wildcard repeats: `SELECT t.a, t.*`.
fn distinguish_from_wildcards(items: &mut [SelectItem]) {
    let mut all = false;
    let mut tables = Vec::new();
    for item in items.iter() {
        match item {
            SelectItem::Wildcard(_) => all = true,
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                tables.extend(name.0.last().and_then(|part| part.as_ident()).map(folded))
            }
            _ => {}
        }
    }
    let is_covered = |expr: &Expr| match expr {
        Expr::Identifier(_) => all,
        Expr::CompoundIdentifier(parts) => {
            let table = parts.iter().rev().nth(1).map(folded);
            all || table.is_some_and(|table| tables.contains(&table))
        }
        _ => false,
    };
    for (i, item) in items.iter_mut().enumerate() {
        if let SelectItem::UnnamedExpr(expr) = item
            && is_covered(expr)
        {
            let name = format!("{}{SEPARATOR}named {i}", column_name(expr));
            let expr = std::mem::replace(expr, Expr::Identifier(Ident::new("")));
            let alias = Ident::with_quote('"', name);
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

pub(super) fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

pub(super) fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

/// The name of an unnamed result column.
pub fn column_name(expr: &Expr) -> String {
    strong_name(expr)
        .or_else(|| weak_name(expr))
        .unwrap_or_else(|| "?column?".to_string())
}

/// A name that is kept through a cast.
fn strong_name(expr: &Expr) -> Option<String> {
    let fixed = |name: &str| Some(name.to_string());
    match expr {
        Expr::Identifier(ident) => Some(folded(ident)),
        Expr::CompoundIdentifier(parts) => parts.last().map(folded),
        Expr::CompoundFieldAccess { root, access_chain } => access_chain
            .iter()
            .rev()
            .find_map(|access| match access {
                AccessExpr::Dot(field) => strong_name(field),
                AccessExpr::Subscript(_) => None,
            })
            .or_else(|| strong_name(root)),
        Expr::Function(function) => function
            .name
            .0
            .last()
            .and_then(|part| part.as_ident())
            .map(folded),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => strong_name(inner),
        Expr::Cast { expr: inner, .. } => strong_name(inner),
        Expr::AtTimeZone { .. } => fixed("timezone"),
        Expr::Extract { .. } => fixed("extract"),
        Expr::Substring { .. } => fixed("substring"),
        Expr::Position { .. } => fixed("position"),
        Expr::Overlay { .. } => fixed("overlay"),
        Expr::Ceil { .. } => fixed("ceil"),
        Expr::Floor { .. } => fixed("floor"),
        Expr::Trim { trim_where, .. } => fixed(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        Expr::Exists { negated: false, .. } => fixed("exists"),
        Expr::Array(_) => fixed("array"),
        Expr::Tuple(_) => fixed("row"),
        Expr::Subquery(query) => subquery_name(query),
        Expr::Case {
            else_result: Some(result),
            ..
        } => strong_name(result),
        _ => None,
    }
}

/// A name without a better one: a cast's type, CASE.
fn weak_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Nested(inner) => weak_name(inner),
        Expr::Cast { data_type, .. } => Some(type_name(data_type)),
        Expr::TypedString(typed) => Some(type_name(&typed.data_type)),
        Expr::Interval(_) => Some("interval".to_string()),
        Expr::Case { .. } => Some("case".to_string()),
        Expr::Value(value) if matches!(value.value, Value::Boolean(_)) => Some("bool".to_string()),
        _ => None,
    }
}

/// The name of a scalar subquery, which is its column's name.
fn subquery_name(query: &Query) -> Option<String> {
    match query.body.as_ref() {
        SetExpr::Select(select) => match select.projection.first()? {
            SelectItem::UnnamedExpr(expr) => Some(column_name(expr)),
            SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
            _ => None,
        },
        SetExpr::Query(inner) => subquery_name(inner),
        _ => None,
    }
}

/// The catalog's name of a type.
fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::SmallInt(_) | DataType::Int2(_) => "int2".to_string(),
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => "int4".to_string(),
        DataType::BigInt(_) | DataType::Int8(_) => "int8".to_string(),
        DataType::Real | DataType::Float4 => "float4".to_string(),
        DataType::Double(_) | DataType::DoublePrecision | DataType::Float8 | DataType::Float(_) => {
            "float8".to_string()
        }
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => "numeric".to_string(),
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => {
            "varchar".to_string()
        }
        DataType::Char(_) | DataType::Character(_) => "bpchar".to_string(),
        DataType::Boolean | DataType::Bool => "bool".to_string(),
        DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            "timestamp".to_string()
        }
        DataType::Timestamp(..) => "timestamptz".to_string(),
        DataType::Interval { .. } => "interval".to_string(),
        DataType::Time(..) => "time".to_string(),
        other => other.to_string().to_lowercase(),
    }
}

/// Whether a bare name is a function without parentheses that the parser takes for a column.
pub fn is_function(name: &Ident) -> bool {
    let is = |keyword: &str| name.value.eq_ignore_ascii_case(keyword);
    name.quote_style.is_none() && (is("current_schema") || is("current_role"))
}
