//! A store in memory whose answers take as long as those of a store over a network. For
//! measurements only; its name says what is emulated.
//!
//! A read takes [`LATENCY`] and then its bytes at [`BANDWIDTH`]; reads at the same time do not slow
//! each other down. Writes take no time: data is loaded before a measurement.

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Until the first byte of an answer.
const LATENCY: Duration = Duration::from_millis(20);
/// Bytes per second of one request.
const BANDWIDTH: u64 = 100_000_000;

/// Requests that were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// reads of objects, of their lengths too
    pub gets: u64,
    /// bytes of objects in their answers
    pub bytes: u64,
}

/// The store.
#[derive(Debug, Default)]
pub struct EmulatedStore {
    objects: InMemory,
    gets: AtomicU64,
    bytes: AtomicU64,
    is_slow: AtomicBool,
}

impl EmulatedStore {
    /// Switches the delays on or off.
    pub fn set_delays(&self, is_on: bool) {
        self.is_slow.store(is_on, Ordering::Relaxed);
    }

    /// The reads so far.
    pub fn requests(&self) -> Requests {
        Requests {
            gets: self.gets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// What is emulated, for results.
    pub fn label() -> String {
        let (latency, bandwidth) = (LATENCY.as_millis(), BANDWIDTH / 1_000_000);
        format!("emulated object store, {latency} ms and {bandwidth} MB/s a request")
    }

    async fn delay(&self, bytes: u64) {
        if self.is_slow.load(Ordering::Relaxed) {
            tokio::time::sleep(LATENCY + transfer(bytes)).await;
        }
    }
}

/// The time that the bytes of an answer take.
fn transfer(bytes: u64) -> Duration {
    Duration::from_nanos(bytes * (1_000_000_000 / BANDWIDTH))
}

impl fmt::Display for EmulatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Self::label())
    }
}

#[async_trait]
impl ObjectStore for EmulatedStore {
    async fn put_opts(
        &self,
        path: &Path,
        put: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.objects.put_opts(path, put, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let result = self.objects.get_opts(path, options).await?;
        let bytes = match is_head {
            true => 0,
            false => result.range.end - result.range.start,
        };
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.delay(bytes).await;
        Ok(result)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.delay(0).await;
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartStore for EmulatedStore {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        self.objects.create_multipart(path).await
    }

    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        index: usize,
        part: PutPayload,
    ) -> Result<PartId> {
        self.objects.put_part(path, id, index, part).await
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        self.objects.complete_multipart(path, id, parts).await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.objects.abort_multipart(path, id).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;

    #[test]
    fn reads_and_their_bytes_are_counted() {
        assert_eq!(transfer(100_000_000), Duration::from_secs(1));
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        let store = EmulatedStore::default();
        let path = Path::from("a");
        runtime.block_on(async {
            store.put(&path, vec![1; 1_000].into()).await.unwrap();
            store.get_range(&path, 10..20).await.unwrap();
            assert_eq!(store.head(&path).await.unwrap().size, 1_000);
            store.set_delays(true);
            assert_eq!(store.get(&path).await.unwrap().range, 0..1_000);
        });
        let expected = Requests {
            gets: 3,
            bytes: 1_010,
        };
        assert_eq!(store.requests(), expected);
    }
}
