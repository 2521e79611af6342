//! One operation on the store: attempts, pauses, timeouts, and errors in the user's words.
//!
//! Invariants:
//! 1. An operation makes at most [`Options::attempts`] requests and ends within
//!    [`Options::operation_timeout`].
//! 2. An error that would be the same again is not repeated ([`is_final`]).
//! 3. A [`Failure`] says whether a request may have been carried out although it has failed. Only
//!    then may a later answer be about the operation's own effect.

use std::time::Duration;

use futures::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStoreExt};
use strandline_base::rng::Rng;
use strandline_base::sync::{Arc, Mutex};
use strandline_base::{Checksum, Error, ErrorKind, Result, SqlState};
use tokio::time::{Instant, sleep, timeout};

use crate::counters::{Counters, Kind, add};
use crate::{Options, Store};

/// The store, and how requests to it are made.
#[derive(Debug)]
pub(crate) struct Requests {
    pub store: Arc<dyn Store>,
    pub options: Options,
    pub counters: Counters,
    /// where the objects are, for messages: `s3://bucket/prefix`
    pub location: String,
    /// of the pauses
    rng: Mutex<Rng>,
}

/// Why an operation has failed.
#[derive(Debug)]
pub(crate) struct Failure {
    cause: Cause,
    attempts: u32,
    /// whether one of the requests may have been carried out
    pub is_uncertain: bool,
}

/// The error of the last request.
#[derive(Debug)]
enum Cause {
    /// the store's, or the client library's
    Store(object_store::Error),
    /// no answer within this time
    TimedOut(Duration),
}

impl Failure {
    /// Whether the store has answered that there is no such object, or upload.
    pub fn is_missing(&self) -> bool {
        matches!(
            &self.cause,
            Cause::Store(object_store::Error::NotFound { .. })
        )
    }
}

/// Whether another attempt would fail in the same way: the store has answered.
fn is_final(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    !matches!(error, E::Generic { .. } | E::JoinError { .. })
}

/// What a stored object must be equal to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    /// bytes
    pub len: u64,
    /// of all bytes
    pub checksum: u32,
}

impl Requests {
    pub fn new(store: Arc<dyn Store>, location: String, options: Options) -> Self {
        // Devices of different places pause at different times.
        let seed = strandline_base::checksum(&[], location.as_bytes());
        Self {
            store,
            options,
            counters: Counters::default(),
            location,
            rng: Mutex::new(Rng::new(u64::from(seed))),
        }
    }

