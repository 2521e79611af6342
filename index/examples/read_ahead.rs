//! How fast pages come from a device: requests through a queue, pages through the page store with
//! and without reads ahead, and a cursor over all leaves of a search tree.
//!
//! ```text
//! cargo run --release -p strandline-index --example read_ahead -- DIRECTORY make
//! cargo run --release -p strandline-index --example read_ahead -- DIRECTORY FIGURE
//! ```
//!
//! Figures: `uring`, `threads` (8 KiB at random, depth 32), `prefetch`, `reads` (every page of the
//! file once, at random), `cursor`. Before each one the files must leave the page cache; `time`
//! shows the processor time. The raw figure: `fio --direct=1 --ioengine=io_uring --iodepth=32
//! --bs=8k
//! --rw=randread`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_base::rng::Rng;
use strandline_base::{Clock, CommitTs, Error, Result, RowId, SystemClock, Value};
use strandline_device::{Device, OsDevice, Queue, Request, ThreadQueue, Tier};
use strandline_index::{
    AccessMethod, Direction, KeyRange, PagedIndex, PagedIndexSettings, PartOrder,
};
use strandline_storage::pages::{
    Access, PAGE_BYTES, PageFileId, PageLog, PageNumber, PageSettings, PageStore, page_file_name,
};
use strandline_storage::wal::Lsn;

/// The file of random reads, and the one of the tree.
const PAGES: PageFileId = PageFileId(1);
const TREE: PageFileId = PageFileId(2);
/// 1 GiB.
const PAGE_COUNT: u32 = 1 << 17;
const KEYS: i64 = 20_000_000;
const DEPTH: usize = 32;
/// Pages that are read ahead of the one that is read.
const LOOK_AHEAD: usize = 96;

/// A log that keeps nothing: the files are only read after they have been made.
#[derive(Debug, Default)]
struct NoLog(AtomicU64);

impl PageLog for NoLog {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        let len = record.len() as u64;
        Ok(Lsn(self.0.fetch_add(len, Ordering::Relaxed) + len))
    }
    fn make_durable(&self, _through: Lsn) -> Result<()> {
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

fn settings() -> PagedIndexSettings {
    PagedIndexSettings::new(vec![PartOrder::default()], Arc::new(|| CommitTs(0)))
}

fn make(device: &Arc<OsDevice>) -> Result<()> {
    let store = store(device);
    store.create_file(PAGES)?;
    let mut last = PageNumber(0);
    while last.0 < PAGE_COUNT {
        let mut change = store.begin(PAGES);
        for _ in 0..64 {
            last = change.allocate()?;
            change.body_mut(last).fill(last.0 as u8);
        }
        change.commit()?;
    }
    let index = PagedIndex::create(store.clone(), TREE, settings())?;
    let mut load = index.bulk_load();
    for n in 0..KEYS {
        load.push(&[Value::BigInt(n)], RowId(n as u64), &mut Vec::new())?;
    }
    load.finish()?;
    store.checkpoint().map(drop)
}

/// All pages but those of the space map, in a random order.
fn shuffled() -> Vec<PageNumber> {
    let rng = &mut Rng::new(1);
    let mut pages: Vec<PageNumber> = (1..PAGE_COUNT / 2).map(PageNumber).collect();
    for at in (1..pages.len()).rev() {
        pages.swap(at, rng.below(at as u64 + 1) as usize);
    }
    pages
}

fn through_a_queue(device: &OsDevice, queue: &dyn Queue) -> Result<u64> {
    let file = device.open(&page_file_name(PAGES))?;
    let (mut pages, mut read) = (shuffled().into_iter(), 0);
    let request = |page: PageNumber, buffers| Request::Scatter {
        file: file.clone(),
        offset: u64::from(page.0) * PAGE_BYTES as u64,
        buffers,
    };
    let first = pages.by_ref().take(DEPTH);
    queue.submit(
        first
            .map(|page| (0, request(page, vec![vec![0; PAGE_BYTES]])))
            .collect(),
    );
    while queue.outstanding() > 0 {
        let done = queue.complete(1);
        read += done.len() as u64;
        let mut batch = Vec::with_capacity(done.len());
        for completion in done {
            completion.result?;
            batch.extend(
                pages
                    .next()
                    .map(|page| (0, request(page, completion.buffers))),
            );
        }
        queue.submit(batch);
    }
    Ok(read)
}

fn through_the_store(device: &Arc<OsDevice>, is_ahead: bool) -> Result<u64> {
    let store = store(device);
    store.open_file(PAGES)?;
    let pages = shuffled();
    let mut ahead = 0;
    for (at, page) in pages.iter().enumerate() {
        if is_ahead && ahead < pages.len() && ahead <= at + LOOK_AHEAD / 2 {
            let end = (at + LOOK_AHEAD).min(pages.len());
            ahead = ahead.max(at);
            ahead += store.prefetch(PAGES, &pages[ahead..end]);
        }
        std::hint::black_box(store.read(PAGES, *page, Access::Random)?[0]);
    }
    println!("{:?} {:?}", store.stats(), store.read_ahead_stats());
    Ok(store.stats().reads)
}

fn by_a_cursor(device: &Arc<OsDevice>) -> Result<u64> {
    let store = store(device);
    store.open_file(TREE)?;
    let index = PagedIndex::open(store.clone(), TREE, settings())?;
    let before = store.stats().reads;
    let mut cursor = index.cursor(&KeyRange::default(), Direction::Forward)?;
    let (mut rows, mut count) = (Vec::new(), 0);
    while cursor.next_rows(1 << 10, &mut rows)? {
        count += rows.len();
        rows.clear();
    }
    println!("{count} entries, {:?}", store.read_ahead_stats());
    Ok(store.stats().reads - before)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, figure] = arguments.as_slice() else {
        return Err(Error::internal("arguments: DIRECTORY FIGURE"));
    };
    let device = Arc::new(OsDevice::open(directory)?);
    let begin = SystemClock.elapsed_us();
    let pages = match figure.as_str() {
        "make" => return make(&device),
        "uring" => through_a_queue(&device, &*device.queue(Tier::Fast, DEPTH)?)?,
        "threads" => through_a_queue(&device, &ThreadQueue::new(DEPTH)?)?,
        "prefetch" => through_the_store(&device, true)?,
        "reads" => through_the_store(&device, false)?,
        "cursor" => by_a_cursor(&device)?,
        _ => return Err(Error::internal("no such figure")),
    };
    let us = (SystemClock.elapsed_us() - begin).max(1);
    let per_second = pages * 1_000_000 / us;
    let megabytes = per_second * PAGE_BYTES as u64 / 1_000_000;
    println!("{figure}: {per_second} pages/s, {megabytes} MB/s, {pages} pages in {us} us");
    Ok(())
}
