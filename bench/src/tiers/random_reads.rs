//! The group `random_reads`: what the pool and the engine add to the reads of the device.
//!
//! | case | peer |
//! |---|---|
//! | pages of 8 KiB at random, 32 reads at a time, through the page store | the same reads, raw |
//! | scan of all columns after a restart | the same files, raw |
//! | a frame in memory | 100 ns |
//!
//! *Raw* is what a thread per read gets past the page cache (`O_DIRECT`), or what the device's
//! queue gets, whichever is more. Before each round the files leave the page cache.

use super::{Bench, files};
use crate::Result;
use crate::ours::Ours;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, Spread, interleave};
use serde_json::json;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use strandline_base::rng::Rng;
use strandline_device::{Device, OsDevice, Request, Tier};
use strandline_storage::pages::{
    Access, PAGE_BYTES, PageFileId, PageLog, PageNumber, PageSettings, PageStore, page_file_name,
};
use strandline_storage::pool::{FrameHandle, Pool};
use strandline_storage::wal::Lsn;

/// Rounds of every case; the figure is their median.
const ROUNDS: usize = 3;
/// Pages of the file, and with --quick.
const PAGES: u32 = 1 << 16;
const QUICK_PAGES: u32 = 1 << 14;
/// Reads at the same time.
const DEPTH: usize = 32;
/// Pages that are read ahead of the one that is read.
const LOOK_AHEAD: usize = 96;
/// Rows of the scanned table, and with --quick.
const ROWS: u64 = 4_000_000;
const QUICK_ROWS: u64 = 500_000;
/// Columns of the scanned table, whose values do not compress.
const COLUMNS: usize = 10;
/// Bytes of one raw read of a scan, and such reads at the same time.
const SCAN_BYTES: usize = 1 << 20;
const SCAN_DEPTH: usize = 4;
/// Reads of a frame in memory, and of a page.
const HOT_READS: u32 = 20_000_000;
const FILE: PageFileId = PageFileId(1);
/// Alignment of reads past the page cache.
const ALIGNMENT: usize = 4096;

/// The group.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    random(bench, report)?;
    scan(bench, report)?;
    hot(report)
}

/// A log that keeps nothing: the file is only read after it was made.
#[derive(Debug, Default)]
struct NoLog(AtomicU64);

impl PageLog for NoLog {
    fn append(&self, record: &[u8]) -> strandline::Result<Lsn> {
        let len = record.len() as u64;
        Ok(Lsn(self.0.fetch_add(len, Ordering::Relaxed) + len))
    }

    fn make_durable(&self, _through: Lsn) -> strandline::Result<()> {
        Ok(())
    }

    fn end(&self) -> Lsn {
        Lsn(self.0.load(Ordering::Relaxed))
    }
}

fn store(device: &Arc<OsDevice>) -> Arc<PageStore> {
    let log = Arc::new(NoLog::default());
    PageStore::new(device.clone(), log, PageSettings::default())
}

/// Makes a file of about so many pages.
fn make_pages(device: &Arc<OsDevice>, pages: u32) -> Result<()> {
    let store = store(device);
    store.create_file(FILE)?;
    let mut last = PageNumber(0);
    while last.0 < pages {
        let mut change = store.begin(FILE);
        for _ in 0..64 {
            last = change.allocate()?;
            change.body_mut(last).fill(last.0 as u8);
        }
        change.commit()?;
    }
    store.checkpoint()?;
    Ok(())
}

/// Most pages of the file in a random order. Page 0 is the map of the others.
fn shuffled(pages: u32, seed: u64) -> Vec<PageNumber> {
    let rng = &mut Rng::new(seed);
    let mut order: Vec<PageNumber> = (1..pages).map(PageNumber).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    order
}

fn random(bench: &Bench, report: &mut Report) -> Result<()> {
    let directory = bench.directory.join("random-reads");
    let device = Arc::new(OsDevice::open(&directory)?);
    let pages = bench.sized(PAGES, QUICK_PAGES);
    make_pages(&device, pages)?;
    let path = directory.join(page_file_name(FILE));
    let timed = |round: u64, read: &dyn Fn(&[PageNumber]) -> Result<()>| -> Result<f64> {
        let order = shuffled(pages, bench.seed + round);
        files::forget(&path)?;
        let begun = Instant::now();
        read(&order)?;
        Ok(order.len() as f64 / begun.elapsed().as_secs_f64())
    };
    let sides: Vec<Side<'_>> = vec![
        Box::new(|round| timed(round, &|order| through_the_store(&device, order))),
        Box::new(|round| timed(round, &|order| through_the_queue(&device, order))),
        Box::new(|round| timed(round, &|order| by_threads(&path, order))),
    ];
    let spreads = interleave(ROUNDS, sides)?;
    let (raw, how) = better(spreads[1], spreads[2]);
    report.add(Figure {
        case: "random reads of pages through the page store".into(),
        unit: "pages/s",
        ours: spreads[0],
        peer: format!("raw, {how}"),
        theirs: Some(raw),
        goal: Some(Goal::AtLeast(0.85)),
        config: config([
            ("page_bytes", json!(PAGE_BYTES)),
            ("pages", json!(pages)),
            ("depth", json!(DEPTH)),
            ("look_ahead", json!(LOOK_AHEAD)),
            ("rounds", json!(ROUNDS)),
            ("queue", json!(device.queue(Tier::Capacity, DEPTH)?.kind())),
            ("queue_pages_s", json!(spreads[1].median.round())),
            ("threads_pages_s", json!(spreads[2].median.round())),
            (
                "io",
                json!("ours O_DIRECT where nothing is in the page cache"),
            ),
        ]),
    })?;
    Ok(std::fs::remove_dir_all(directory)?)
}

