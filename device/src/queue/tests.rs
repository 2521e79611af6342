use super::*;
use crate::{Device, MemoryDevice, OsDevice};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};
use strandline_base::rng::Rng;
use strandline_base::{Error, ErrorKind};

#[cfg(target_os = "linux")]
mod uring;

/// Queues of every kind that this machine has, each with an empty file.
fn queues() -> Vec<(Box<dyn Queue>, Arc<dyn File>)> {
    let mut queues: Vec<(Box<dyn Queue>, Arc<dyn File>)> = Vec::new();
    for file in [file, os_file] {
        queues.push((Box::new(InlineQueue::new()), file()));
        for depth in [1, 2, 9] {
            queues.push((Box::new(ThreadQueue::new(depth).unwrap()), file()));
            #[cfg(target_os = "linux")]
            if let Ok(queue) = UringQueue::new(depth) {
                queues.push((Box::new(queue), file()));
            }
        }
    }
    queues
}

fn file() -> Arc<dyn File> {
    MemoryDevice::new().create("a").unwrap()
}

/// A file of the operating system, whose name is gone already.
fn os_file() -> Arc<dyn File> {
    let directory = tempfile::tempdir().unwrap();
    let device = OsDevice::open(directory.path()).unwrap();
    device.create("a").unwrap()
}

fn read(file: &Arc<dyn File>, offset: u64, lens: &[usize]) -> Request {
    Request::Scatter {
        file: file.clone(),
        offset,
        buffers: lens.iter().map(|&len| vec![0; len]).collect(),
    }
}

fn write(file: &Arc<dyn File>, offset: u64, buffers: &[&[u8]]) -> Request {
    Request::Gather {
        file: file.clone(),
        offset,
        buffers: buffers.iter().map(|buffer| buffer.to_vec()).collect(),
    }
}

fn by_tag(completions: Vec<Completion>) -> BTreeMap<u64, Completion> {
    let count = completions.len();
    let by_tag: BTreeMap<_, _> = completions.into_iter().map(|c| (c.tag, c)).collect();
    assert_eq!(by_tag.len(), count, "a tag twice");
    by_tag
}

#[test]
fn buffers_are_gathered_and_scattered_in_order() {
    for (queue, file) in queues() {
        queue.submit(vec![
            (7, write(&file, 0, &[b"abc", b"", b"defg"])),
            (8, write(&file, 7, &[b"hi"])),
        ]);
        let done = by_tag(queue.complete(2));
        assert!(done.values().all(|completion| completion.result.is_ok()));
        assert_eq!(done[&7].buffers[2], b"defg", "the buffers come back");
        let sync = Request::Sync { file: file.clone() };
        queue.submit(vec![(1, read(&file, 1, &[2, 0, 5])), (2, sync)]);
        queue.submit(vec![
            (3, read(&file, 8, &[1])),
            (4, read(&file, 8, &[1, 1])),
        ]);
        let done = by_tag(queue.complete(usize::MAX));
        assert_eq!(done[&1].buffers, [&b"bc"[..], b"", b"defgh"]);
        assert_eq!(done[&3].buffers, [b"i"]);
        assert!(done[&2].result.is_ok());
        let error = done[&4].result.as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "past the end");
        assert_eq!((queue.outstanding(), queue.complete(3).len()), (0, 0));
    }
}

#[test]
fn every_request_is_completed_once_from_many_threads() {
    for (queue, file) in queues() {
        file.set_len(64 * 8).unwrap();
        let taken = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (queue, file, taken) = (&*queue, &file, &taken);
                scope.spawn(move || {
                    for n in 0..64 {
                        let tag = thread << 32 | n;
                        queue.submit(vec![(tag, write(file, n * 8, &[&n.to_le_bytes()]))]);
                        taken.lock().unwrap().extend(queue.complete(2));
                    }
                });
            }
        });
        let mut taken = taken.into_inner().unwrap();
        taken.extend(queue.complete(usize::MAX));
        assert_eq!(by_tag(taken).len(), 4 * 64);
        assert_eq!(queue.outstanding(), 0);
    }
}

/// A file whose reads wait until a number of them have come together.
#[derive(Debug)]
struct Meeting {
    inner: Arc<dyn File>,
    /// present readers and the most at the same time
    readers: Mutex<(usize, usize)>,
    changed: Condvar,
    wanted: usize,
}

impl File for Meeting {
    crate::forward!(inner: name write_all_at len set_len);

    fn sync(&self) -> Result<()> {
        Err(Error::internal("a failing sync"))
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut readers = self.readers.lock().unwrap();
        readers.0 += 1;
        readers.1 = readers.1.max(readers.0);
        self.changed.notify_all();
        while readers.1 < self.wanted {
            readers = self.changed.wait(readers).unwrap();
        }
        readers.0 -= 1;
        drop(readers);
        self.inner.read_exact_at(buf, offset)
    }
}

