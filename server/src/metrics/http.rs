//! The HTTP server of the metrics: one thread for two kinds of requests.

use super::Metrics;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use strandline::{Error, Result};
use tokio::sync::oneshot;

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves `/metrics` and `/health` until it is dropped.
pub struct MetricsServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens on `address` (port 0: a free one) and starts to answer.
    ///
    /// # Errors
    /// 58030 with the address if listening fails.
    pub fn start(address: SocketAddr, metrics: Arc<Metrics>) -> Result<Self> {
        let failed = |e: std::io::Error| Error::io(format!("listening on {address}"), &e);
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("strandline-metrics".into())
            .spawn(move || {
                let outcome = runtime.block_on(serve(listener, metrics, stopped));
                if let Err(error) = outcome {
                    tracing::error!("the metrics can no longer be asked for: {error}");
                }
            })
            .map_err(failed)?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    stopped: oneshot::Receiver<()>,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let router = Router::new()
        .route("/metrics", get(answer_metrics))
        .route("/health", get(answer_health))
        .with_state(metrics);
    let server = axum::serve(listener, router).into_future();
    // A hanging scrape must not keep the process from ending.
    tokio::select! {
        outcome = server => outcome,
        _ = stopped => Ok(()),
    }
}

async fn answer_metrics(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, METRICS_TYPE)], metrics.text())
}

async fn answer_health(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    match metrics.health() {
        Ok(failing) => {
            let lines = std::iter::once("ok".to_string()).chain(failing);
            let lines = lines.map(|line| line.replace('\n', " ") + "\n");
            (StatusCode::OK, lines.collect())
        }
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread has reported its panic itself.
            let _ = thread.join();
        }
    }
}
