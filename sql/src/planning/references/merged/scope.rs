//! The columns of a FROM list in PostgreSQL's order, and the replacement of merged columns' bare
//! names by their expressions. It reaches into subqueries unless a nearer column has the name.

use super::{Question, RelationColumn, Stop, Withs, merges, relation_name};
use crate::parse;
use crate::parse::names::{self, fold};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Distinct, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, OrderBy,
    OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor,
    TableWithJoins, Value, VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_semantics::sql::column_name;
use strandline_semantics::sql::walk::walk_mut;
use strandline_semantics::types;

/// One pass over a query, innermost queries first.
pub(super) struct Walk<'a> {
    answers: &'a [Vec<RelationColumn>],
    asked: usize,
    unnamed: usize,
    /// The relations of the present SELECT and their columns.
    relations: Vec<(Ident, Vec<String>)>,
    withs: Withs,
}

/// A column of a FROM list.
struct Column {
    name: String,
    expr: Expr,
    sql_type: Option<SqlType>,
    merged: bool,
}

/// The expressions of merged columns by bare name; `None`: several columns have the name.
type Merged = HashMap<String, Option<Expr>>;

type Step<T> = std::result::Result<T, Stop>;

impl<'a> Walk<'a> {
    pub fn new(answers: &'a [Vec<RelationColumn>]) -> Self {
        Self {
            answers,
            asked: 0,
            unnamed: 0,
            relations: Vec::new(),
            withs: Withs::default(),
        }
    }

    /// The columns of `from`.
    fn columns_of(&mut self, from: &[TableWithJoins]) -> Step<Vec<RelationColumn>> {
        let answer = self.answers.get(self.asked);
        self.asked += 1;
        answer.cloned().ok_or_else(|| {
            Stop::Question(Box::new(Question {
                with: self.withs.in_force(),
                from: from.to_vec(),
            }))
        })
    }