#[test]
fn as_many_requests_are_in_service_as_the_queue_is_deep() {
    for depth in [1, 2, 5] {
        let inner = file();
        inner.set_len(8).unwrap();
        let meeting = Arc::new(Meeting {
            inner,
            readers: Mutex::default(),
            changed: Condvar::new(),
            wanted: depth,
        });
        let file: Arc<dyn File> = meeting.clone();
        let queue = ThreadQueue::new(depth).unwrap();
        assert_eq!(queue.depth(), depth);
        queue.submit((0..20).map(|tag| (tag, read(&file, 0, &[8]))).collect());
        let mut done = Vec::new();
        while done.len() < 20 {
            done.extend(queue.complete(1));
        }
        by_tag(done);
        queue.submit(vec![(1, Request::Sync { file })]);
        queue.complete(1).remove(0).result.unwrap_err();
        assert_eq!(meeting.readers.lock().unwrap().1, depth, "never more");
    }
    assert_eq!(ThreadQueue::new(0).unwrap().depth(), 1);
}

#[test]
fn a_dropped_queue_waits_for_what_is_in_service() {
    for (queue, file) in queues() {
        let writes = (0..50).map(|tag| (tag, write(&file, tag, &[b"x"])));
        queue.submit(writes.collect());
        let first = queue.complete(1).len();
        drop(queue);
        let len = file.len().unwrap();
        assert!(first >= 1 && (1..=50).contains(&len));
        assert_eq!(Arc::strong_count(&file), 1, "no queue has it any more");
    }
}

/// Transfers of every size at every place, some longer than a piece of a ring.
#[test]
fn long_and_unaligned_transfers_are_whole() {
    for (queue, file) in queues() {
        let rng = &mut Rng::new(1);
        let mut content = vec![0; 400_000];
        file.set_len(content.len() as u64).unwrap();
        for round in 0..30 {
            let (mut writes, mut at) = (Vec::new(), 0);
            while at < content.len() {
                let lens = [rng.below(9_000), rng.below(90_000), 4096].map(|len| len as usize);
                let end = (at + lens.iter().sum::<usize>()).min(content.len());
                content[at..end].fill(round ^ rng.next_u64() as u8);
                let first = (at + lens[0]).min(end);
                let pieces = [&content[at..first], &[], &content[first..end]];
                writes.push((at as u64, write(&file, at as u64, &pieces)));
                at = end + rng.below(3_000) as usize;
            }
            let count = writes.len();
            queue.submit(writes);
            let done = by_tag(queue.complete(count));
            assert!(done.values().all(|completion| completion.result.is_ok()));
            let reads = (0..20).map(|_| {
                let from = rng.below(content.len() as u64 / 4096) * 4096;
                let len = rng.below(content.len() as u64 - from) as usize;
                let aligned = len / 4096 * 4096;
                let lens = if rng.one_in(2) {
                    [aligned, 0]
                } else {
                    [len / 3, len / 2]
                };
                (from, read(&file, from, &lens))
            });
            let reads: BTreeMap<u64, Request> = reads.collect();
            let count = reads.len();
            queue.submit(reads.into_iter().collect());
            for (from, completion) in by_tag(queue.complete(count)) {
                completion.result.unwrap();
                let found = completion.buffers.concat();
                assert!(
                    found == content[from as usize..][..found.len()],
                    "at {from}"
                );
            }
        }
    }
}

#[test]
fn threads_serve_where_the_kernel_refuses() {
    for refusal in [
        std::io::ErrorKind::PermissionDenied,
        std::io::ErrorKind::Unsupported,
        std::io::ErrorKind::OutOfMemory,
    ] {
        let queue = or_threads(Err(refusal.into()), 3).unwrap();
        assert_eq!((queue.kind(), queue.depth()), ("threads", 3));
    }
    let inline = or_threads(Ok(Arc::new(InlineQueue::new())), 3).unwrap();
    assert_eq!(inline.kind(), "inline");
}

#[test]
fn requests_are_counted() {
    let file = file();
    let queue = CountedQueue::new(Arc::new(ThreadQueue::new(2).unwrap()));
    let writes = |tags: std::ops::Range<u64>| {
        let writes = tags.map(|tag| (tag, write(&file, tag, &[b"x"])));
        writes.collect()
    };
    queue.submit(writes(0..5));
    queue.submit(writes(5..7));
    let first = queue.complete(3).len() as u64;
    assert!((3..=7).contains(&first));
    queue.complete(usize::MAX);
    queue.submit(writes(0..1));
    let stats = QueueStats {
        submitted: 8,
        completed: 7,
        outstanding_max: 7,
    };
    assert_eq!(queue.stats(), stats);
    assert_eq!((queue.outstanding(), queue.depth()), (1, 2));
}
