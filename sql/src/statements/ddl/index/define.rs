//! The definition of an index from CREATE INDEX.

use super::options;
use crate::parse::{index_names, names};
use crate::planning::context::StatementContext;
use crate::planning::expressions::{self, Role};
use crate::planning::provider::table_schema::condition_schema;
use crate::statements::ddl::ordered_keys::check_type;
use crate::statements::ddl::refusals::{is_subquery, refuse_aggregates};
use datafusion::logical_expr::Expr as Plan;
use datafusion::sql::sqlparser::ast::{
    CreateIndex, Expr, Ident, IndexColumn, IndexType, ObjectName, VisitorMut,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Error, Result, SqlState, SqlType};
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::index::{
    IndexDef, IndexExpression, IndexId, IndexMethod, IndexPart, IndexState, IndexStorage,
    IndexValue,
};
use strandline_semantics::sql::walk::{any_expression, walk_mut};

/// The access methods in USING.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    /// in the order of the keys
    Ordered,
    /// the same, in levels
    Levels,
    /// by the position of points or boxes, on pages; `gist` is PostgreSQL's name for it
    Spatial,
}

impl Method {
    /// Its name in messages.
    fn name(self) -> &'static str {
        match self {
            Self::Ordered => "btree",
            Self::Levels => "fdtree",
            Self::Spatial => "rtree",
        }
    }

    /// The only storage that it has; None: it has several.
    fn storage(self) -> Option<IndexStorage> {
        match self {
            Self::Ordered => None,
            Self::Levels => Some(IndexStorage::Levels),
            Self::Spatial => Some(IndexStorage::Pages),
        }
    }
}

/// The most columns of an index, including those of INCLUDE.
const COLUMNS_MAX: usize = 32;

/// The index of CREATE INDEX. The catalog assigns its name and number.
pub fn index(
    context: &StatementContext,
    table: &TableDef,
    create: &CreateIndex,
) -> Result<IndexDef> {
    if create.columns.len() + create.include.len() > COLUMNS_MAX {
        return Err(Error::invalid(
            SqlState::TOO_MANY_COLUMNS,
            format!("cannot use more than {COLUMNS_MAX} columns in an index"),
        ));
    }
    let method = method_of(create)?;
    let parts = create.columns.iter();
    let parts: Result<Vec<IndexPart>> = parts
        .map(|column| part(context, table, column, method))
        .collect();
    let include = create.include.iter();
    let include: Result<Vec<ColumnId>> = include.map(|name| column(table, name)).collect();
    let predicate = create.predicate.as_ref();
    let (options, mut place) = options::of_create(create)?;
    if method == Method::Spatial && place.has_blocks() {
        return Err(options::no_blocks());
    }
    place.storage = agreed(method, place.storage)?;
    Ok(IndexDef {
        id: IndexId(0),
        name: String::new(),
        method: match method {
            Method::Ordered | Method::Levels => IndexMethod::Ordered,
            Method::Spatial => IndexMethod::Spatial,
        },
        parts: parts?,
        include: include?,
        unique: create.unique,
        nulls_not_distinct: create.unique && create.nulls_distinct == Some(false),
        predicate: predicate
            .map(|p| condition(context, table, p))
            .transpose()?,
        state: IndexState::Valid,
        complete_since: CommitTs::ZERO,
        options,
        comment: None,
        storage: place.resolve(context.index_storage)?,
        stays_in_memory: place.stays_in_memory(context.index_storage),
        was_moved: false,
        file_number: None,
    })
}

/// PostgreSQL's names of an index's columns: a column's name, a function's name, or `expr`. The
/// second of two equal names gets a number.
pub fn column_names(table: &TableDef, def: &IndexDef) -> Result<Vec<String>> {
    let mut columns: Vec<String> = Vec::new();
    let own = |id: ColumnId| table.column_by_id(id).map(|c| c.name.clone());
    for part in &def.parts {
        let name = match &part.value {
            IndexValue::Column(id) => own(*id),
            IndexValue::Expression(expression) => {
                let expression = crate::parse::expression(&expression.sql)?;
                Some(index_names::of_expression(&expression))
            }
        };
        let name = name.unwrap_or_default();
        columns.push(index_names::distinct(&columns, name));
    }
    for id in &def.include {
        let name = own(*id).unwrap_or_default();
        columns.push(index_names::distinct(&columns, name));
    }
    Ok(columns)
}

/// The access method in USING.
fn method_of(create: &CreateIndex) -> Result<Method> {
    let name = match &create.using {
        None | Some(IndexType::BTree) => return Ok(Method::Ordered),
        Some(IndexType::GiST) => return Ok(Method::Spatial),
        Some(IndexType::Hash) => {
            return Err(
                Error::unsupported("secondary indexes by hash are not supported")
                    .with_hint("An index of the default method (btree) serves the same queries."),
            );
        }
        Some(other) => other.to_string().to_lowercase(),
    };
    let mut known = [Method::Levels, Method::Spatial].into_iter();
    let found = known.find(|method| method.name() == name);
    found.ok_or_else(|| {
        Error::invalid(
            SqlState::UNDEFINED_OBJECT,
            format!("access method \"{name}\" does not exist"),
        )
        .with_hint("Available: btree, fdtree and rtree.")
    })
}