    fn body(&mut self, body: &mut SetExpr, order_by: Option<&mut OrderBy>) -> Step<()> {
        match body {
            SetExpr::Select(select) => self.select(select, order_by),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left, None)?;
                self.body(right, None)
            }
            _ => Ok(()),
        }
    }

    fn select(&mut self, select: &mut Select, order_by: Option<&mut OrderBy>) -> Step<()> {
        if !merges(&select.from) {
            return Ok(());
        }
        let mut columns = Vec::new();
        self.relations.clear();
        for from in &mut select.from {
            columns.extend(self.tree(from)?);
        }
        let merged = merged(&columns);
        expand_wildcards(&mut select.projection, &columns, &self.relations);
        let outputs = output_names(&select.projection);
        for item in &mut select.projection {
            self.replace_item(item, &merged)?;
        }
        self.replace(&mut select.selection, &merged)?;
        self.replace(&mut select.group_by, &merged)?;
        self.replace(&mut select.having, &merged)?;
        self.replace(&mut select.named_window, &merged)?;
        if let Some(Distinct::On(exprs)) = &mut select.distinct {
            for expr in exprs.iter_mut().filter(|e| !is_output(e, &outputs)) {
                self.replace(expr, &merged)?;
            }
        }
        if let Some(OrderByKind::Expressions(items)) = order_by.map(|o| &mut o.kind) {
            for item in items.iter_mut().filter(|i| !is_output(&i.expr, &outputs)) {
                self.replace(&mut item.expr, &merged)?;
            }
        }
        Ok(())
    }

    /// Replaces an item of the SELECT list, which keeps the name of its column.
    fn replace_item(&mut self, item: &mut SelectItem, merged: &Merged) -> Step<()> {
        let SelectItem::UnnamedExpr(expr) = item else {
            return self.replace(item, merged);
        };
        let before = expr.clone();
        self.replace(expr, merged)?;
        if *expr != before {
            *item = SelectItem::ExprWithAlias {
                alias: names::ident(&column_name(&before)),
                expr: expr.clone(),
            };
        }
        Ok(())
    }

    fn replace(&mut self, node: &mut impl VisitMut, merged: &Merged) -> Step<()> {
        let mut replacer = Replacer {
            walk: self,
            merged,
            frames: Vec::new(),
        };
        match walk_mut(node, &mut replacer) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(stop) => Err(stop),
        }
    }

    fn tree(&mut self, from: &mut TableWithJoins) -> Step<Vec<Column>> {
        let mut columns = self.relation(&mut from.relation)?;
        for join in &mut from.joins {
            let right = self.relation(&mut join.relation)?;
            columns = self.join(columns, right, &mut join.join_operator)?;
        }
        Ok(columns)
    }

    fn relation(&mut self, factor: &mut TableFactor) -> Step<Vec<Column>> {
        if let TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } = factor
        {
            return self.tree(table_with_joins);
        }
        self.unnamed += 1;
        let Some(relation) = relation_name(factor, &format!("?{}", self.unnamed)) else {
            return Err(Stop::Error(Error::unsupported(
                "USING and NATURAL beside this kind of table are not supported",
            )));
        };
        let found = self.columns_of(&[TableWithJoins {
            relation: factor.clone(),
            joins: Vec::new(),
        }])?;
        let names = found.iter().map(|column| column.name.clone());
        self.relations.push((relation.clone(), names.collect()));
        let columns = found.into_iter().map(|column| Column {
            expr: column_of(&relation, &column.name),
            name: column.name,
            sql_type: column.sql_type,
            merged: false,
        });
        Ok(columns.collect())
    }

    fn join(
        &mut self,
        left: Vec<Column>,
        right: Vec<Column>,
        operator: &mut JoinOperator,
    ) -> Step<Vec<Column>> {
        use JoinOperator as J;
        let (constraint, kept) = match operator {
            J::Join(c) | J::Inner(c) => (c, Kept::Either),
            J::Left(c) | J::LeftOuter(c) => (c, Kept::Left),
            J::Right(c) | J::RightOuter(c) => (c, Kept::Right),
            J::FullOuter(c) => (c, Kept::Both),
            // A join without a condition, or one that is refused by name.
            _ => return Ok(left.into_iter().chain(right).collect()),
        };
        let named = match constraint {
            JoinConstraint::On(condition) => {
                let all: Vec<Column> = left.into_iter().chain(right).collect();
                self.replace(condition, &merged(&all))?;
                return Ok(all);
            }
            JoinConstraint::None => return Ok(left.into_iter().chain(right).collect()),
            JoinConstraint::Using(named) => named
                .iter()
                .map(names::single)
                .collect::<Result<Vec<_>>>()?,
            JoinConstraint::Natural => common(&left, &right),
        };
        let mut sides = (left, right);
        let mut columns = Vec::new();
        let mut condition = None;
        for name in named {
            let left = take(&mut sides.0, &name, "left")?;
            let right = take(&mut sides.1, &name, "right")?;
            let equal = binary(left.expr.clone(), BinaryOperator::Eq, right.expr.clone());
            condition = Some(match condition {
                Some(before) => binary(before, BinaryOperator::And, equal),
                None => equal,
            });
            columns.push(merge(left, right, kept)?);
        }
        *constraint = JoinConstraint::On(
            condition.unwrap_or_else(|| Expr::Value(Value::Boolean(true).into())),
        );
        columns.extend(sides.0);
        columns.extend(sides.1);
        Ok(columns)
    }
}

