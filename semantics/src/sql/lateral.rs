//! Items of FROM that begin with a subquery over earlier items and join further tables:
//!
//! ```text
//! a, LATERAL (SELECT f(a.x)) s JOIN b ON c      a CROSS JOIN LATERAL (SELECT f(a.x)) s JOIN b ON c
//! ```
//!
//! DataFusion joins a LATERAL subquery with the tables on its left, which must therefore be in the
//! same item. Inner and left joins give the same rows in either order.

use datafusion::sql::sqlparser::ast::{
    Join, JoinConstraint, JoinOperator, Select, TableFactor, TableWithJoins,
};

/// Merges such items of FROM and all items before them into one.
pub(super) fn join_items(select: &mut Select) {
    let Some(last) = select.from.iter().rposition(is_lateral_join) else {
        return;
    };
    let behind = select.from.split_off(last + 1);
    let mut items = std::mem::take(&mut select.from).into_iter();
    if let Some(mut joined) = items.next() {
        for item in items {
            append(&mut joined, item);
        }
        select.from.push(joined);
    }
    select.from.extend(behind);
}

fn is_lateral_join(item: &TableWithJoins) -> bool {
    use JoinOperator as J;
    let keeps_order = |join: &Join| {
        matches!(
            join.join_operator,
            J::Join(_) | J::Inner(_) | J::Left(_) | J::LeftOuter(_) | J::CrossJoin(_)
        )
    };
    is_lateral(&item.relation) && !item.joins.is_empty() && item.joins.iter().all(keeps_order)
}

fn is_lateral(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Derived { lateral: true, .. })
}

/// `joined CROSS JOIN item`
fn append(joined: &mut TableWithJoins, item: TableWithJoins) {
    let cross = |relation| Join {
        relation,
        global: false,
        join_operator: JoinOperator::CrossJoin(JoinConstraint::None),
    };
    if is_lateral_join(&item) || item.joins.is_empty() {
        joined.joins.push(cross(item.relation));
        joined.joins.extend(item.joins);
        return;
    }
    joined.joins.push(cross(TableFactor::NestedJoin {
        table_with_joins: Box::new(item),
        alias: None,
    }));
}
