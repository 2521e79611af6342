//! A device whose directory refuses all syncs once one has failed.
//!
//! A failed sync of a directory may lose names that several threads have created. The names stay
//! readable, and the next sync succeeds without them, as with a file. The one writer of a file can
//! give the file up. Several threads share a directory: here one failed sync makes all later ones
//! fail, so that no thread takes a lost name for durable.
//!
//! Lock order: `failure` is held during the sync, so that no sync begins before the outcome of an
//! earlier one is known.

use std::sync::Arc;

use strandline_base::sync::Mutex;
use strandline_base::{Error, ErrorKind, Result, SqlState};

use crate::Device;

/// Passes everything on to a device until a sync of the directory fails.
#[derive(Debug)]
pub struct FailStopDevice {
    inner: Arc<dyn Device>,
    failure: Mutex<Option<Error>>,
}

impl FailStopDevice {
    /// The device over `inner`.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self {
            inner,
            failure: Mutex::default(),
        }
    }

    /// The error (`Closed`) of every directory sync since one has failed.
    ///
    /// # Errors
    /// That one.
    pub fn check_usable(&self) -> Result<()> {
        self.failure.lock().clone().map_or(Ok(()), Err)
    }
}

impl Device for FailStopDevice {
    crate::forward!(inner: create create_on open remove rename list lock may_fill_up);
    crate::forward!(inner: location queue is_written_once request_stats tiers);

    fn sync_directory(&self) -> Result<()> {
        let mut failure = self.failure.lock();
        if let Some(failure) = &*failure {
            return Err(failure.clone());
        }
        self.inner.sync_directory().map_err(|cause| {
            let error = Error::new(
                ErrorKind::Closed,
                SqlState::IO_ERROR,
                format!(
                    "the database refuses writes since its directory \"{}\" could not be \
                     synced: {cause}",
                    self.inner.location()
                ),
            )
            .with_hint("Check the device, then close and reopen the database.");
            failure.insert(error).clone()
        })
    }
}