impl VisitorMut for Walk<'_> {
    type Break = Stop;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Stop> {
        self.withs.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Stop> {
        if let Err(stop) = self.body(&mut query.body, query.order_by.as_mut()) {
            return ControlFlow::Break(stop);
        }
        self.withs.leave(query);
        ControlFlow::Continue(())
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

/// The values of a merged column.
#[derive(Clone, Copy)]
enum Kept {
    /// the values of either side, which are equal
    Either,
    Left,
    Right,
    /// the left value, or the right value if the left one is NULL
    Both,
}

/// Merges two columns of one name.
fn merge(left: Column, right: Column, kept: Kept) -> Result<Column> {
    let generality = match (left.sql_type, right.sql_type) {
        (Some(left), Some(right)) => types::compare_generality(left, right),
        _ => None,
    };
    let common = match generality {
        Some(Ordering::Less) => right.sql_type,
        _ => left.sql_type,
    };
    let (left_has_it, right_has_it) = (
        generality != Some(Ordering::Less),
        generality != Some(Ordering::Greater),
    );
    let cast = |expr: Expr, has_it: bool| match (has_it, common) {
        (false, Some(SqlType::Numeric { .. })) => {
            parse::expression(&format!("CAST({expr} AS numeric)"))
        }
        (false, Some(common)) => parse::expression(&format!("CAST({expr} AS {common})")),
        _ => Ok(expr),
    };
    let expr = match kept {
        Kept::Either if !left_has_it => right.expr,
        Kept::Either => left.expr,
        Kept::Left => cast(left.expr, left_has_it)?,
        Kept::Right => cast(right.expr, right_has_it)?,
        Kept::Both => {
            let left_expr = cast(left.expr, left_has_it)?;
            let right_expr = cast(right.expr, right_has_it)?;
            parse::expression(&format!("coalesce({left_expr}, {right_expr})"))?
        }
    };
    Ok(Column {
        name: left.name,
        expr,
        sql_type: common,
        merged: true,
    })
}

/// Removes the only column `name` from one side of a join.
fn take(columns: &mut Vec<Column>, name: &str, side: &str) -> Result<Column> {
    let mut places = (0..columns.len()).filter(|i| columns[*i].name == name);
    match (places.next(), places.next()) {
        (Some(place), None) => Ok(columns.remove(place)),
        (None, _) => Err(Error::invalid(
            SqlState::UNDEFINED_COLUMN,
            format!("column \"{name}\" specified in USING clause does not exist in {side} table"),
        )),
        (Some(_), Some(_)) => Err(Error::invalid(
            SqlState::AMBIGUOUS_COLUMN,
            format!("common column name \"{name}\" appears more than once in {side} table"),
        )),
    }
}

/// The column names that both sides have, in the order of the left side.
fn common(left: &[Column], right: &[Column]) -> Vec<String> {
    let mut seen = HashSet::new();
    let both = left
        .iter()
        .filter(|l| right.iter().any(|r| r.name == l.name) && seen.insert(&l.name));
    both.map(|column| column.name.clone()).collect()
}

fn merged(columns: &[Column]) -> Merged {
    let mut merged = Merged::new();
    for column in columns.iter().filter(|c| c.merged) {
        let times = columns.iter().filter(|c| c.name == column.name).count();
        merged.insert(
            column.name.clone(),
            (times == 1).then(|| column.expr.clone()),
        );
    }
    merged
}

fn column_of(relation: &Ident, name: &str) -> Expr {
    Expr::CompoundIdentifier(vec![relation.clone(), names::ident(name)])
}

/// Expands `*` and `t.*` to lists of columns. Beside a wildcard, a merged column's name would be
/// ambiguous.
fn expand_wildcards(
    items: &mut Vec<SelectItem>,
    columns: &[Column],
    relations: &[(Ident, Vec<String>)],
) {
    let all = columns.iter().map(|column| match column.merged {
        true => SelectItem::ExprWithAlias {
            expr: column.expr.clone(),
            alias: names::ident(&column.name),
        },
        false => SelectItem::UnnamedExpr(column.expr.clone()),
    });
    let all: Vec<SelectItem> = all.collect();
    let expanded = |item: &SelectItem| match item {
        SelectItem::Wildcard(options) if is_plain(options) => Some(all.clone()),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), options)
            if is_plain(options) =>
        {
            let wanted = names::single(of).ok()?;
            let (relation, names) = relations.iter().find(|(name, _)| fold(name) == wanted)?;
            let columns = names.iter().map(|name| column_of(relation, name));
            Some(columns.map(SelectItem::UnnamedExpr).collect())
        }
        _ => None,
    };
    *items = std::mem::take(items)
        .into_iter()
        .flat_map(|item| expanded(&item).unwrap_or_else(|| vec![item]))
        .collect();
}

fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    let plain = WildcardAdditionalOptions {
        wildcard_token: options.wildcard_token.clone(),
        ..Default::default()
    };
    *options == plain
}

fn output_names(items: &[SelectItem]) -> HashSet<String> {
    let names = items.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr) => Some(column_name(expr)),
        SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
        _ => None,
    });
    names.collect()
}

/// Whether an expression of ORDER BY or DISTINCT ON is the name of a result column.
fn is_output(expr: &Expr, outputs: &HashSet<String>) -> bool {
    matches!(expr, Expr::Identifier(ident) if outputs.contains(&fold(ident)))
}

/// Replaces bare names of merged columns in one expression.
struct Replacer<'a, 'w> {
    walk: &'a mut Walk<'w>,
    merged: &'a Merged,
    frames: Vec<Frame>,
}

/// A subquery around the visitor, or a SELECT of its set operation.
#[derive(Default)]
struct Frame {
    /// The subquery's own columns.
    columns: HashSet<String>,
    /// The names of the subquery's own relations.
    relations: HashSet<String>,
    /// Whether its SELECT is not visited yet; the frame is for that SELECT.
    expects_select: bool,
    /// ORDER BY items that name columns of its result, hidden from the visitor.
    order_by: Vec<(usize, Expr)>,
}