/// The raw figure: the one of the queue or the one of threads.
fn better(queue: Spread, threads: Spread) -> (Spread, &'static str) {
    match queue.median >= threads.median {
        true => (queue, "device's queue"),
        false => (threads, "O_DIRECT, a thread per read"),
    }
}

fn through_the_store(device: &Arc<OsDevice>, order: &[PageNumber]) -> Result<()> {
    let store = store(device);
    store.open_file(FILE)?;
    let mut ahead = 0;
    for (at, page) in order.iter().enumerate() {
        if ahead < order.len() && ahead <= at + LOOK_AHEAD / 2 {
            let end = (at + LOOK_AHEAD).min(order.len());
            ahead = ahead.max(at);
            ahead += store.prefetch(FILE, &order[ahead..end]);
        }
        black_box(store.read(FILE, *page, Access::Random)?[0]);
    }
    Ok(())
}

fn through_the_queue(device: &OsDevice, order: &[PageNumber]) -> Result<()> {
    let (file, queue) = (
        device.open(&page_file_name(FILE))?,
        device.queue(Tier::Capacity, DEPTH)?,
    );
    let mut pages = order.iter();
    let request = |page: &PageNumber, buffers| Request::Scatter {
        file: file.clone(),
        offset: u64::from(page.0) * PAGE_BYTES as u64,
        buffers,
    };
    let first = pages.by_ref().take(DEPTH);
    let first = first.map(|page| (0, request(page, vec![vec![0; PAGE_BYTES]])));
    queue.submit(first.collect());
    while queue.outstanding() > 0 {
        let mut batch = Vec::with_capacity(DEPTH);
        for completion in queue.complete(1) {
            completion.result?;
            black_box(&completion.buffers);
            let next = pages.next();
            batch.extend(next.map(|page| (0, request(page, completion.buffers))));
        }
        queue.submit(batch);
    }
    Ok(())
}

fn by_threads(path: &Path, order: &[PageNumber]) -> Result<()> {
    let at = |turn: usize| {
        let page = order.get(turn)?;
        Some((u64::from(page.0) * PAGE_BYTES as u64, PAGE_BYTES))
    };
    read_raw(path, DEPTH, PAGE_BYTES, &at)
}

/// Reads places of a file past the page cache from so many threads, each place of at most
/// `bytes_max`. `place` gives offset and bytes of read number 0, 1, …, and None at the end.
fn read_raw(
    path: &Path,
    threads: usize,
    bytes_max: usize,
    place: &(dyn Fn(usize) -> Option<(u64, usize)> + Sync),
) -> Result<()> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = File::options().read(true).custom_flags(direct).open(path)?;
    let (file, turns) = (&file, &AtomicUsize::new(0));
    let read = move || -> std::io::Result<()> {
        let mut memory = vec![0; bytes_max + ALIGNMENT];
        let from = memory.as_ptr().align_offset(ALIGNMENT);
        let buffer = &mut memory[from..from + bytes_max];
        while let Some((offset, bytes)) = place(turns.fetch_add(1, Ordering::Relaxed)) {
            // The last read of a file is as long as the others: past the page cache its length must
            // be aligned.
            let read = file.read_at(buffer, offset)?;
            if read < bytes {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            black_box(&buffer[..bytes]);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
        let joined = threads.into_iter().map(|t| t.join().expect("no panic"));
        joined.collect::<std::io::Result<()>>()
    })?;
    Ok(())
}

/// The chunk files of a database's directory with their lengths.
fn chunk_files(directory: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("chunks-") {
            found.push((entry.path(), entry.metadata()?.len()));
        }
    }
    Ok(found)
}

