//! Dependent views. A view is a text over names, so it depends on every object that its planning
//! needs. After a change every view is planned again in the changed catalog. A view that was valid
//! before and is not now is dropped too (CASCADE) or forbids the change.

use crate::planning::context::StatementContext;
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_engine::catalog::ViewDef;

/// Plans every view in the transaction's changed catalog; `what` is the changed object.
pub async fn settle(context: &StatementContext, what: &str, cascade: bool) -> Result<()> {
    let transaction = context.statement.transaction();
    let now = context.again(context.statement.clone());
    let mut broken: Vec<Arc<ViewDef>> = Vec::new();
    for view in &now.catalog.views {
        if now.plan_view(view).await.is_err() && was_sound(context, view).await {
            broken.push(view.clone());
        }
    }
    if broken.is_empty() {
        return Ok(());
    }
    if !cascade {
        let lines: Vec<_> = broken
            .iter()
            .map(|view| format!("view {} depends on {what}", view.name))
            .collect();
        return Err(Error::new(
            ErrorKind::Invalid,
            SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
            format!("cannot change or drop {what} because other objects depend on it"),
        )
        .with_detail(lines.join("\n"))
        .with_hint("Drop the views first, or use DROP … CASCADE to drop them too."));
    }
    transaction.change_catalog(&mut |catalog| {
        catalog.views.retain(|view| {
            !broken
                .iter()
                .any(|b| b.schema == view.schema && b.name == view.name)
        });
        Ok(())
    })
}

async fn was_sound(context: &StatementContext, view: &ViewDef) -> bool {
    match context.catalog.view(&view.schema, &view.name) {
        Some(before) => context.plan_view(before).await.is_ok(),
        None => true,
    }
}