impl Replacer<'_, '_> {
    fn frame(&mut self, select: &Select) -> Step<Frame> {
        let mut frame = Frame::default();
        let mut named = Mentions {
            merged: self.merged,
        };
        if select.from.is_empty() || walk_mut(&mut select.clone(), &mut named).is_continue() {
            return Ok(frame);
        }
        let found = self.walk.columns_of(&select.from)?;
        frame.columns.extend(found.into_iter().map(|c| c.name));
        let mut from = select.from.clone();
        let mut relations = Relations(&mut frame.relations);
        let _ = walk_mut(&mut from, &mut relations);
        Ok(frame)
    }

    fn replaced(&self, ident: &Ident) -> Result<Option<Expr>> {
        let name = fold(ident);
        let Some(found) = self.merged.get(&name) else {
            return Ok(None);
        };
        if self.frames.iter().any(|f| f.columns.contains(&name)) {
            return Ok(None);
        }
        let Some(expr) = found else {
            let message = format!("column reference \"{name}\" is ambiguous");
            return Err(Error::invalid(SqlState::AMBIGUOUS_COLUMN, message));
        };
        let mut expr = expr.clone();
        let mut captured = Captured {
            frames: &self.frames,
        };
        match walk_mut(&mut expr, &mut captured) {
            ControlFlow::Continue(()) => Ok(Some(expr)),
            ControlFlow::Break(relation) => Err(Error::unsupported(format!(
                "column \"{name}\", merged by a join outside of the subquery, is hidden by the \
                 subquery's \"{relation}\""
            ))
            .with_hint("Give the subquery's table another alias.")),
        }
    }
}

impl VisitorMut for Replacer<'_, '_> {
    type Break = Stop;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Stop> {
        self.walk.withs.enter(query);
        let mut frame = Frame::default();
        if let SetExpr::Select(select) = query.body.as_ref() {
            frame = match self.frame(select) {
                Ok(frame) => frame,
                Err(stop) => return ControlFlow::Break(stop),
            };
            frame.expects_select = true;
            let outputs = output_names(&select.projection);
            if let Some(OrderByKind::Expressions(items)) =
                query.order_by.as_mut().map(|o| &mut o.kind)
            {
                let items = items.iter_mut().enumerate();
                for (i, item) in items.filter(|(_, item)| is_output(&item.expr, &outputs)) {
                    let nothing = Expr::Value(Value::Null.into());
                    let expr = std::mem::replace(&mut item.expr, nothing);
                    frame.order_by.push((i, expr));
                }
            }
        }
        self.frames.push(frame);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Stop> {
        self.walk.withs.leave(query);
        let frame = self.frames.pop().unwrap_or_default();
        if let Some(OrderByKind::Expressions(items)) = query.order_by.as_mut().map(|o| &mut o.kind)
        {
            for (i, expr) in frame.order_by {
                items[i].expr = expr;
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Stop> {
        if let Some(query) = self.frames.last_mut().filter(|f| f.expects_select) {
            query.expects_select = false;
            self.frames.push(Frame::default());
            return ControlFlow::Continue(());
        }
        match self.frame(select) {
            Ok(frame) => self.frames.push(frame),
            Err(stop) => return ControlFlow::Break(stop),
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<Stop> {
        self.frames.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Stop> {
        let Expr::Identifier(ident) = expr else {
            return ControlFlow::Continue(());
        };
        match self.replaced(ident) {
            Ok(Some(replaced)) => *expr = replaced,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(Stop::Error(error)),
        }
        ControlFlow::Continue(())
    }
}

/// Breaks at the bare name of a merged column.
struct Mentions<'a> {
    merged: &'a Merged,
}

impl VisitorMut for Mentions<'_> {
    type Break = ();
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(ident) if self.merged.contains_key(&fold(ident)) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Collects the names of relations.
struct Relations<'a>(&'a mut HashSet<String>);

impl VisitorMut for Relations<'_> {
    type Break = ();
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let Some(name) = relation_name(factor, "?") {
            self.0.insert(fold(&name));
        }
        ControlFlow::Continue(())
    }
    fn pre_visit_relation(&mut self, _: &mut ObjectName) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Breaks at a qualifier that is also a relation of a subquery.
struct Captured<'a> {
    frames: &'a [Frame],
}

impl VisitorMut for Captured<'_> {
    type Break = String;
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<String> {
        if let Expr::CompoundIdentifier(parts) = expr
            && let [relation, _] = parts.as_slice()
        {
            let name = fold(relation);
            if self.frames.iter().any(|f| f.relations.contains(&name)) {
                return ControlFlow::Break(name);
            }
        }
        ControlFlow::Continue(())
    }
}
