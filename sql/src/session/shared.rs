//! State shared by all connections of a database: the engine, the query threads, the template of
//! DataFusion's state, the defaults of settings, and the registry of sessions.

use super::settings::{ForeignParameter, OpenSettings, Origins, Settings};
use crate::backends::activity::{Registered, Registry};
use crate::backends::cancel::CancelState;
use crate::backends::identity::User;
use crate::backends::random::RandomSource;
use crate::catalogs::statistics::StatementStatistics;
use crate::execution::row_checks::RowChecks;
use crate::planning::template::Template;
use crate::runtime::blocking::{CallersThread, block_on};
use crate::runtime::stack_growth::with_room;
use parking_lot::Mutex;
use std::sync::Arc;
use strandline_engine::Db;
use tokio::runtime::{Handle, Runtime};

/// The state that all connections of a database share.
pub(crate) struct Shared {
    pub(crate) db: Arc<Db>,
    pub(crate) template: Arc<Template>,
    pub(crate) defaults: Settings,
    pub(crate) opened: OpenSettings,
    pub(crate) origins: Origins,
    pub(crate) foreign_parameters: Vec<ForeignParameter>,
    pub(crate) row_checks: RowChecks,
    pub(crate) statistics: Arc<StatementStatistics>,
    pub(crate) runtime: Mutex<Option<Runtime>>,
    pub(crate) handle: Handle,
    pub(crate) location: String,
    /// the connected sessions
    pub(crate) sessions: Arc<Registry>,
    pub(crate) random: Arc<dyn RandomSource>,
}

impl Shared {
    /// Runs `future` on the calling thread, within the runtime of the query threads. It blocks the
    /// calling thread, also inside another runtime or executor.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _entered = self.handle.enter();
        let _here = CallersThread::enter();
        with_room(|| block_on(future))
    }

    /// Adds a session of `user` to the registry.
    pub(crate) fn register(&self, cancel: Arc<CancelState>, user: &User) -> Registered {
        let mut secret = [0; 4];
        self.random.fill(&mut secret);
        let secret = i32::from_le_bytes(secret);
        let now_us = self.db.now_us();
        self.sessions.add(cancel, user.name.clone(), secret, now_us)
    }

    /// The query threads.
    pub(crate) fn threads(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Waiting here for the query threads could deadlock: this may run on one of them.
        if let Some(runtime) = self.runtime.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}
