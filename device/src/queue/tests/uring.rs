//! What only a queue over io_uring has: pieces, files read past the page cache, and requests that
//! the kernel keeps for as long as a test wants. These read from pipes.

use super::*;
use crate::Descriptors;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::AsFd;
use std::path::Path;

/// A file whose reads end when a test has written to its pipe.
#[derive(Debug)]
struct Pipe {
    reader: PipeReader,
    inner: Arc<dyn File>,
}

impl File for Pipe {
    crate::forward!(inner: name read_exact_at write_all_at sync len set_len);

    fn descriptors(&self) -> Option<Descriptors<'_>> {
        Some(Descriptors {
            buffered: self.reader.as_fd(),
            direct: None,
            path: Path::new("a pipe"),
        })
    }
}

fn pipe_file() -> (Arc<dyn File>, PipeWriter) {
    let (reader, writer) = pipe().unwrap();
    let inner = file();
    (Arc::new(Pipe { reader, inner }), writer)
}

/// None on machines that do not allow io_uring: then there is nothing to test.
fn queue(depth: usize) -> Option<UringQueue> {
    UringQueue::new(depth).ok()
}

#[test]
fn the_kernel_serves_where_it_can() {
    let kind = os_queue(2).unwrap().kind();
    assert_eq!(kind == "io_uring", queue(2).is_some());
}

#[test]
fn requests_complete_in_any_order_and_no_more_than_the_depth_are_in_service() {
    let Some(queue) = queue(2) else { return };
    let (first, mut to_first) = pipe_file();
    let (second, mut to_second) = pipe_file();
    let (third, mut to_third) = pipe_file();
    queue.submit(vec![
        (1, read(&first, 0, &[3])),
        (2, read(&second, 0, &[1, 2])),
        (3, read(&third, 0, &[1])),
    ]);
    to_third.write_all(b"z").unwrap();
    assert!(queue.complete(0).is_empty(), "the third one waits");
    to_second.write_all(b"bcd").unwrap();
    let done = queue.complete(2);
    let tags: Vec<u64> = done.iter().map(|completion| completion.tag).collect();
    assert_eq!(tags, [2, 3]);
    assert_eq!(done[0].buffers, [&b"b"[..], b"cd"]);
    assert_eq!(queue.outstanding(), 1);
    to_first.write_all(b"aaa").unwrap();
    assert_eq!(queue.complete(1)[0].buffers, [b"aaa"]);
}

#[test]
fn short_reads_go_on_until_the_end_of_the_file() {
    let Some(queue) = queue(1) else { return };
    let (pipe, mut writer) = pipe_file();
    queue.submit(vec![(1, read(&pipe, 0, &[2, 4]))]);
    for piece in [&b"a"[..], b"bcd", b"ef"] {
        assert!(queue.complete(0).is_empty());
        writer.write_all(piece).unwrap();
    }
    assert_eq!(queue.complete(1)[0].buffers, [&b"ab"[..], b"cdef"]);
    queue.submit(vec![(2, read(&pipe, 0, &[6]))]);
    writer.write_all(b"gh").unwrap();
    drop(writer);
    let error = queue.complete(1).remove(0).result.unwrap_err();
    assert!(error.to_string().contains("6 bytes expected"), "{error}");
}

/// The ring and its memory live until the kernel is done with them.
#[test]
fn a_dropped_queue_waits_for_the_kernel() {
    let Some(queue) = queue(4) else { return };
    let pipes: Vec<_> = (0..3).map(|_| pipe_file()).collect();
    let reads = pipes.iter().map(|(pipe, _)| (0, read(pipe, 0, &[8])));
    queue.submit(reads.collect());
    std::thread::scope(|scope| {
        scope.spawn(move || drop(queue));
        for (pipe, mut writer) in pipes {
            assert!(
                Arc::strong_count(&pipe) > 1,
                "the queue keeps the file open"
            );
            writer.write_all(&[1; 8]).unwrap();
        }
    });
}

/// Two threads wait, one of them for the kernel. The one that takes the last of the others'
/// requests ends the request that the kernel keeps.
#[test]
fn a_waiting_thread_serves_the_others() {
    let Some(queue) = queue(3) else { return };
    let (slow, mut writer) = pipe_file();
    queue.submit(vec![(0, read(&slow, 0, &[1]))]);
    let file = os_file();
    file.set_len(8).unwrap();
    let (queue, file, taken) = (&queue, &file, &Mutex::new(Vec::new()));
    let writer = &Mutex::new(&mut writer);
    std::thread::scope(|scope| {
        for thread in 1..4 {
            scope.spawn(move || {
                for n in 0..100 {
                    queue.submit(vec![(thread << 32 | n, read(file, 0, &[8]))]);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(move || {
                while taken.lock().unwrap().len() < 300 {
                    let done = queue.complete(1);
                    let mut taken = taken.lock().unwrap();
                    taken.extend(done);
                    if taken.len() == 300 {
                        writer.lock().unwrap().write_all(b"x").unwrap();
                    }
                }
            });
        }
    });
    let mut taken = std::mem::take(&mut *taken.lock().unwrap());
    taken.extend(queue.complete(usize::MAX));
    assert_eq!(by_tag(taken).len(), 301);
}

#[test]
fn an_error_names_the_file_and_stays_with_its_request() {
    let Some(queue) = queue(4) else { return };
    let directory = tempfile::tempdir().unwrap();
    let device = OsDevice::open(directory.path()).unwrap();
    let good = device.create("good").unwrap();
    let mut batch = vec![(1, write(&good, 0, &[&[7; 8192]]))];
    let read_only = OsDevice::open_read_only(directory.path()).unwrap();
    let refused = read_only.open("good").unwrap();
    batch.push((2, write(&refused, 0, &[b"x"])));
    batch.push((3, read(&good, 1 << 40, &[4096])));
    queue.submit(batch);
    let done = by_tag(queue.complete(3));
    assert!(done[&1].result.is_ok());
    for tag in [2, 3] {
        let error = done[&tag].result.as_ref().unwrap_err().to_string();
        let path = directory.path().join("good");
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
    queue.submit(vec![(4, Request::Sync { file: good.clone() })]);
    queue.complete(1).remove(0).result.unwrap();
}

/// Reads past the page cache see what was written through it, and so do reads of the end of a file.
#[test]
fn reads_past_the_page_cache_are_current() {
    let Some(queue) = queue(8) else { return };
    let file = os_file();
    let mut content: Vec<u8> = (0..96 << 10).map(|at| (at / 977) as u8).collect();
    content.truncate(94_001);
    file.write_all_at(&content, 0).unwrap();
    for is_synced in [false, true] {
        if is_synced {
            file.sync().unwrap();
            drop_from_page_cache(&*file);
        }
        let read = read(&file, 8192, &[4096, 73_728, 4096]);
        let beyond = super::read(&file, 90_112, &[4096]);
        queue.submit(vec![(1, read), (2, beyond)]);
        let done = by_tag(queue.complete(2));
        assert!(done[&1].buffers.concat() == content[8192..][..81_920]);
        let error = done[&2].result.as_ref().unwrap_err();
        assert!(error.to_string().contains("ends at 94001"), "{error}");
    }
}

fn drop_from_page_cache(file: &dyn File) {
    let descriptors = file.descriptors().unwrap();
    let advice = rustix::fs::Advice::DontNeed;
    rustix::fs::fadvise(descriptors.buffered, 0, None, advice).unwrap();
}
