//! Nodes of DML plans.

use super::Compiler;
use super::demand::Demand;
use crate::execution::dml;
use crate::execution::short_plans::node::Node;
use crate::execution::short_plans::operators::{Change, Widen};
use datafusion::logical_expr::Extension;
use strandline_engine::catalog::index::ReferentialAction;

impl Compiler<'_> {
    pub(super) fn extension(&mut self, node: &Extension) -> Option<Node> {
        if let Some((change, input)) = dml::Change::of(node) {
            if self.acts_on_others(&change) {
                return None;
            }
            let demand = Demand {
                of_changed: true,
                ..Demand::default()
            };
            let input = self.plan(input, &demand, Vec::new())?;
            let estimate = input.estimate;
            return Some(self.node(Change { change, input }, estimate));
        }
        let (widen, input) = dml::Widen::of(node)?;
        let schema = input.schema();
        let order = widen.input_order().iter().map(|key| {
            let at = schema.index_of_column_by_name(None, &key.field)?;
            Some((at, key.options))
        });
        let order = order.collect::<Option<Vec<_>>>()?;
        let input = self.plan(input, &Demand::default(), Vec::new())?;
        let estimate = input.estimate;
        let operator = Widen {
            widen,
            input,
            order,
        };
        Some(self.node(operator, estimate))
    }

    /// Whether a change may run an action of a foreign key: what that changes passes constraints
    /// that only the full path can evaluate.
    fn acts_on_others(&self, change: &dml::Change) -> bool {
        let acts = |action| {
            use ReferentialAction::{NoAction, Restrict};
            !matches!(action, NoAction | Restrict)
        };
        let referencing = self.catalog.referencing(change.table());
        referencing.iter().any(|(_, key)| {
            let sets = || key.parent_columns.iter().any(|id| change.sets(*id));
            (acts(key.on_delete) && change.deletes()) || (acts(key.on_update) && sets())
        })
    }
}
