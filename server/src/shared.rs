//! The state that all connections of a server share.

use crate::auth::Authenticator;
use crate::backends::Backends;
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::polling::PollBudget;
use crate::tls::Tls;
use std::sync::Arc;
use strandline::{Database, Error, Result, SqlState};

/// The shared state.
pub(crate) struct Shared {
    pub database: Database,
    pub options: ServerOptions,
    pub metrics: Option<Arc<Metrics>>,
    pub authenticator: Authenticator,
    pub tls: Option<Tls>,
    pub backends: Arc<Backends>,
    pub poll_budget: Arc<PollBudget>,
}

impl Shared {
    /// The state before the first connection. Loads the certificate and the key.
    pub fn new(
        database: Database,
        options: ServerOptions,
        metrics: Option<Arc<Metrics>>,
    ) -> Result<Arc<Self>> {
        let tls = options.tls.as_ref().map(Tls::load).transpose()?;
        if options.require_tls && tls.is_none() {
            return Err(Error::invalid(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "TLS is required, but there is no certificate",
            )
            .with_hint("Name a certificate and its key."));
        }
        let authenticator = Authenticator::new(tls.as_ref().map(|t| &t.certificate_pem[..]))?;
        let poll_budget = Arc::new(PollBudget::new(options.client_poll_time));
        Ok(Arc::new(Self {
            database,
            options,
            metrics,
            authenticator,
            tls,
            backends: Arc::new(Backends::new()),
            poll_budget,
        }))
    }
}
