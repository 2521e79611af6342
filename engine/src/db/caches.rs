//! The caches on the fast tier: their background work, and what can be changed about them while the
//! database is open.
//!
//! Lock order: `changing` → the locks of the caches → `present`. `changing` is held during a
//! change: changes are made one after the other, and a close waits for the one under way. `present`
//! is held only to look and to set.

use super::cache_steps::CacheSteps;
use crate::settings::{CacheSettings, Settings};
use std::sync::Arc;
use strandline_base::sync::Mutex;

/// The background work of both caches, and their present settings.
pub(crate) struct Caches {
    /// of the SSD cache
    pub ssd: Arc<CacheSteps>,
    /// of the block cache
    pub block: Arc<CacheSteps>,
    pub changing: Mutex<()>,
    pub present: Mutex<CacheSettings>,
}

impl Caches {
    /// The caches of a database that is opened with `settings`; `block` has the outcome of opening
    /// the block cache.
    pub fn new(settings: &Settings, block: Arc<CacheSteps>) -> Self {
        Self {
            ssd: Arc::new(CacheSteps::new("steps of the SSD cache")),
            block,
            changing: Mutex::new(()),
            present: Mutex::new(settings.caches()),
        }
    }
}