/// The storage by the method in USING and that of WITH.
fn agreed(method: Method, given: Option<IndexStorage>) -> Result<Option<IndexStorage>> {
    match (method.storage(), given) {
        (Some(only), Some(given)) if only != given => {
            let (method, given) = (method.name(), given.name());
            let message = format!("access method \"{method}\" has no storage '{given}'");
            let error = Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message);
            Err(error.with_hint("Leave out the storage, or USING."))
        }
        (only, given) => Ok(only.or(given)),
    }
}

fn column(table: &TableDef, name: &Ident) -> Result<ColumnId> {
    let name = names::fold(name);
    let found = table.column(&name).map(|column| column.id);
    found.ok_or_else(|| {
        Error::invalid(
            SqlState::UNDEFINED_COLUMN,
            format!("column \"{name}\" does not exist"),
        )
    })
}

fn part(
    context: &StatementContext,
    table: &TableDef,
    written: &IndexColumn,
    method: Method,
) -> Result<IndexPart> {
    if method == Method::Spatial {
        refuse_order(written)?;
    }
    let value = value(context, table, &written.column.expr)?;
    let sql_type = match &value {
        IndexValue::Column(id) => table.column_by_id(*id).map(|column| column.sql_type),
        IndexValue::Expression(expression) => Some(expression.sql_type),
    };
    let mut operator_class = None;
    if let Some(sql_type) = sql_type {
        // The engine refuses what an R-tree has no operator class for.
        if method != Method::Spatial {
            check_type(sql_type)?;
        }
        let class = written.operator_class.as_ref();
        operator_class = self::operator_class(sql_type, class, method)?;
    }
    let descending = written.column.options.asc == Some(false);
    Ok(IndexPart {
        value,
        descending,
        nulls_first: written.column.options.nulls_first.unwrap_or(descending),
        operator_class,
    })
}

/// The entries of an R-tree have no order, not even the default one.
fn refuse_order(written: &IndexColumn) -> Result<()> {
    let options = &written.column.options;
    let what = match (options.asc, options.nulls_first) {
        (Some(_), _) => "ASC/DESC options",
        (None, Some(_)) => "NULLS FIRST/LAST options",
        (None, None) => return Ok(()),
    };
    let method = Method::Spatial.name();
    let message = format!("access method \"{method}\" does not support {what}");
    Err(Error::unsupported(message)
        .with_hint("Leave them out: the entries of an R-tree have no order."))
}

fn value(context: &StatementContext, table: &TableDef, written: &Expr) -> Result<IndexValue> {
    match written {
        Expr::Identifier(name) => Ok(IndexValue::Column(column(table, name)?)),
        Expr::CompoundIdentifier(parts) if is_own(table, parts) => match parts.last() {
            Some(name) => Ok(IndexValue::Column(column(table, name)?)),
            None => Err(Error::internal("a name without parts")),
        },
        Expr::Nested(inner) => value(context, table, inner),
        Expr::Collate { expr, collation } => {
            check_collation(collation)?;
            value(context, table, expr)
        }
        other => expression(context, table, other, &EXPRESSION).map(IndexValue::Expression),
    }
}

/// Whether `parts` is a column with the table's name: `t.a`.
fn is_own(table: &TableDef, parts: &[Ident]) -> bool {
    match parts {
        [owner, _] => names::fold(owner) == table.name,
        _ => false,
    }
}

/// The nouns of an expression in messages.
struct ExpressionNoun {
    one: &'static str,
    many: &'static str,
}

const EXPRESSION: ExpressionNoun = ExpressionNoun {
    one: "index expression",
    many: "index expressions",
};
const PREDICATE: ExpressionNoun = ExpressionNoun {
    one: "index predicate",
    many: "index predicates",
};

/// WHERE: an immutable boolean expression of the table's columns.
fn condition(
    context: &StatementContext,
    table: &TableDef,
    written: &Expr,
) -> Result<IndexExpression> {
    let written = match written {
        Expr::Nested(inner) => inner,
        other => other,
    };
    let condition = expression(context, table, written, &PREDICATE)?;
    if condition.sql_type != SqlType::Boolean {
        return Err(Error::invalid(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "argument of WHERE must be type boolean, not type {}",
                condition.sql_type
            ),
        ));
    }
    Ok(condition)
}

