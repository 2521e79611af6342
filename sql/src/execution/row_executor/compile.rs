//! From a syntax tree to a compiled statement. `None` everywhere: the statement takes the full
//! path, also where it is wrong.

use super::aggregates::call_of;
use super::arithmetic::Arithmetic;
use super::column_defaults::{default_of, is_default};
use super::conditions::{Condition, Conditions};
use super::program::{
    Find, Key, Operation, Projection, RowStatement, Scalar, Select, SetList, Update,
};
use super::projection::Reads;
use super::scope::{Compiler, Named, Scope};
use super::search::{Slice, order_of, place};
use super::source::Source;
use crate::execution::dml;
use crate::planning::locking::Lock;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, SelectItem, SetExpr, Statement as Parsed,
};
use std::borrow::Cow;
use strandline_base::{ColumnId, SqlType};
use strandline_engine::PointTable;
use strandline_engine::catalog::index::ReferentialAction;

impl Compiler<'_> {
    /// Compiles a statement.
    pub fn compile(&self, statement: &Parsed) -> Option<RowStatement> {
        let mut compiled = match statement {
            Parsed::Query(query) => self.select(query),
            Parsed::Update(update) => self.update(update),
            Parsed::Delete(delete) => self.delete(delete),
            Parsed::Insert(insert) => self.insert(insert),
            _ => None,
        }?;
        compiled.subqueries = self.compiled_subqueries()?;
        Some(compiled)
    }

    pub(super) fn select(&self, query: &ast::Query) -> Option<RowStatement> {
        let SetExpr::Select(select) = query.body.as_ref() else {
            return None;
        };
        let items = &select.projection;
        let call = items.first().and_then(call_of);
        let aggregates = call.is_some_and(|call| call.is_of_aggregate()) && query.locks.is_empty();
        if select.selection.is_none() && query.order_by.is_none() && !aggregates {
            return None;
        }
        let mut plain =
            dml::plain_select(items.clone(), select.from.clone(), select.selection.clone());
        plain.order_by.clone_from(&query.order_by);
        plain.limit_clause.clone_from(&query.limit_clause);
        plain.locks.clone_from(&query.locks);
        if *query != plain {
            return None;
        }
        let scope = self.scope(&select.from)?;
        let conditions = self.conditions(&scope, select.selection.as_ref());
        let has_slice = query.order_by.is_some() || query.limit_clause.is_some();
        let operation = match aggregates {
            true if has_slice => return None,
            true => match self.ends(&scope, &conditions, items) {
                Some(ends) => Operation::Ends(ends),
                None => Operation::Aggregates(self.aggregates(&scope, conditions, items)?),
            },
            false => self.rows(&scope, conditions, query, items)?,
        };
        Some(of(&scope, operation, None))
    }

    /// A query of columns, and of expressions over them.
    fn rows(
        &self,
        scope: &Scope<'_>,
        conditions: Conditions,
        query: &ast::Query,
        items: &[SelectItem],
    ) -> Option<Operation> {
        let lock = match query.locks.is_empty() {
            true => None,
            false => Some(Lock::of_table(query, &scope.alias)?),
        };
        // Expressions are planned only for rows that can be found.
        if query.order_by.is_none() && !self.has_path(scope.table, &conditions) {
            return None;
        }
        let columns = self.projection(scope, items, Reads::Named)?;
        if query.order_by.is_none()
            && query.limit_clause.is_none()
            && lock.is_none()
            && let Some(key) = self.key_of(scope, &conditions)
        {
            return Some(Operation::Select(Select { key, columns }));
        }
        let fields = columns.result.schema.fields();
        let names = fields.iter().map(|field| field.name().as_str());
        let output: Vec<_> = columns.sources.iter().copied().zip(names).collect();
        let order = order_of(scope, &output, query.order_by.as_ref())?;
        let slice = self.slice(query.limit_clause.as_ref())?;
        let mut search = self.search(scope, conditions, order, slice, &columns.ids)?;
        if lock.is_some() {
            search.reads_rows();
        }
        Some(Operation::Search(Box::new(search), columns, lock))
    }

    fn update(&self, update: &ast::Update) -> Option<RowStatement> {
        let is_plain = update.optimizer_hints.is_empty()
            && update.from.is_none()
            && update.output.is_none()
            && update.or.is_none()
            && update.order_by.is_empty()
            && update.limit.is_none();
        if !is_plain {
            return None;
        }
        let scope = self.scope(std::slice::from_ref(&update.table))?;
        let conditions = self.conditions(&scope, Some(update.selection.as_ref()?));
        if !self.has_path(scope.table, &conditions) {
            return None;
        }
        let returning = self.returning(&scope, update.returning.as_deref())?;
        let set = self.set_list(&scope, &update.assignments, returning.is_some())?;
        if self.acts_on_others(&scope, Some(&set)) {
            return None;
        }
        let find = self.find_of(&scope, conditions, &set.reads)?;
        let operation = Operation::Update(Update { find, set });
        Some(of(&scope, operation, returning))
    }

    fn delete(&self, delete: &ast::Delete) -> Option<RowStatement> {
        let is_plain = delete.optimizer_hints.is_empty()
            && delete.tables.is_empty()
            && delete.using.is_none()
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
        let conditions = self.conditions(&scope, Some(delete.selection.as_ref()?));
        if !self.has_path(scope.table, &conditions) {
            return None;
        }
        let returning = self.returning(&scope, delete.returning.as_deref())?;
        if self.acts_on_others(&scope, None) {
            return None;
        }
        let mut reads = Vec::new();
        if returning.is_some() {
            reads.extend(scope.table.columns.iter().map(|column| column.id));
        }
        let find = self.find_of(&scope, conditions, &reads)?;
        Some(of(&scope, Operation::Delete(find), returning))
    }

    /// Whether deleting a row, or setting its columns, may run an action of a foreign key: what
    /// that changes passes constraints that only the full path can evaluate.
    pub(super) fn acts_on_others(&self, scope: &Scope<'_>, set: Option<&SetList>) -> bool {
        let acts = |action| {
            use ReferentialAction::{NoAction, Restrict};
            !matches!(action, NoAction | Restrict)
        };
        let sets = |id: &ColumnId, set: &SetList| {
            let mut positions = set.set.iter().map(|(position, _)| *position);
            positions.any(|position| scope.table.columns[position].id == *id)
        };
        let referencing = self.catalog.referencing(scope.table);
        referencing.iter().any(|(_, key)| match set {
            None => acts(key.on_delete),
            Some(set) => acts(key.on_update) && key.parent_columns.iter().any(|id| sets(id, set)),
        })
    }

    /// The rows of which `conditions` hold; `reads` are read of them.
    fn find_of(
        &self,
        scope: &Scope<'_>,
        conditions: Conditions,
        reads: &[ColumnId],
    ) -> Option<Find> {
        if let Some(key) = self.key_of(scope, &conditions) {
            return Some(Find::Key(key));
        }
        let mut search = self.search(scope, conditions, Vec::new(), Slice::default(), reads)?;
        search.reads_rows();
        Some(Find::Search(Box::new(search)))
    }

    /// The key whose columns are tested for equality, as nothing else is.
    fn key_of(&self, scope: &Scope<'_>, conditions: &Conditions) -> Option<Key> {
        let table = scope.table;
        let tests = conditions.only_tests()?;
        let part_of = |id: &ColumnId| {
            let test = tests.iter().find(|test| test.column == *id)?;
            match &test.condition {
                Condition::Equal(source) => Some((test.sql_type, source.clone())),
                _ => None,
            }
        };
        let mut keys = table.keys.iter().enumerate();
        let (index, parts) = keys.find_map(|(index, key)| {
            // A deferrable key may be there twice within a transaction.
            let is_whole = key.columns.len() == tests.len() && !key.is_deferrable();
            let parts = key.columns.iter().filter(|_| is_whole).map(part_of);
            let parts = parts.collect::<Option<Vec<_>>>()?;
            is_whole.then_some((index, parts))
        })?;
        let point = PointTable::new(self.db, self.catalog, table, index).ok()?;
        Some(Key {
            point,
            index,
            parts,
        })
    }

    /// `whole`: the new row is given back.
    pub(super) fn set_list(
        &self,
        scope: &Scope<'_>,
        list: &[ast::Assignment],
        whole: bool,
    ) -> Option<SetList> {
        let table = scope.table;
        let mut reads = Vec::new();
        if whole || !table.checks.is_empty() {
            reads = table.columns.iter().map(|c| c.id).collect();
        }
        let mut set: Vec<(usize, Scalar)> = Vec::with_capacity(list.len());
        let mut computed = Vec::new();
        for (name, value) in assigned(list)? {
            let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else {
                return None;
            };
            let position = scope.position(name)?;
            let column = &table.columns[position];
            let always = column.identity.as_ref().is_some_and(|i| i.always);
            if always || set.iter().any(|(known, _)| *known == position) {
                return None;
            }
            let value = match is_default(value) {
                false => Cow::Borrowed(value),
                true if column.identity.is_some() => return None,
                true => Cow::Owned(default_of(column)?),
            };
            let mut more = reads.clone();
            let scalar = self.scalar(scope, &value, &mut more);
            set.push((
                position,
                match scalar.filter(|scalar| suits(scalar, column.sql_type)) {
                    Some(scalar) => {
                        reads = more;
                        scalar
                    }
                    None => {
                        computed.push((value.into_owned(), position));
                        Scalar::Computed(computed.len() - 1)
                    }
                },
            ));
        }
        let mut place = |position: usize| place(&mut reads, table.columns[position].id);
        let computed = match computed.is_empty() {
            true => None,
            false => Some(self.computed_values(scope, computed, &mut place)?),
        };
        Some(SetList {
            reads,
            set,
            computed,
            condition: None,
        })
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
                Some(Scalar::Column(place(reads, column.id), column.sql_type))
            }
            Named::Excluded(position) => {
                let sql_type = scope.table.columns[position].sql_type;
                Some(Scalar::Excluded(position, sql_type))
            }
        }
    }
}

