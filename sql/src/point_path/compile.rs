//! From a syntax tree to a compiled statement. `None` everywhere: the statement takes the full
//! path, also where it is wrong.

use super::value::is_key_type;
use super::{
    Arithmetic, Conflict, Insert, Key, Operation, PointStatement, Scalar, Select, SetList, Source,
    Update,
};
use crate::provider::table::arrow_field;
use crate::semantics::types;
use crate::{dml, names, params, parse};
use datafusion::arrow::datatypes::Schema;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, Expr, SelectItem, SetExpr, Statement as Parsed, TableFactor,
    UnaryOperator, Value as Literal,
};
use std::sync::Arc;
use strandline_base::{ColumnId, SqlType};
use strandline_engine::catalog::{Catalog, TableDef};
use strandline_engine::{Db, PointTable};

/// How many rows an INSERT of this path has at most.
const MAX_ROWS: usize = 64;
/// The proposed row's name.
const EXCLUDED: &str = "excluded";

/// What statements are compiled for.
pub(crate) struct Compiler<'a> {
    pub db: &'a Db,
    pub catalog: &'a Arc<Catalog>,
    pub default_schema: &'a str,
    /// per parameter its type; None: its value's
    pub types: &'a [Option<SqlType>],
}

/// The names that a statement's expressions know: those of one table.
struct Scope<'a> {
    table: &'a Arc<TableDef>,
    alias: String,
    /// whether `excluded.c` is a column of a proposed row, and `c` alone is ambiguous
    proposes: bool,
}

/// A column of the table, or of the proposed row.
enum Named {
    Column(usize),
    Excluded(usize),
}

