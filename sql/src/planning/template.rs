//! DataFusion's state from which a session's statements start.
//!
//! Copying a state copies the names of some hundred functions, which is more work than planning a
//! small query. So a statement's copy returns to its template when the statement ends, and the next
//! statement uses it. A spare state has no catalog, and so holds no statement and no snapshot.

use crate::planning::provider::history::HistoryFunction;
use datafusion::catalog::MemoryCatalogProviderList;
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A constant state, and a spare copy that a statement has returned.
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

    /// The state, to derive another template from.
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

/// The degree of parallelism and the batch size of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// the number of threads
    pub partitions: usize,
    /// the rows of a batch
    pub batch_rows: usize,
}

/// A statement's copy of a [`Template`]'s state, returned to it when dropped.
#[derive(Debug)]
pub struct StatementState {
    /// None: being dropped
    state: Option<SessionState>,
    template: Arc<Template>,
}

impl StatementState {
    /// Sets the partitions and the batch rows of all later planning and execution.
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
        // Options without other references are changed in place.
        self.execution_props_mut().config_options = None;
        let options = self.config_mut().options_mut();
        options.execution.target_partitions = partitions;
        options.execution.batch_size =
            ConfigNonZeroUsize::try_new(batch_rows).expect("a batch has at least 64 rows");
        let options = Arc::clone(self.config().options());
        self.execution_props_mut().config_options = Some(options);
    }

    /// The context in which plans of this state run. Plans hold their functions themselves, so the
    /// context has none.
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
        // Remove the statement's parts: its catalog, and the function that reads at its snapshot.
        state.register_catalog_list(Arc::new(MemoryCatalogProviderList::new()));
        if state.deregister_udtf(HistoryFunction::NAME).is_ok() {
            *self.template.spare.lock() = Some(state);
        }
    }
}