fn scan(bench: &Bench, report: &mut Report) -> Result<()> {
    let directory = bench.directory.join("cold-scan");
    let rows = bench.sized(ROWS, QUICK_ROWS);
    let names: Vec<String> = (0..COLUMNS).map(|n| format!("c{n}")).collect();
    let threads = bench.cores;
    let ours = Ours::open(&directory, threads)?;
    ours.execute(&format!(
        "CREATE TABLE t ({} bigint)",
        names.join(" bigint, ")
    ))?;
    let mut rng = Rng::new(bench.seed);
    ours.append_bigints("t", COLUMNS, rows, |_, values| {
        values.fill_with(|| rng.below(u64::MAX) as i64);
    })?;
    ours.checkpoint()?;
    ours.database().close()?;
    drop(ours);
    let chunks = chunk_files(&directory)?;
    let bytes: u64 = chunks.iter().map(|(_, len)| len).sum();
    let largest: Vec<String> = names.iter().map(|name| format!("max({name})")).collect();
    let sql = format!("SELECT {} FROM t", largest.join(", "));
    let ours = |_| -> Result<f64> {
        files::forget(&directory)?;
        let ours = Ours::open(&directory, threads)?;
        let begun = Instant::now();
        ours.query(&sql)?;
        let rate = bytes as f64 / begun.elapsed().as_secs_f64();
        ours.database().close()?;
        Ok(rate)
    };
    let raw = |_| -> Result<f64> {
        files::forget(&directory)?;
        let begun = Instant::now();
        for (path, len) in &chunks {
            let place = |turn: usize| {
                let offset = (turn * SCAN_BYTES) as u64;
                let left = len.checked_sub(offset).filter(|&left| left > 0)?;
                Some((offset, SCAN_BYTES.min(left as usize)))
            };
            read_raw(path, SCAN_DEPTH, SCAN_BYTES, &place)?;
        }
        Ok(bytes as f64 / begun.elapsed().as_secs_f64())
    };
    let spreads = interleave(ROUNDS, vec![Box::new(ours), Box::new(raw)])?;
    report.add(Figure {
        case: "scan of all columns after a restart".into(),
        unit: "bytes/s",
        ours: spreads[0],
        peer: "raw, O_DIRECT".into(),
        theirs: Some(spreads[1]),
        goal: Some(Goal::AtLeast(0.8)),
        config: config([
            ("rows", json!(rows)),
            ("columns", json!(COLUMNS)),
            ("bytes", json!(bytes)),
            ("files", json!(chunks.len())),
            ("threads", json!(threads)),
            ("raw_read_bytes", json!(SCAN_BYTES)),
            ("raw_depth", json!(SCAN_DEPTH)),
            ("rounds", json!(ROUNDS)),
            ("io", json!("ours buffered, the page cache empty")),
        ]),
    })?;
    Ok(std::fs::remove_dir_all(directory)?)
}

/// Nanoseconds of a read of what is in memory.
fn hot(report: &mut Report) -> Result<()> {
    let pool = Pool::new(1 << 20);
    let handle: FrameHandle<Vec<u64>> = FrameHandle::new(&pool);
    handle.get_or_load(|| Ok(((0..1_024).collect(), 8 << 10)))?;
    let frame = |_| {
        let begun = Instant::now();
        for n in 0..HOT_READS as usize {
            let read = black_box(&handle).with(|frame| frame[n % 1_024]);
            black_box(read.ok_or("the frame has left memory")?);
        }
        Ok(begun.elapsed().as_nanos() as f64 / f64::from(HOT_READS))
    };
    let spreads = interleave(ROUNDS, vec![Box::new(frame)])?;
    report.add(Figure {
        case: "read of a frame in memory".into(),
        unit: "ns",
        ours: spreads[0],
        peer: "the goal".into(),
        theirs: Some(100.0.into()),
        goal: Some(Goal::AtMost(1.0)),
        config: config([
            ("reads", json!(HOT_READS)),
            ("threads", json!(1)),
            ("rounds", json!(ROUNDS)),
        ]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_of_reading_read_all_pages() {
        let directory = tempfile::tempdir().unwrap();
        let device = Arc::new(OsDevice::open(directory.path()).unwrap());
        make_pages(&device, 200).unwrap();
        let mut order = shuffled(200, 7);
        through_the_store(&device, &order).unwrap();
        through_the_queue(&device, &order).unwrap();
        order.sort_unstable();
        assert!(order.iter().map(|page| page.0).eq(1..200));
    }

    #[test]
    fn raw_reads_end_with_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let reads = AtomicUsize::new(0);
        let place = |turn: usize| {
            reads.fetch_add(1, Ordering::Relaxed);
            [(0, 8_192), (8_192, 1_808)].get(turn).copied()
        };
        read_raw(&path, 3, 8_192, &place).unwrap();
        assert_eq!(reads.into_inner(), 5, "each thread sees the end");
        let beyond = |turn: usize| (turn == 0).then_some((8_192, 8_192));
        assert!(read_raw(&path, 1, 8_192, &beyond).is_err());
    }
}