impl Scope<'_> {
    fn position(&self, name: &ast::Ident) -> Option<usize> {
        let name = names::fold(name);
        self.table.columns.iter().position(|c| c.name == name)
    }

    fn named(&self, expr: &Expr) -> Option<Named> {
        match expr {
            Expr::Identifier(name) if !self.proposes => self.position(name).map(Named::Column),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, column] if names::fold(table) == self.alias => {
                    self.position(column).map(Named::Column)
                }
                [table, column] if self.proposes && names::fold(table) == EXCLUDED => {
                    self.position(column).map(Named::Excluded)
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn column(&self, expr: &Expr) -> Option<usize> {
        match self.named(expr)? {
            Named::Column(position) => Some(position),
            Named::Excluded(_) => None,
        }
    }
}

impl Compiler<'_> {
    /// Compiles a statement.
    pub fn compile(&self, statement: &Parsed) -> Option<PointStatement> {
        match statement {
            Parsed::Query(query) => self.select(query),
            Parsed::Update(update) => self.update(update),
            Parsed::Delete(delete) => self.delete(delete),
            Parsed::Insert(insert) => self.insert(insert),
            _ => None,
        }
    }

    fn table(&self, name: &ast::ObjectName) -> Option<&Arc<TableDef>> {
        let (schema, table) = names::qualified(name, self.default_schema).ok()?;
        self.catalog.table(&schema, &table)
    }

    /// The one table of a FROM.
    fn scope(&self, from: &[ast::TableWithJoins]) -> Option<Scope<'_>> {
        let [ast::TableWithJoins { relation, joins }] = from else {
            return None;
        };
        let TableFactor::Table {
            name,
            alias,
            args: None,
            with_hints,
            version: None,
            with_ordinality: false,
            partitions,
            json_path: None,
            sample: None,
            index_hints,
        } = relation
        else {
            return None;
        };
        let plain_alias = |a: &ast::TableAlias| a.columns.is_empty() && a.at.is_none();
        let is_plain = joins.is_empty()
            && with_hints.is_empty()
            && partitions.is_empty()
            && index_hints.is_empty()
            && alias.as_ref().is_none_or(plain_alias);
        let table = self.table(name).filter(|_| is_plain)?;
        let alias = alias.as_ref().map(|a| names::fold(&a.name));
        Some(Scope {
            table,
            alias: alias.unwrap_or_else(|| table.name.clone()),
            proposes: false,
        })
    }

    fn select(&self, query: &ast::Query) -> Option<PointStatement> {
        let SetExpr::Select(select) = query.body.as_ref() else {
            return None;
        };
        let plain = dml::plain_select(
            select.projection.clone(),
            select.from.clone(),
            select.selection.clone(),
        );
        if *query != plain {
            return None;
        }
        let scope = self.scope(&select.from)?;
        let key = self.key(&scope, select.selection.as_ref())?;
        let mut found: Vec<(usize, String)> = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(options)
                    if *options == ast::WildcardAdditionalOptions::default() =>
                {
                    let columns = scope.table.columns.iter().enumerate();
                    found.extend(columns.map(|(i, c)| (i, c.name.clone())));
                }
                SelectItem::UnnamedExpr(expr) => {
                    let position = scope.column(expr)?;
                    found.push((position, scope.table.columns[position].name.clone()));
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    found.push((scope.column(expr)?, names::fold(alias)));
                }
                _ => return None,
            }
        }
        if found.is_empty() {
            return None;
        }
        let column = |(position, _): &(usize, String)| &scope.table.columns[*position];
        let fields: Vec<_> = found
            .iter()
            .map(|item| arrow_field(&item.1, column(item).sql_type, !column(item).not_null))
            .collect();
        let operation = Operation::Select(Select {
            key,
            columns: found.iter().map(|item| column(item).id).collect(),
            types: found.iter().map(|item| column(item).sql_type).collect(),
            schema: Arc::new(Schema::new(fields)),
        });
        Some(of(&scope, operation))
    }

    fn update(&self, update: &ast::Update) -> Option<PointStatement> {
        let is_plain = update.optimizer_hints.is_empty()
            && update.from.is_none()
            && update.returning.is_none()
            && update.output.is_none()
            && update.or.is_none()
            && update.order_by.is_empty()
            && update.limit.is_none();
        if !is_plain {
            return None;
        }
        let scope = self.scope(std::slice::from_ref(&update.table))?;
        let key = self.key(&scope, update.selection.as_ref())?;
        let set = self.set_list(&scope, &update.assignments)?;
        Some(of(&scope, Operation::Update(Update { key, set })))
    }

    fn delete(&self, delete: &ast::Delete) -> Option<PointStatement> {
        let is_plain = delete.optimizer_hints.is_empty()
            && delete.tables.is_empty()
            && delete.using.is_none()
            && delete.returning.is_none()
            && delete.output.is_none()
            && delete.order_by.is_empty()
            && delete.limit.is_none();
        let ast::FromTable::WithFromKeyword(from) = &delete.from else {
            return None;
        };
        if !is_plain {
            return None;
        }
        let scope = self.scope(from)?;
        let key = self.key(&scope, delete.selection.as_ref())?;
        Some(of(&scope, Operation::Delete(key)))
    }

    /// `k = c [AND …]` over all columns of one key and nothing else.
    fn key(&self, scope: &Scope<'_>, condition: Option<&Expr>) -> Option<Key> {
        let mut equal: Vec<(ColumnId, Source)> = Vec::new();
        let mut open = vec![condition?];
        while let Some(expr) = open.pop() {
            match expr {
                Expr::Nested(inner) => open.push(inner),
                Expr::BinaryOp {
                    left,
                    op: BinaryOperator::And,
                    right,
                } => open.extend([left.as_ref(), right.as_ref()]),
                Expr::BinaryOp {
                    left,
                    op: BinaryOperator::Eq,
                    right,
                } => {
                    let (position, other) = match scope.column(left) {
                        Some(position) => (position, right),
                        None => (scope.column(right)?, left),
                    };
                    let id = scope.table.columns[position].id;
                    if equal.iter().any(|(known, _)| *known == id) {
                        return None;
                    }
                    equal.push((id, self.constant(other)?));
                }
                _ => return None,
            }
        }
        let table = scope.table;
        let index = table.keys.iter().position(|key| {
            key.columns.len() == equal.len()
                && key
                    .columns
                    .iter()
                    .all(|id| equal.iter().any(|(e, _)| e == id))
        })?;
        let mut parts = Vec::with_capacity(equal.len());
        for id in &table.keys[index].columns {
            let sql_type = table.column_by_id(*id)?.sql_type;
            let at = equal.iter().position(|(e, _)| e == id)?;
            if !is_key_type(sql_type) {
                return None;
            }
            parts.push((sql_type, equal.swap_remove(at).1));
        }
        let point = PointTable::new(self.db, self.catalog, table, index).ok()?;
        Some(Key {
            point,
            index,
            parts,
        })
    }

    fn set_list(&self, scope: &Scope<'_>, list: &[ast::Assignment]) -> Option<SetList> {
        let table = scope.table;
        let mut reads = Vec::new();
        if !table.checks.is_empty() {
            reads = table.columns.iter().map(|c| c.id).collect();
        }
        let mut set: Vec<(usize, Scalar)> = Vec::with_capacity(list.len());
        for assignment in list {
            let ast::AssignmentTarget::ColumnName(name) = &assignment.target else {
                return None;
            };
            let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else {
                return None;
            };
            let position = scope.position(name)?;
            let column = &table.columns[position];
            let always = column.identity.as_ref().is_some_and(|i| i.always);
            if always || set.iter().any(|(known, _)| *known == position) {
                return None;
            }
            let scalar = self.scalar(scope, &assignment.value, &mut reads)?;
            if !suits(&scalar, column.sql_type) {
                return None;
            }
            set.push((position, scalar));
        }
        Some(SetList { reads, set })
    }

    fn scalar(&self, scope: &Scope<'_>, expr: &Expr, reads: &mut Vec<ColumnId>) -> Option<Scalar> {
        if let Expr::Nested(inner) = expr {
            return self.scalar(scope, inner, reads);
        }
        if let Some(constant) = self.constant(expr) {
            return Some(Scalar::Constant(constant));
        }
        if let Expr::BinaryOp { left, op, right } = expr {
            let operation = match op {
                BinaryOperator::Plus => Arithmetic::Add,
                BinaryOperator::Minus => Arithmetic::Subtract,
                BinaryOperator::Multiply => Arithmetic::Multiply,
                _ => return None,
            };
            let left = Box::new(self.scalar(scope, left, reads)?);
            let right = Box::new(self.scalar(scope, right, reads)?);
            // What constants alone make is computed while planning, and may fail there.
            let all_constant = matches!(
                (&*left, &*right),
                (Scalar::Constant(_), Scalar::Constant(_))
            );
            let are_numbers = is_number(&left) && is_number(&right) && !all_constant;
            return are_numbers.then_some(Scalar::Arithmetic(operation, left, right));
        }
        match scope.named(expr)? {
            Named::Column(position) => {
                let column = &scope.table.columns[position];
                let place = reads.iter().position(|id| *id == column.id);
                let place = place.unwrap_or_else(|| {
                    reads.push(column.id);
                    reads.len() - 1
                });
                Some(Scalar::Column(place, column.sql_type))
            }
            Named::Excluded(position) => {
                let sql_type = scope.table.columns[position].sql_type;
                Some(Scalar::Excluded(position, sql_type))
            }
        }
    }

    /// An expression that no row decides.
    fn constant(&self, expr: &Expr) -> Option<Source> {
        match expr {
            Expr::Nested(inner) => self.constant(inner),
            Expr::Value(value) => match &value.value {
                Literal::Placeholder(name) => {
                    let index = params::number(name).ok()? - 1;
                    let known = self.types.get(index).copied().flatten();
                    Some(Source::Parameter(index, known, false))
                }
                other => literal(other).map(Source::Literal),
            },
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr,
            } => match self.constant(expr)? {
                Source::Parameter(index, known, negated) => {
                    (!negated).then_some(Source::Parameter(index, known, true))
                }
                Source::Literal(value) => negated(&value).map(Source::Literal),
                Source::Now | Source::Identity => None,
            },
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr,
                data_type,
                array: false,
                format: None,
            } => {
                let to = types::from_ast(data_type).ok()??;
                let has_modifier = matches!(
                    to,
                    SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Numeric { .. }
                );
                match self.constant(expr)? {
                    // A parameter that is of the type already.
                    same @ Source::Parameter(_, Some(known), false) if known == to => {
                        (!has_modifier).then_some(same)
                    }
                    _ => None,
                }
            }
            Expr::Function(function) => is_now(function).then_some(Source::Now),
            _ => None,
        }
    }

    fn insert(&self, insert: &ast::Insert) -> Option<PointStatement> {
        let ast::TableObject::TableName(name) = &insert.table else {
            return None;
        };
        let is_plain = insert.into
            && insert.optimizer_hints.is_empty()
            && insert.or.is_none()
            && !insert.ignore
            && !insert.overwrite
            && insert.assignments.is_empty()
            && insert.partitioned.is_none()
            && insert.after_columns.is_empty()
            && !insert.has_table_keyword
            && insert.returning.is_none()
            && insert.output.is_none()
            && !insert.replace_into
            && insert.priority.is_none()
            && insert.insert_alias.is_none()
            && insert.settings.is_none()
            && insert.format_clause.is_none()
            && insert.multi_table_insert_type.is_none()
            && insert.multi_table_into_clauses.is_empty();
        let table = self.table(name).filter(|_| is_plain)?;
        let alias = insert.table_alias.as_ref().map(|a| names::fold(&a.alias));
        let scope = Scope {
            table,
            alias: alias.unwrap_or_else(|| table.name.clone()),
            proposes: true,
        };
        let given = dml::plain_values(insert.source.as_deref()?)?;
        if table.columns.is_empty() || given.is_empty() || given.len() > MAX_ROWS {
            return None;
        }
        let columns = match insert.columns.as_slice() {
            [] => (0..given[0].content.len().min(table.columns.len())).collect(),
            listed => positions(&scope, listed)?,
        };
        let rows = given
            .iter()
            .map(|row| self.row(table, &columns, &row.content))
            .collect::<Option<Vec<_>>>()?;
        let conflict = match &insert.on {
            None => None,
            Some(_) if rows.len() > 1 => return None,
            Some(on) => Some(self.conflict(&scope, on)?),
        };
        Some(of(&scope, Operation::Insert(Insert { rows, conflict })))
    }

    /// The values of all columns of a row whose `columns` are given as `cells`.
    fn row(&self, table: &TableDef, columns: &[usize], cells: &[Expr]) -> Option<Vec<Source>> {
        if cells.len() != columns.len() {
            return None;
        }
        let mut row: Vec<Option<Source>> = vec![None; table.columns.len()];
        for (position, cell) in columns.iter().zip(cells) {
            let always = |i: &strandline_engine::catalog::IdentityDef| i.always;
            if table.columns[*position]
                .identity
                .as_ref()
                .is_some_and(always)
            {
                return None;
            }
            row[*position] = Some(self.constant(cell)?);
        }
        for (source, column) in row.iter_mut().zip(&table.columns) {
            if source.is_some() {
                continue;
            }
            *source = Some(match (&column.identity, &column.default) {
                (Some(_), _) => Source::Identity,
                (None, None) => Source::Literal(ScalarValue::Null),
                // A DEFAULT has no parameters.
                (None, Some(default)) => self.constant(&parse::expression(default).ok()?)?,
            });
        }
        row.into_iter().collect()
    }

    fn conflict(&self, scope: &Scope<'_>, on: &ast::OnInsert) -> Option<Conflict> {
        let ast::OnInsert::OnConflict(on) = on else {
            return None;
        };
        let table = scope.table;
        if scope.alias == EXCLUDED {
            return None;
        }
        let index = match &on.conflict_target {
            None => (table.keys.len() == 1).then_some(0)?,
            Some(ast::ConflictTarget::Columns(named)) => {
                let mut ids = Vec::with_capacity(named.len());
                for name in named {
                    ids.push(table.columns[scope.position(name)?].id);
                }
                let mut fitting = (0..table.keys.len()).filter(|k| {
                    let key = &table.keys[*k].columns;
                    key.len() == ids.len() && key.iter().all(|id| ids.contains(id))
                });
                let index = fitting.next()?;
                fitting.next().is_none().then_some(index)?
            }
            Some(ast::ConflictTarget::OnConstraint(_)) => return None,
        };
        let update = match &on.action {
            ast::OnConflictAction::DoNothing => None,
            ast::OnConflictAction::DoUpdate(_) if on.conflict_target.is_none() => return None,
            ast::OnConflictAction::DoUpdate(update) if update.selection.is_none() => {
                Some(self.set_list(scope, &update.assignments)?)
            }
            ast::OnConflictAction::DoUpdate(_) => return None,
        };
        let mut key = Vec::new();
        for id in &table.keys[index].columns {
            let position = table.position(*id)?;
            if !is_key_type(table.columns[position].sql_type) {
                return None;
            }
            key.push(position);
        }
        Some(Conflict {
            point: PointTable::new(self.db, self.catalog, table, index).ok()?,
            index,
            key,
            update,
        })
    }
}

