//! Numbers of requests, by kind.

use std::sync::atomic::{AtomicU64, Ordering};
use strandline_device::RequestStats;

/// A kind of request to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Head,
    List,
    Put,
    BeginUpload,
    PutPart,
    CompleteUpload,
    AbortUpload,
    Delete,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::Get,
        Kind::Head,
        Kind::List,
        Kind::Put,
        Kind::BeginUpload,
        Kind::PutPart,
        Kind::CompleteUpload,
        Kind::AbortUpload,
        Kind::Delete,
    ];

    /// The name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Head => "head",
            Kind::List => "list",
            Kind::Put => "put",
            Kind::BeginUpload => "begin upload",
            Kind::PutPart => "put part",
            Kind::CompleteUpload => "complete upload",
            Kind::AbortUpload => "abort upload",
            Kind::Delete => "delete",
        }
    }

    /// What is done to the object, for messages: `<verb> object "…"`.
    pub fn verb(self) -> &'static str {
        match self {
            Kind::Get => "reading",
            Kind::Head => "looking up",
            Kind::List => "listing",
            Kind::Put | Kind::BeginUpload | Kind::PutPart | Kind::CompleteUpload => "storing",
            Kind::AbortUpload => "giving up the upload of",
            Kind::Delete => "removing",
        }
    }
}

/// The numbers of one kind.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
    pub retries: AtomicU64,
    pub timeouts: AtomicU64,
    pub errors: AtomicU64,
}

/// The numbers of all kinds since the device was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters([Counter; Kind::ALL.len()]);

impl Counters {
    /// The numbers of `kind`.
    pub fn of(&self, kind: Kind) -> &Counter {
        &self.0[kind as usize]
    }

    /// The numbers of all kinds.
    pub fn stats(&self) -> Vec<RequestStats> {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let stats = |kind: Kind| {
            let counter = self.of(kind);
            RequestStats {
                kind: kind.name(),
                requests: read(&counter.requests),
                bytes: read(&counter.bytes),
                retries: read(&counter.retries),
                timeouts: read(&counter.timeouts),
                errors: read(&counter.errors),
            }
        };
        Kind::ALL.into_iter().map(stats).collect()
    }
}

/// Adds to a number of a [`Counter`].
pub(crate) fn add(number: &AtomicU64, n: u64) {
    number.fetch_add(n, Ordering::Relaxed);
}