    /// Makes requests of `kind` until one succeeds. `request` makes one; all have the same effect.
    ///
    /// # Errors
    /// The error of the last request.
    pub async fn run<T, F>(&self, kind: Kind, mut request: impl FnMut() -> F) -> Result<T, Failure>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let counter = self.counters.of(kind);
        let deadline = Instant::now() + self.options.operation_timeout;
        let (mut attempts, mut is_uncertain) = (0, false);
        loop {
            attempts += 1;
            add(&counter.requests, 1);
            let left = deadline.saturating_duration_since(Instant::now());
            let limit = left.min(self.options.request_timeout);
            let cause = match timeout(limit, request()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => Cause::Store(error),
                Err(_) => {
                    add(&counter.timeouts, 1);
                    Cause::TimedOut(limit)
                }
            };
            let is_answered = matches!(&cause, Cause::Store(error) if is_final(error));
            is_uncertain |= !is_answered;
            let pause = self.pause(attempts);
            let is_last = attempts >= self.options.attempts || Instant::now() + pause >= deadline;
            if is_answered || is_last {
                add(&counter.errors, 1);
                return Err(Failure {
                    cause,
                    attempts,
                    is_uncertain,
                });
            }
            sleep(pause).await;
            add(&counter.retries, 1);
        }
    }

    /// The pause after attempt number `attempts`.
    fn pause(&self, attempts: u32) -> Duration {
        let doubled = self
            .options
            .pause
            .saturating_mul(1 << (attempts - 1).min(16));
        let pause_us = doubled.min(self.options.pause_max).as_micros() as u64;
        let part = self.rng.lock().below(pause_us / 2 + 1);
        Duration::from_micros(pause_us - part)
    }

    /// The bytes `[start, start + len)` of an object that has them.
    ///
    /// # Errors
    /// XX001 if the object is missing or shorter; otherwise those of [`Requests::error`].
    pub async fn read(&self, path: &Path, start: u64, len: u64) -> Result<bytes::Bytes> {
        let range = start..start + len;
        let read = self.run(Kind::Get, || self.store.get_range(path, range.clone()));
        let bytes = read.await.map_err(|failure| match failure.is_missing() {
            true => self.missing(path),
            false => self.error(Kind::Get, path, &failure),
        })?;
        if bytes.len() as u64 != len {
            return Err(Error::corrupt(
                format!("{} at offset {start}", self.object(path)),
                format!("{len} bytes expected, but the store has {}", bytes.len()),
            ));
        }
        add(&self.counters.of(Kind::Get).bytes, len);
        Ok(bytes)
    }

    /// The length of an object in bytes; None if there is none.
    ///
    /// # Errors
    /// Those of [`Requests::error`].
    pub async fn len(&self, path: &Path) -> Result<Option<u64>> {
        match self.run(Kind::Head, || self.store.head(path)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(failure) if failure.is_missing() => Ok(None),
            Err(failure) => Err(self.error(Kind::Head, path, &failure)),
        }
    }

    /// Whether the object has `content`; it is read as a whole if it has the length. False if it is
    /// missing.
    ///
    /// # Errors
    /// Those of [`Requests::error`].
    pub async fn has(&self, path: &Path, content: Content) -> Result<bool> {
        if self.len(path).await? != Some(content.len) {
            return Ok(false);
        }
        let read = self.run(Kind::Get, || async {
            let range = Some(GetRange::Bounded(0..content.len));
            let range = range.filter(|_| content.len > 0);
            let options = GetOptions {
                range,
                ..GetOptions::default()
            };
            let mut pieces = self.store.get_opts(path, options).await?.into_stream();
            let mut sum = Checksum::of_identity(&[]);
            while let Some(piece) = pieces.next().await {
                sum.update(&piece?);
            }
            Ok(sum.finish())
        });
        match read.await {
            Ok(checksum) => Ok(checksum == content.checksum),
            Err(failure) => Err(self.error(Kind::Get, path, &failure)),
        }
    }

    /// Object and place, for messages.
    pub fn object(&self, path: &Path) -> String {
        let name = path.filename().unwrap_or_default();
        format!("object \"{name}\" in {}", self.location)
    }

    /// The error for an object that the device knows and the store does not.
    pub fn missing(&self, path: &Path) -> Error {
        Error::corrupt(self.object(path), "the object is missing")
            .with_hint("Put the object back if it was removed or moved, or restore a backup.")
    }

    /// 58P02: there is another object of this name.
    pub fn exists(&self, path: &Path) -> Error {
        Error::new(
            ErrorKind::Unavailable,
            SqlState::DUPLICATE_FILE,
            format!(
                "{} exists already, and is not overwritten",
                self.object(path)
            ),
        )
        .with_hint(
            "Another database may use the same place: each needs a URL of its own. After that, \
             close and reopen the database.",
        )
    }

    /// The error of an operation of `kind` on an object.
    ///
    /// # Errors
    /// 58P01 for a missing object, 58P02 for one that exists already, 55000 for want of permission,
    /// 0A000 if the store cannot do it, else 58030.
    pub fn error(&self, kind: Kind, path: &Path, failure: &Failure) -> Error {
        use object_store::Error as E;
        let what = match kind {
            Kind::List => format!("listing {}", self.location),
            _ => format!("{} {}", kind.verb(), self.object(path)),
        };
        let tries = match failure.attempts {
            1 => String::new(),
            n => format!(" after {n} attempts"),
        };
        let store = match &failure.cause {
            Cause::TimedOut(limit) => {
                let limit = limit.as_secs_f64();
                return Error::new(
                    ErrorKind::Unavailable,
                    SqlState::IO_ERROR,
                    format!("{what} failed{tries}: no answer within {limit} s"),
                )
                .with_hint(HINT_UNREACHABLE);
            }
            Cause::Store(error) => error,
        };
        let message = format!("{what} failed{tries}: {store}");
        match store {
            E::NotFound { .. } => {
                let message = format!("{what} failed: it does not exist");
                let error = Error::invalid(SqlState::UNDEFINED_FILE, message);
                match kind {
                    Kind::List => error.with_hint(HINT_NO_BUCKET),
                    _ => error,
                }
            }
            E::AlreadyExists { .. } | E::Precondition { .. } => self.exists(path),
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => Error::new(
                ErrorKind::Unavailable,
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                message,
            )
            .with_hint(
                "Give this process credentials that may read, write, list and delete there.",
            ),
            E::NotSupported { .. } | E::NotImplemented { .. } => Error::unsupported(message)
                .with_hint("The store must have conditional puts and uploads in parts."),
            _ => Error::new(ErrorKind::Unavailable, SqlState::IO_ERROR, message)
                .with_hint(HINT_UNREACHABLE),
        }
    }
}

const HINT_NO_BUCKET: &str = "Create the bucket, or correct its name in the URL.";
const HINT_UNREACHABLE: &str = "Check the network, the store and the URL. The operation can be \
                                repeated once the store answers.";