/// The value of an argument of EXECUTE, which may be one of the `outer` parameters, as the type
/// that PREPARE declares; None: it is to be computed.
pub(crate) fn argument(
    expr: &Expr,
    outer: &[ScalarValue],
    declared: Option<&ast::DataType>,
) -> Option<ScalarValue> {
    let value = match expr {
        Expr::Value(value) => match &value.value {
            Literal::Placeholder(name) => outer.get(params::number(name).ok()? - 1)?.clone(),
            other => literal(other)?,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match expr.as_ref() {
            Expr::Value(value) => negated(&literal(&value.value)?)?,
            _ => return None,
        },
        _ => return None,
    };
    let Some(declared) = declared else {
        return Some(value);
    };
    // Without a type it is numeric of any shape.
    let Some(to) = types::from_ast(declared).ok()? else {
        return Some(value);
    };
    as_declared(value, to)
}

/// A literal as the declared type, if that is sure to be what a cast gives.
fn as_declared(value: ScalarValue, to: SqlType) -> Option<ScalarValue> {
    use ScalarValue as S;
    let number = super::value::integer(&value);
    Some(match (to, number) {
        (SqlType::SmallInt, Some(v)) => S::Int16(Some(i16::try_from(v).ok()?)),
        (SqlType::Integer, Some(v)) => S::Int32(Some(i32::try_from(v).ok()?)),
        (SqlType::BigInt, Some(v)) => S::Int64(Some(v)),
        (SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Numeric { .. }, _) => return None,
        _ => value,
    })
}

fn of(scope: &Scope<'_>, operation: Operation) -> PointStatement {
    PointStatement {
        table: scope.table.clone(),
        operation,
    }
}

/// The positions of an INSERT's column list.
fn positions(scope: &Scope<'_>, listed: &[ast::ObjectName]) -> Option<Vec<usize>> {
    let mut positions = Vec::with_capacity(listed.len());
    for name in listed {
        let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else {
            return None;
        };
        let position = scope.position(name)?;
        if positions.contains(&position) {
            return None;
        }
        positions.push(position);
    }
    Some(positions)
}

fn is_number(scalar: &Scalar) -> bool {
    let number = |t: SqlType| {
        matches!(
            t,
            SqlType::SmallInt
                | SqlType::Integer
                | SqlType::BigInt
                | SqlType::Double
                | SqlType::Numeric { .. }
        )
    };
    match scalar {
        Scalar::Constant(Source::Parameter(_, known, _)) => known.is_none_or(number),
        Scalar::Constant(Source::Literal(value)) => !value.data_type().is_string(),
        Scalar::Constant(Source::Now | Source::Identity) => false,
        Scalar::Column(_, t) | Scalar::Excluded(_, t) => number(*t),
        Scalar::Arithmetic(..) => true,
    }
}

/// Whether a column of type `t` can take the value without a cast that is not made here.
fn suits(scalar: &Scalar, t: SqlType) -> bool {
    match scalar {
        Scalar::Column(_, from) | Scalar::Excluded(_, from) => *from == t,
        Scalar::Constant(_) => true,
        Scalar::Arithmetic(..) => matches!(
            t,
            SqlType::SmallInt
                | SqlType::Integer
                | SqlType::BigInt
                | SqlType::Double
                | SqlType::Numeric { .. }
        ),
    }
}

fn literal(value: &Literal) -> Option<ScalarValue> {
    match value {
        Literal::Null => Some(ScalarValue::Null),
        Literal::Boolean(v) => Some(ScalarValue::Boolean(Some(*v))),
        Literal::SingleQuotedString(text) => Some(ScalarValue::Utf8(Some(text.clone()))),
        Literal::Number(digits, false) => number(digits),
        _ => None,
    }
}

/// A number literal: digits, perhaps with a point.
pub(super) fn number(digits: &str) -> Option<ScalarValue> {
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        if let Ok(v) = digits.parse::<i32>() {
            return Some(ScalarValue::Int32(Some(v)));
        }
        return digits.parse().ok().map(|v| ScalarValue::Int64(Some(v)));
    }
    let (whole, fraction) = digits.split_once('.')?;
    let figures = format!("{whole}{fraction}");
    let is_plain = figures.bytes().all(|b| b.is_ascii_digit()) && (1..=37).contains(&figures.len());
    let scale = i8::try_from(fraction.len()).ok().filter(|_| is_plain)?;
    Some(ScalarValue::Decimal128(figures.parse().ok(), 38, scale))
}

fn negated(value: &ScalarValue) -> Option<ScalarValue> {
    match value {
        ScalarValue::Int32(Some(v)) => Some(ScalarValue::Int32(Some(-v))),
        ScalarValue::Int64(Some(v)) => Some(ScalarValue::Int64(Some(-v))),
        ScalarValue::Decimal128(Some(v), p, s) => Some(ScalarValue::Decimal128(Some(-v), *p, *s)),
        _ => None,
    }
}

/// Whether a call is of `now()` or one of its other names.
fn is_now(function: &ast::Function) -> bool {
    let no_arguments = match &function.args {
        ast::FunctionArguments::None => true,
        ast::FunctionArguments::List(list) => {
            list.args.is_empty() && list.clauses.is_empty() && list.duplicate_treatment.is_none()
        }
        ast::FunctionArguments::Subquery(_) => false,
    };
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
        return false;
    };
    let plain = function.over.is_none()
        && function.filter.is_none()
        && function.null_treatment.is_none()
        && function.within_group.is_empty();
    let name = names::fold(name);
    no_arguments && plain && matches!(name.as_str(), "now" | "current_timestamp")
}
