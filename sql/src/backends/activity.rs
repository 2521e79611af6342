//! The connected sessions and their running statements: the source of `pg_stat_activity`, and the
//! access to other sessions for `pg_cancel_backend` and `pg_terminate_backend`.
//!
//! Every session has a [`Backend`] in its database's [`Registry`] from its start until it is
//! dropped. A starting statement stores its text (shared, never copied) and a few numbers in it;
//! other sessions read them on request. The fields of a running session are not one consistent
//! snapshot, because they are stored one after the other.
//!
//! Lock order: `Registry::backends`, then nothing. A backend's own locks are held only to copy a
//! pointer, and are never nested in one another.

use super::cancel::CancelState;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};

/// Whether a connection is in a transaction block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// no
    Idle,
    /// yes
    Open,
    /// yes, and a statement has failed: only ROLLBACK works
    Failed,
}

/// The current activity of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// waits for a statement, outside any transaction block
    Idle,
    /// runs a statement
    Active,
    /// waits for a statement in a transaction block
    IdleInTransaction,
    /// waits for the end of a transaction block that has failed
    IdleInFailedTransaction,
}

impl Activity {
    /// PostgreSQL's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::IdleInTransaction => "idle in transaction",
            Self::IdleInFailedTransaction => "idle in transaction (aborted)",
        }
    }
}

const IN_BLOCK: u8 = 1;
const IN_FAILED_BLOCK: u8 = 2;
const NO_BLOCK: u8 = 0;

/// A setting of a session.
#[derive(Clone, Debug)]
pub struct Setting {
    /// its name
    pub name: String,
    /// the value
    pub value: String,
    /// the description
    pub description: String,
    /// whether SET changes it
    pub changeable: bool,
}

/// A change of a setting that a running statement requests (`set_config`).
#[derive(Clone, Debug)]
pub struct SettingRequest {
    /// the setting
    pub name: String,
    /// its value; None: its default
    pub value: Option<String>,
    /// whether only until the transaction ends
    pub local: bool,
}

/// A session's entry in the registry, which other sessions read.
#[derive(Debug)]
pub struct Backend {
    pid: i32,
    secret: i32,
    /// the session's start, microseconds since the epoch
    started_us: u64,
    cancel: Arc<CancelState>,
    user: Arc<str>,
    application: Mutex<Arc<str>>,
    client: Mutex<Option<Arc<str>>>,
    query: Mutex<Option<Arc<str>>>,
    settings: Mutex<Arc<[Setting]>>,
    requested: Mutex<Vec<SettingRequest>>,
    /// the number of its running statements; a statement runs until the query's last row
    running: AtomicI32,
    block: AtomicU8,
    query_started_us: AtomicU64,
    /// 0: no transaction block
    block_started_us: AtomicU64,
    changed_us: AtomicU64,
}

/// A [`Backend`]'s fields at one time.
#[derive(Clone, Debug)]
pub struct BackendState {
    /// the number that identifies the session
    pub pid: i32,
    /// the session's user
    pub user: Arc<str>,
    /// `application_name`
    pub application: Arc<str>,
    /// the client's address, host and port; None: this process
    pub client: Option<Arc<str>>,
    /// current activity
    pub activity: Activity,
    /// the running statement, or the last one
    pub query: Option<Arc<str>>,
    /// the session's start, microseconds since the epoch like the other times
    pub started_us: u64,
    /// the last statement's start; 0: no statement yet
    pub query_started_us: u64,
    /// the open transaction's start; None: no transaction
    pub transaction_started_us: Option<u64>,
    /// the last change of `activity`
    pub changed_us: u64,
}

impl Backend {
    /// The number that identifies the session.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The secret that a cancel request must present with the number.
    pub fn secret(&self) -> i32 {
        self.secret
    }

    /// The cancel state of the session's statements.
    pub fn cancel(&self) -> &Arc<CancelState> {
        &self.cancel
    }

    /// The session's user.
    pub fn user(&self) -> Arc<str> {
        self.user.clone()
    }

    /// The session's settings.
    pub fn settings(&self) -> Arc<[Setting]> {
        self.settings.lock().clone()
    }

    /// Replaces the session's settings; `application` is its `application_name`.
    pub fn set_settings(&self, settings: Arc<[Setting]>, application: &str) {
        *self.settings.lock() = settings;
        let mut known = self.application.lock();
        if &**known != application {
            *known = Arc::from(application);
        }
    }

    /// Requests a change of a setting, which the session makes at the statement's end.
    pub fn request(&self, request: SettingRequest) {
        self.requested.lock().push(request);
    }