fn expression(
    context: &StatementContext,
    table: &TableDef,
    written: &Expr,
    place: &ExpressionNoun,
) -> Result<IndexExpression> {
    if any_expression(written, is_subquery) {
        let message = format!("cannot use subquery in {}", place.one);
        return Err(Error::invalid(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let schema = Arc::new(condition_schema(table)?);
    let planned = context.plan_expression(written, &schema)?;
    refuse_aggregates(&planned, place.many)?;
    let analyzed = expressions::analyze(planned, Role::Value, &schema, &context.state)?;
    if !expressions::is_immutable(&analyzed)? {
        return Err(Error::invalid(
            SqlState("42P17"),
            format!("functions in {} must be marked IMMUTABLE", place.one),
        ));
    }
    let columns = columns_of(table, &analyzed)?;
    let sql_type = expressions::type_of(&analyzed, &schema)?;
    let mut written = written.clone();
    let _ = walk_mut(&mut written, &mut WithoutTable);
    Ok(IndexExpression {
        sql: written.to_string(),
        columns,
        sql_type,
    })
}

/// The columns that an expression reads, without duplicates, in the table's order.
fn columns_of(table: &TableDef, expression: &Plan) -> Result<Vec<ColumnId>> {
    let mut places = BTreeMap::new();
    for column in expression.column_refs() {
        let id = table.require_column(&column.name)?.id;
        places.insert(table.position(id), id);
    }
    Ok(places.into_values().collect())
}

/// Removes the table's name from columns.
struct WithoutTable;

impl VisitorMut for WithoutTable {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expr
            && let Some(column) = parts.last()
        {
            *expr = Expr::Identifier(column.clone());
        }
        ControlFlow::Continue(())
    }
}

/// Texts compare by bytes, so only collations that do the same are accepted.
fn check_collation(collation: &ObjectName) -> Result<()> {
    let name = names::parts(collation)?;
    let name = name.last().map_or("", String::as_str);
    if ["C", "POSIX", "ucs_basic", "default", "c", "posix"].contains(&name) {
        return Ok(());
    }
    Err(Error::invalid(
        SqlState::UNDEFINED_OBJECT,
        format!("collation \"{name}\" for encoding \"UTF8\" does not exist"),
    )
    .with_hint("Text compares by bytes (collation \"C\")."))
}

/// Accepts PostgreSQL's operator class of the type; None: it is the default class. For texts the
/// classes that compare bytes are accepted too, because texts always compare by bytes here.
fn operator_class(
    sql_type: SqlType,
    class: Option<&ObjectName>,
    method: Method,
) -> Result<Option<String>> {
    let Some(class) = class else {
        return Ok(None);
    };
    let parts = names::parts(class)?;
    let name = parts.last().map_or("", String::as_str);
    let known: &[&str] = match sql_type {
        SqlType::Point if method == Method::Spatial => &["point_ops"],
        SqlType::Box if method == Method::Spatial => &["box_ops"],
        _ if method == Method::Spatial => &[],
        SqlType::Text | SqlType::Varchar(_) => &[
            "text_ops",
            "varchar_ops",
            "text_pattern_ops",
            "varchar_pattern_ops",
        ],
        SqlType::Char(_) => &["bpchar_ops", "bpchar_pattern_ops"],
        SqlType::SmallInt => &["int2_ops"],
        SqlType::Integer => &["int4_ops"],
        SqlType::BigInt => &["int8_ops"],
        SqlType::Real => &["float4_ops"],
        SqlType::Double => &["float8_ops"],
        SqlType::Numeric { .. } => &["numeric_ops"],
        SqlType::Boolean => &["bool_ops"],
        SqlType::Bytea => &["bytea_ops"],
        SqlType::Date => &["date_ops"],
        SqlType::Time => &["time_ops"],
        SqlType::Timestamp => &["timestamp_ops"],
        SqlType::TimestampTz => &["timestamptz_ops"],
        SqlType::Interval => &["interval_ops"],
        SqlType::Uuid => &["uuid_ops"],
        _ => &[],
    };
    // The default stands first.
    if let Some(at) = known.iter().position(|known| *known == name) {
        return Ok((at > 0).then(|| name.to_string()));
    }
    let all = match method {
        Method::Spatial => SPATIAL_CLASSES,
        Method::Ordered | Method::Levels => ALL_CLASSES,
    };
    if all.contains(&name) {
        return Err(Error::invalid(
            SqlState::DATATYPE_MISMATCH,
            format!("operator class \"{name}\" does not accept data type {sql_type}"),
        ));
    }
    Err(Error::invalid(
        SqlState::UNDEFINED_OBJECT,
        format!(
            "operator class \"{name}\" does not exist for access method \"{}\"",
            match method {
                Method::Spatial => method.name(),
                Method::Ordered | Method::Levels => Method::Ordered.name(),
            }
        ),
    ))
}

/// The operator classes of R-trees.
const SPATIAL_CLASSES: &[&str] = &["box_ops", "point_ops"];

/// The other known operator classes.
const ALL_CLASSES: &[&str] = &[
    "bool_ops",
    "bpchar_ops",
    "bpchar_pattern_ops",
    "bytea_ops",
    "date_ops",
    "float4_ops",
    "float8_ops",
    "int2_ops",
    "int4_ops",
    "int8_ops",
    "interval_ops",
    "numeric_ops",
    "text_ops",
    "text_pattern_ops",
    "time_ops",
    "timestamp_ops",
    "timestamptz_ops",
    "uuid_ops",
    "varchar_ops",
    "varchar_pattern_ops",
];
