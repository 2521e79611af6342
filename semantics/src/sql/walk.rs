//! Walks over parsed SQL.
//!
//! The parser's `visit` is generic over its visitor, and each visitor type compiles the walk over
//! the whole syntax tree again: about 350 KB of machine code. The functions here hide the visitor
//! behind a trait object, so that the walk is compiled once per type of `Break`. Call these
//! functions, not `visit` (clippy's `disallowed-methods` enforces it).

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};
use std::ops::ControlFlow;

/// Visits every part of `node`, outer parts first, until `visitor` breaks.
#[expect(clippy::disallowed_methods, reason = "the one call")]
pub fn walk<B>(node: &impl Visit, visitor: &mut dyn Visitor<Break = B>) -> ControlFlow<B> {
    node.visit(&mut Erased(visitor))
}

/// [`walk`] with a visitor that may change the parts.
#[expect(clippy::disallowed_methods, reason = "the one call")]
pub fn walk_mut<B>(
    node: &mut impl VisitMut,
    visitor: &mut dyn VisitorMut<Break = B>,
) -> ControlFlow<B> {
    node.visit(&mut ErasedMut(visitor))
}

/// Whether `holds` is true of an expression in `node`, including subqueries.
pub fn any_expression(node: &impl Visit, holds: impl FnMut(&Expr) -> bool) -> bool {
    struct Any<F>(F);

    impl<F: FnMut(&Expr) -> bool> Visitor for Any<F> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match (self.0)(expr) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }

    walk(node, &mut Any(holds)).is_break()
}

/// A visitor behind a trait object.
struct Erased<'a, B>(&'a mut (dyn Visitor<Break = B> + 'a));

/// A visitor behind a trait object that may change the visited parts.
struct ErasedMut<'a, B>(&'a mut (dyn VisitorMut<Break = B> + 'a));

/// Methods that pass `$node` on to the visitor behind the trait object.
macro_rules! hand_on {
    ($($method:ident($node:ty)),* $(,)?) => {
        $(fn $method(&mut self, node: $node) -> ControlFlow<B> {
            self.0.$method(node)
        })*
    };
}

impl<B> Visitor for Erased<'_, B> {
    type Break = B;

    hand_on! {
        pre_visit_query(&Query), post_visit_query(&Query),
        pre_visit_select(&Select), post_visit_select(&Select),
        pre_visit_relation(&ObjectName), post_visit_relation(&ObjectName),
        pre_visit_table_factor(&TableFactor), post_visit_table_factor(&TableFactor),
        pre_visit_expr(&Expr), post_visit_expr(&Expr),
        pre_visit_statement(&Statement), post_visit_statement(&Statement),
        pre_visit_value(&ValueWithSpan), post_visit_value(&ValueWithSpan),
    }
}

impl<B> VisitorMut for ErasedMut<'_, B> {
    type Break = B;

    hand_on! {
        pre_visit_query(&mut Query), post_visit_query(&mut Query),
        pre_visit_select(&mut Select), post_visit_select(&mut Select),
        pre_visit_relation(&mut ObjectName), post_visit_relation(&mut ObjectName),
        pre_visit_table_factor(&mut TableFactor), post_visit_table_factor(&mut TableFactor),
        pre_visit_expr(&mut Expr), post_visit_expr(&mut Expr),
        pre_visit_statement(&mut Statement), post_visit_statement(&mut Statement),
        pre_visit_value(&mut ValueWithSpan), post_visit_value(&mut ValueWithSpan),
    }
}