    /// Takes the changes of settings that statements have requested.
    pub fn take_requests(&self) -> Vec<SettingRequest> {
        std::mem::take(&mut *self.requested.lock())
    }

    /// Whether the client is in another process.
    pub fn is_remote(&self) -> bool {
        self.client.lock().is_some()
    }
    /// Sets the client's address.
    pub fn set_client(&self, address: &str) {
        *self.client.lock() = Some(Arc::from(address));
    }

    /// Marks the start of a statement at `now_us`.
    pub fn start(self: &Arc<Self>, query: Option<Arc<str>>, now_us: u64) -> Running {
        if let Some(query) = query {
            *self.query.lock() = Some(query);
        }
        self.query_started_us.store(now_us, Ordering::Relaxed);
        self.changed_us.store(now_us, Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(self))
    }

    /// Marks that a transaction block has begun at `started_us`, has failed, or has ended.
    pub fn set_block(&self, status: TransactionStatus, started_us: u64) {
        let (block, started_us) = match status {
            TransactionStatus::Idle => (NO_BLOCK, 0),
            TransactionStatus::Open => (IN_BLOCK, started_us),
            TransactionStatus::Failed => (IN_FAILED_BLOCK, started_us),
        };
        self.block.store(block, Ordering::Relaxed);
        self.block_started_us.store(started_us, Ordering::Relaxed);
    }

    /// The session's present state.
    pub fn state(&self) -> BackendState {
        let running = self.running.load(Ordering::Relaxed) > 0;
        let block = self.block.load(Ordering::Relaxed);
        let query_started_us = self.query_started_us.load(Ordering::Relaxed);
        let block_started_us = self.block_started_us.load(Ordering::Relaxed);
        let activity = match (running, block) {
            (true, _) => Activity::Active,
            (false, NO_BLOCK) => Activity::Idle,
            (false, IN_FAILED_BLOCK) => Activity::IdleInFailedTransaction,
            (false, _) => Activity::IdleInTransaction,
        };
        BackendState {
            pid: self.pid,
            user: self.user(),
            application: self.application.lock().clone(),
            client: self.client.lock().clone(),
            activity,
            query: self.query.lock().clone(),
            started_us: self.started_us,
            query_started_us,
            transaction_started_us: match (block, running) {
                (NO_BLOCK, false) => None,
                (NO_BLOCK, true) => Some(query_started_us),
                _ => Some(block_started_us),
            },
            changed_us: self.changed_us.load(Ordering::Relaxed),
        }
    }
}

/// A running statement; it ends when this is dropped.
#[derive(Debug)]
pub struct Running(Arc<Backend>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The sessions of one database.
#[derive(Debug, Default)]
pub struct Registry {
    last_pid: AtomicI32,
    backends: Mutex<BTreeMap<i32, Arc<Backend>>>,
}

impl Registry {
    /// Adds a session that begins at `now_us` with the cancel secret `secret`.
    pub fn add(
        self: &Arc<Self>,
        cancel: Arc<CancelState>,
        user: Arc<str>,
        secret: i32,
        now_us: u64,
    ) -> Registered {
        let backend = Arc::new(Backend {
            pid: self.last_pid.fetch_add(1, Ordering::Relaxed) + 1,
            secret,
            started_us: now_us,
            cancel,
            user,
            application: Mutex::new(Arc::from("")),
            client: Mutex::new(None),
            query: Mutex::new(None),
            settings: Mutex::new(Arc::default()),
            requested: Mutex::default(),
            running: AtomicI32::new(0),
            block: AtomicU8::new(NO_BLOCK),
            query_started_us: AtomicU64::new(0),
            block_started_us: AtomicU64::new(0),
            changed_us: AtomicU64::new(now_us),
        });
        self.backends.lock().insert(backend.pid, backend.clone());
        Registered {
            backend,
            registry: Arc::clone(self),
        }
    }

    /// The session `pid`.
    pub fn find(&self, pid: i32) -> Option<Arc<Backend>> {
        self.backends.lock().get(&pid).cloned()
    }

    /// All sessions, by number.
    pub fn all(&self) -> Vec<Arc<Backend>> {
        self.backends.lock().values().cloned().collect()
    }
}

/// A session's registration, which ends when it is dropped.
#[derive(Debug)]
pub struct Registered {
    backend: Arc<Backend>,
    registry: Arc<Registry>,
}

impl Registered {
    /// The session's entry.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// The registry of the entry.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.backends.lock().remove(&self.backend.pid);
    }
}
