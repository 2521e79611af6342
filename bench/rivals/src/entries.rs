//! Entries of an index on a store: 16 bytes of key and nothing else. Six threads look up, two
//! insert, as in the FD+ paper; `bench/src/index` has the same with an FD+tree.

use crate::Result;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

const READERS: u64 = 6;
const WRITERS: u64 = 2;

pub type Entry = [u8; 16];

/// A store of entries.
pub trait EntryStore: Sized + Sync {
    /// Creates the store at `path` with these entries, in order, and opens it with so much memory;
    /// None: as much as all entries take.
    fn with(path: &str, entries: &[Entry], memory_bytes: Option<usize>) -> Result<Self>;
    /// Adds an entry, without a log.
    fn insert(&self, entry: &Entry) -> Result<()>;
    /// What one thread looks up with.
    fn reader(&self) -> Result<impl EntryReader>;
}

/// Lookups of one thread.
pub trait EntryReader {
    /// Whether the store has the entry.
    fn contains(&mut self, entry: &Entry) -> Result<bool>;
}

/// Requests on a new store.
#[derive(Deserialize)]
pub struct Run {
    path: String,
    /// entries to begin with
    entries: u64,
    requests: u64,
    /// lookups among 100 requests
    lookups: u64,
    memory_bytes: Option<usize>,
}

/// The entry of a number, at a random place of the order.
fn entry(number: u64) -> Entry {
    let key = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(key) << 64 | u128::from(number)).to_be_bytes()
}

fn timed<R>(times: &mut Vec<Duration>, work: impl FnOnce() -> Result<R>) -> Result<R> {
    let begin = Instant::now();
    let done = work()?;
    times.push(begin.elapsed());
    Ok(done)
}

/// The time that 999 of 1000 do not exceed, in ms.
fn p999_ms(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    let at = (times.len() * 999).div_ceil(1000).saturating_sub(1);
    times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

/// Bytes that this process has given to the system to write.
fn written_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    Ok(line.ok_or("/proc/self/io has no wchar")?.parse()?)
}

impl Run {
    /// Fills the store and does the requests.
    pub fn measure<S: EntryStore>(&self) -> Result<Value> {
        let mut first: Vec<_> = (0..self.entries).map(entry).collect();
        first.sort_unstable();
        let store = S::with(&self.path, &first, self.memory_bytes)?;
        if self.memory_bytes.is_none() {
            let mut reader = store.reader()?;
            for entry in &first {
                reader.contains(entry)?;
            }
        }
        drop(first);
        let before = written_bytes()?;
        let begin = Instant::now();
        let (insertions, lookups) = self.work(&store)?;
        let seconds = begin.elapsed().as_secs_f64();
        Ok(json!({
            "seconds": seconds,
            "insertion_p999_ms": p999_ms(insertions),
            "lookup_p999_ms": p999_ms(lookups),
            "written_bytes": written_bytes()? - before,
        }))
    }

    /// Times of insertions and lookups.
    fn work<S: EntryStore>(&self, store: &S) -> Result<(Vec<Duration>, Vec<Duration>)> {
        let lookups = self.requests * self.lookups / 100;
        let insertions = self.requests - lookups;
        let inserted = &AtomicU64::new(self.entries);
        std::thread::scope(|scope| {
            let read = move |n| -> Result<Vec<Duration>> {
                let (mut rng, mut times) = (Rng::new(100 + n), Vec::new());
                let mut reader = store.reader()?;
                for _ in 0..lookups / READERS {
                    let entry = entry(rng.below(inserted.load(Relaxed)));
                    timed(&mut times, || reader.contains(&entry))?;
                }
                Ok(times)
            };
            let write = move || -> Result<Vec<Duration>> {
                let mut times = Vec::new();
                for _ in 0..insertions / WRITERS {
                    let entry = entry(inserted.fetch_add(1, Relaxed));
                    timed(&mut times, || store.insert(&entry))?;
                }
                Ok(times)
            };
            let readers: Vec<_> = (0..READERS).map(|n| scope.spawn(move || read(n))).collect();
            let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(write)).collect();
            let join = |threads: Vec<std::thread::ScopedJoinHandle<'_, Result<Vec<Duration>>>>| {
                let mut all = Vec::new();
                for thread in threads {
                    all.append(&mut thread.join().expect("a thread does not panic")?);
                }
                Result::Ok(all)
            };
            let insertions = join(writers);
            Ok((insertions?, join(readers)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<S: EntryStore>() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store").to_str().unwrap().to_string();
        let mut first: Vec<_> = (0..500).map(entry).collect();
        first.sort_unstable();
        {
            let store = S::with(&path, &first, Some(4 << 20)).unwrap();
            store.insert(&entry(500)).unwrap();
            let mut reader = store.reader().unwrap();
            assert!((0..=500).all(|number| reader.contains(&entry(number)).unwrap()));
            assert!(!reader.contains(&entry(501)).unwrap());
        }
        let run = Run {
            path: directory.path().join("other").to_str().unwrap().to_string(),
            entries: 500,
            requests: 600,
            lookups: 50,
            memory_bytes: None,
        };
        let answer = run.measure::<S>().unwrap();
        assert!(answer["seconds"].as_f64().unwrap() > 0.0);
    }

    #[test]
    #[cfg(feature = "rocksdb")]
    fn rocksdb_has_entries() {
        check::<crate::rocksdb::RocksDb>();
    }

    #[test]
    fn lmdb_has_entries() {
        check::<crate::lmdb::Lmdb>();
    }
}
