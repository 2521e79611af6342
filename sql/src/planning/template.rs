//! The state of DataFusion that a session's statements start from.
//!
//! Copying a state copies the names of some hundred functions, more work than planning a small
//! query. So a statement's copy goes back to its template when the statement ends, and the next
//! one starts from it. A spare state knows no statement: it names no catalog, so that it keeps no
//! snapshot.

use crate::planning::provider::history::HistoryFunction;
use datafusion::catalog::MemoryCatalogProviderList;
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A state that is not changed any more, and one that statements have used.
#[derive(Debug)]
pub struct Template {
    state: SessionState,
    spare: Mutex<Option<SessionState>>,
}

impl Template {
    /// A template of `state`.
    pub fn new(state: SessionState) -> Arc<Self> {
        Arc::new(Self {
            state,
            spare: Mutex::new(None),
        })
    }

    /// The state itself, to make another template of.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// A copy of the state, for one statement.
    pub fn copy(self: &Arc<Self>) -> StatementState {
        let spare = self.spare.lock().take();
        StatementState {
            state: Some(spare.unwrap_or_else(|| self.state.clone())),
            template: Arc::clone(self),
        }
    }
}

impl Deref for Template {
    type Target = SessionState;
    fn deref(&self) -> &SessionState {
        &self.state
    }
}

/// The degree of parallelism and the batch size that a query is planned and run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// threads that work on it
    pub partitions: usize,
    /// rows of a batch
    pub batch_rows: usize,
}

/// A statement's copy of a [`Template`]'s state; goes back to it when dropped.
#[derive(Debug)]
pub struct StatementState {
    /// None: being dropped
    state: Option<SessionState>,
    template: Arc<Template>,
}

impl StatementState {
    /// Plans and runs from now on with so many partitions and rows of a batch.
    pub fn fit(
        &mut self,
        Fit {
            partitions,
            batch_rows,
        }: Fit,
    ) {
        let config = self.config();
        if config.target_partitions() == partitions && config.batch_size() == batch_rows {
            return;
        }
        // Options that nobody else holds are changed in place.
        self.execution_props_mut().config_options = None;
        let options = self.config_mut().options_mut();
        options.execution.target_partitions = partitions;
        options.execution.batch_size =
            ConfigNonZeroUsize::try_new(batch_rows).expect("a batch has at least 64 rows");
        let options = Arc::clone(self.config().options());
        self.execution_props_mut().config_options = Some(options);
    }

    /// What plans of this state run with. They hold their functions themselves, so there are none
    /// in it to be found by name.
    pub fn task(&self) -> Arc<TaskContext> {
        Arc::new(TaskContext::new(
            None,
            self.session_id().to_string(),
            self.config().clone(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            self.runtime_env().clone(),
        ))
    }
}

impl Deref for StatementState {
    type Target = SessionState;
    fn deref(&self) -> &SessionState {
        self.state.as_ref().expect("it is there until the drop")
    }
}

impl DerefMut for StatementState {
    fn deref_mut(&mut self) -> &mut SessionState {
        self.state.as_mut().expect("it is there until the drop")
    }
}

impl Drop for StatementState {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else {
            return;
        };
        // What is left of the statement in it: its catalog, and what looks at its snapshot.
        state.register_catalog_list(Arc::new(MemoryCatalogProviderList::new()));
        if state.deregister_udtf(HistoryFunction::NAME).is_ok() {
            *self.template.spare.lock() = Some(state);
        }
    }
}
