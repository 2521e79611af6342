//! Shapes: statements whose parameters are read as the literals of their values. They are texts
//! without their literals, and statements with values from a program.
//!
//! A shape has one short plan for all its values of the same types. The types are those of the
//! literals. A string takes the type of its place, and each execution reads its text as that type.
//!
//! Invariants:
//! 1. A shape has a short plan only if it plans as the statement with literals does: the same
//!    columns, and the same plan for the values at hand ([`of_shape`]).
//! 2. NULLs and decimals are no values of a shape: the type of a NULL comes from its place, and the
//!    digits of a decimal are its type.
//! 3. The plan is valid for one catalog and one state of the settings.

use super::Session;
use super::describe::types_and_result;
use super::prepared::PreparedStatement;
use super::short_statements::ShortRun;
use crate::parse::params;
use crate::planning::context::StatementContext;
use crate::runtime::blocking::wait;
use crate::runtime::stack_growth::with_room;
use crate::statements::plan_cache::{KnownShape, Shape, ShapeValues, TypedPlan, of_shape};
use crate::values::parameter_value::of_type;
use datafusion::scalar::ScalarValue;
use std::borrow::Cow;
use std::sync::Arc;
use strandline_base::SqlType;
use strandline_engine::catalog::Catalog;

impl Session {
    /// The short plan of a statement for values that are read as literals. It is made at the second
    /// execution.
    pub(super) fn run_of_shape(
        &self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
    ) -> Option<ShortRun<'static>> {
        let mut shape = prepared.shape.lock();
        let known = match &*shape {
            Shape::New => {
                *shape = Shape::Used;
                return None;
            }
            Shape::Known(known) if self.is_present(known) => Some(known.clone()),
            Shape::Used | Shape::Known(_) => None,
        };
        drop(shape);
        let known = match known {
            Some(known) => known,
            None => {
                let known = Arc::new(self.known_shape(prepared, values));
                *prepared.shape.lock() = Shape::Known(known.clone());
                known
            }
        };
        let TypedPlan { types, plan } = known.plan.as_ref()?;
        if plan.is_given_up() {
            return None;
        }
        Some(ShortRun {
            plan: plan.clone(),
            values: Cow::Owned(typed(values, types)?),
        })
    }

    fn is_present(&self, known: &KnownShape) -> bool {
        Arc::ptr_eq(&known.template, &self.template) && self.uses_catalog(&known.catalog)
    }

    fn known_shape(&self, prepared: &PreparedStatement, values: &[ScalarValue]) -> KnownShape {
        let catalog = match &self.open {
            Some(open) => open.transaction.next_catalog(),
            None => self.shared.db.catalog(),
        };
        let plan = self.shape_plan(prepared, values, &catalog);
        KnownShape {
            catalog,
            template: self.template.clone(),
            plan,
        }
    }

    fn shape_plan(
        &self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
        catalog: &Arc<Catalog>,
    ) -> Option<TypedPlan> {
        if !self.may_keep_plan(prepared) {
            return None;
        }
        let (values, own): (Vec<_>, Vec<_>) = values.iter().map(params::own_type).unzip();
        let mut all = values.iter().zip(&own);
        if !all.all(|(value, own)| own.is_some() || is_text(value)) {
            return None;
        }
        let (mut context, implicit) = self.context_aside().ok()?;
        let plan = match Arc::ptr_eq(&context.catalog, catalog) {
            true => with_room(|| wait(Box::pin(compile(&mut context, prepared, &values, &own)))),
            false => None,
        };
        drop(context);
        if let Some(transaction) = implicit {
            transaction.rollback();
        }
        plan
    }
}

async fn compile(
    context: &mut StatementContext,
    prepared: &PreparedStatement,
    values: &[ScalarValue],
    own: &[Option<SqlType>],
) -> Option<TypedPlan> {
    let statement = &prepared.statement;
    let known = match own.iter().all(Option::is_some) {
        true => own.to_vec(),
        false => {
            context.open_parameters = true;
            let found = types_and_result(context, statement, own.to_vec()).await;
            context.open_parameters = false;
            found.ok()?.0
        }
    };
    let plain = |t: &Option<SqlType>| t.filter(|t| params::is_plain(*t));
    let types = known.iter().map(plain).collect::<Option<Vec<_>>>()?;
    let values = ShapeValues {
        literals: values,
        own,
        typed: &typed(values, &types)?,
        types: &known,
        are_literals: prepared.is_lifted,
    };
    let plan = of_shape(context, statement, &values).await?;
    Some(TypedPlan {
        types,
        plan: Arc::new(plan),
    })
}

/// The values of literals as the types of the parameters; None: a literal is of another type.
fn typed(values: &[ScalarValue], types: &[SqlType]) -> Option<Vec<ScalarValue>> {
    let typed = |(value, t): (&ScalarValue, &SqlType)| match params::own_type(value) {
        (value, Some(own)) => (own == *t).then_some(value),
        (value, None) if is_text(&value) && *t == SqlType::Text => {
            let text = value.try_as_str().flatten()?;
            Some(ScalarValue::Utf8View(Some(text.to_string())))
        }
        (value, None) if is_text(&value) => of_type(&value, *t),
        (_, None) => None,
    };
    values.iter().zip(types).map(typed).collect()
}

fn is_text(value: &ScalarValue) -> bool {
    !value.is_null() && value.data_type().is_string()
}
