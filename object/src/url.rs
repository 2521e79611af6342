//! Capacity tiers by URL.
//!
//! | URL | place |
//! |---|---|
//! | `file:///path` | a directory, as if its path had been given: no objects |
//! | `memory://name` | objects in this process's memory, for tests: they end with the process |
//! | `s3://bucket/prefix` | objects in a store with the protocol of Amazon S3; needs the feature `s3` |
//!
//! Credentials, endpoint and region of S3 come from the environment, in the names that Amazon's own
//! tools use (`AWS_ACCESS_KEY_ID`, …). A URL never has them, because the database records it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use strandline_base::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_device::Device;

use crate::{ObjectDevice, Options, Store};

const SCHEMES: &str = "The valid forms are file:///path, s3://bucket/prefix and memory://name.";

/// The place of a capacity tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// a directory
    Directory(PathBuf),
    /// objects, by a URL without a slash at its end
    Objects(ObjectUrl),
}

/// The URL of a set of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectUrl {
    url: String,
    scheme: Scheme,
    /// the bucket, or the name of the store in memory
    store: String,
    prefix: ObjectPath,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Memory,
    S3,
}

impl Place {
    /// The place that `url` names.
    ///
    /// # Errors
    /// 22023 for an unknown scheme or a malformed URL, 0A000 for `s3://` in a build without it.
    pub fn parse(url: &str) -> Result<Self> {
        let invalid = |what: &str| {
            Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("capacity_url \"{url}\": {what}"),
            )
            .with_hint(SCHEMES)
        };
        // Comes before all messages that repeat the URL. A path may have the character.
        if url.contains('@') && !url.starts_with("file:///") {
            return Err(Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                "capacity_url has credentials, which the database would record",
            )
            .with_hint(
                "Give them in the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            ));
        }
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| invalid("it has no scheme"))?;
        if rest.contains(['?', '#', '%', '\\']) {
            return Err(invalid("one of the characters ? # % \\ is in it"));
        }
        let scheme = match scheme {
            "file" => {
                return match rest.starts_with('/') {
                    true => Ok(Self::Directory(rest.into())),
                    false => Err(invalid("the path is not absolute")),
                };
            }
            "memory" => Scheme::Memory,
            "s3" => Scheme::S3,
            _ => return Err(invalid(&format!("the scheme \"{scheme}\" is unknown"))),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains("//") {
            return Err(invalid("a name between two slashes is empty"));
        }
        let (store, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if store.is_empty() {
            return Err(invalid(match scheme {
                Scheme::Memory => "the name of the store is missing",
                Scheme::S3 => "the bucket is missing",
            }));
        }
        let prefix = ObjectPath::parse(prefix).map_err(|error| invalid(&error.to_string()))?;
        if scheme == Scheme::S3 && !cfg!(feature = "s3") {
            return Err(Error::unsupported(format!(
                "capacity_url \"{url}\": this build has no S3"
            ))
            .with_hint("Build with the feature \"s3\"."));
        }
        let name = match scheme {
            Scheme::Memory => "memory",
            Scheme::S3 => "s3",
        };
        Ok(Self::Objects(ObjectUrl {
            url: format!("{name}://{rest}"),
            scheme,
            store: store.to_owned(),
            prefix,
        }))
    }

    /// The place that a database has recorded: a URL of objects, or a path.
    ///
    /// # Errors
    /// Those of [`Place::parse`].
    pub fn recorded(text: &str) -> Result<Self> {
        match Path::new(text).is_absolute() || !text.contains("://") {
            true => Ok(Self::Directory(text.into())),
            false => Self::parse(text),
        }
    }
}

/// The path or the URL.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Objects(url) => url.fmt(f),
        }
    }
}

/// The URL's text, which a database records.
impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl ObjectUrl {
    /// The device of the objects. Makes no request.
    ///
    /// # Errors
    /// 22023 for a configuration in the environment that S3 refuses, 58030 if the system refuses a
    /// thread.
    pub fn open(&self, options: Options) -> Result<Arc<dyn Device>> {
        let store = match self.scheme {
            Scheme::Memory => memory_store(&self.store),
            Scheme::S3 => self.s3(&options)?,
        };
        let device = ObjectDevice::new(store, self.prefix.clone(), self.url.as_str(), options)?;
        Ok(Arc::new(device))
    }

    #[cfg(feature = "s3")]
    fn s3(&self, options: &Options) -> Result<Arc<dyn Store>> {
        use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
        use object_store::{ClientOptions, RetryConfig};
        let client = ClientOptions::new()
            .with_timeout(options.request_timeout)
            .with_connect_timeout(options.request_timeout);
        // Requests are repeated, and counted, by this crate.
        let once = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let store = AmazonS3Builder::from_env()
            .with_bucket_name(&self.store)
            .with_client_options(client)
            .with_retry(once)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .build();
        let store = store.map_err(|error| {
            Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("\"{}\": {error}", self.url),
            )
            .with_hint("The variables AWS_… of the environment configure the store.")
        })?;
        Ok(Arc::new(store))
    }

    #[cfg(not(feature = "s3"))]
    fn s3(&self, _options: &Options) -> Result<Arc<dyn Store>> {
        Err(Error::unsupported(format!(
            "\"{}\": this build has no S3",
            self.url
        )))
    }
}

/// The store `name` in this process's memory.
fn memory_store(name: &str) -> Arc<dyn Store> {
    static STORES: Mutex<BTreeMap<String, Arc<InMemory>>> = Mutex::new(BTreeMap::new());
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    stores.entry(name.to_owned()).or_default().clone()
}