/// The single assignments of a list: `(a, b) = (e, f)` is two of them.
fn assigned(list: &[ast::Assignment]) -> Option<Vec<(&ast::ObjectName, &Expr)>> {
    let mut single = Vec::with_capacity(list.len());
    for assignment in list {
        match (&assignment.target, &assignment.value) {
            (ast::AssignmentTarget::ColumnName(name), value) => single.push((name, value)),
            (ast::AssignmentTarget::Tuple(names), Expr::Tuple(values))
                if names.len() == values.len() =>
            {
                single.extend(names.iter().zip(values));
            }
            _ => return None,
        }
    }
    Some(single)
}

pub(super) fn of(
    scope: &Scope<'_>,
    operation: Operation,
    returning: Option<Projection>,
) -> RowStatement {
    RowStatement {
        table: scope.table.clone(),
        operation,
        returning,
        subqueries: Vec::new(),
    }
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
        Scalar::Constant(Source::Read(_, t)) => number(*t),
        Scalar::Constant(Source::Literal(value)) => !value.data_type().is_string(),
        Scalar::Constant(Source::Query(_, t)) => number(*t),
        Scalar::Constant(Source::Now | Source::Identity | Source::Computed(_)) => false,
        Scalar::Column(_, t) | Scalar::Excluded(_, t) => number(*t),
        Scalar::Arithmetic(..) => true,
        Scalar::Computed(_) => false,
    }
}

/// Whether a column of type `t` can take the value without a cast that is not made here.
fn suits(scalar: &Scalar, t: SqlType) -> bool {
    match scalar {
        Scalar::Column(_, from) | Scalar::Excluded(_, from) => *from == t,
        Scalar::Constant(_) | Scalar::Computed(_) => true,
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
