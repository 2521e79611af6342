//! Reads of several blocks that one reader wants at the same time, such as the blocks of a row's
//! columns.
//!
//! What the block cache does not have is asked of the device as one batch for each file. Blocks
//! that are close together are one read of the device. Of a chunk file of small chunks that is
//! a whole row; the blocks of large chunks are far apart, since a chunk's blocks are adjacent, so
//! that a scan of one column reads no other.
//!
//! Invariants:
//! 1. The order of the fetched blocks is that of the extents asked for.
//! 2. A read of several blocks has at most [`READ_BYTES_MAX`] bytes, and at most [`GAP_BYTES_MAX`]
//!    between two blocks that nobody asked for. A longer block is a read of its own.
//! 3. A block is offered to the block cache after its check, as by `StoredFile::read_block`.

use super::{Access, Extent, StoredFile};
use std::ops::Range;
use strandline_base::Result;
use strandline_device::ReadAt;

/// The most bytes of a read of several blocks.
pub const READ_BYTES_MAX: u64 = 64 << 10;
/// The most bytes between two blocks of one read. A device reads so many in about the time of a
/// request of its own.
pub const GAP_BYTES_MAX: u64 = 4 << 10;

/// A block in memory whose checksum nobody has compared yet.
#[derive(Debug)]
pub struct FetchedBlock<'a> {
    file: &'a StoredFile,
    offset: u64,
    bytes: Vec<u8>,
    /// the block cache may want it
    is_offered: bool,
}

impl FetchedBlock<'_> {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The block has passed its reader's check.
    pub fn note_checked(&self) {
        if self.is_offered {
            self.file.offer(self.offset, &self.bytes);
        }
    }

    /// The bytes, to be kept.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads blocks of files of one database together. The caller bounds the bytes of all of them, and
/// calls [`FetchedBlock::note_checked`] for each one whose checksum it has compared. Sequential
/// reads go past the block cache.
///
/// # Errors
/// Those of [`StoredFile::read`].
pub fn fetch<'a>(
    wanted: &[(&'a StoredFile, Extent)],
    access: Access,
) -> Result<Vec<FetchedBlock<'a>>> {
    let mut blocks = Vec::with_capacity(wanted.len());
    let mut missing = Vec::with_capacity(wanted.len());
    for (at, &(file, extent)) in wanted.iter().enumerate() {
        let mut bytes = Vec::new();
        file.size(&mut bytes, extent)?;
        let is_random = access == Access::Random && extent.len > 0;
        let is_cached = is_random && file.read_from_cache(extent.offset, &mut bytes);
        if !is_cached && extent.len > 0 {
            missing.push(at);
        }
        blocks.push(FetchedBlock {
            file,
            offset: extent.offset,
            bytes,
            is_offered: is_random && !is_cached,
        });
    }
    missing.sort_by_key(|&at| (wanted[at].0.id(), wanted[at].1.offset));
    for of_file in missing.chunk_by(|&a, &b| std::ptr::eq(wanted[a].0, wanted[b].0)) {
        read_of_file(&mut blocks, of_file, access)?;
    }
    Ok(blocks)
}

/// Adjacent blocks of a file that are one read.
struct Run {
    start: u64,
    end: u64,
    /// where their positions are
    blocks: Range<usize>,
}

impl Run {
    /// Whether a block from `start` on, which is not before the run's start, may be part of it.
    fn takes(&self, start: u64, end: u64) -> bool {
        start <= self.end.saturating_add(GAP_BYTES_MAX)
            && end.max(self.end) - self.start <= READ_BYTES_MAX
    }
}

/// The reads of blocks that are given by their positions in `blocks`, in the order of offsets.
fn runs_of(blocks: &[FetchedBlock<'_>], positions: &[usize]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::with_capacity(positions.len());
    for (n, &at) in positions.iter().enumerate() {
        let start = blocks[at].offset;
        let end = start.saturating_add(blocks[at].bytes.len() as u64);
        match runs.last_mut() {
            Some(run) if run.takes(start, end) => {
                run.end = run.end.max(end);
                run.blocks.end = n + 1;
            }
            _ => runs.push(Run {
                start,
                end,
                blocks: n..n + 1,
            }),
        }
    }
    runs
}

/// Reads blocks of one file, given as to [`runs_of`].
fn read_of_file(
    blocks: &mut [FetchedBlock<'_>],
    positions: &[usize],
    access: Access,
) -> Result<()> {
    let Some(&first) = positions.first() else {
        return Ok(());
    };
    let file = blocks[first].file;
    let runs = runs_of(blocks, positions);
    // A block that is a read of its own is read into its own memory.
    let own = |run: &Run| (run.blocks.len() == 1).then(|| positions[run.blocks.start]);
    let buffer = |run: &Run| match own(run) {
        Some(at) => std::mem::take(&mut blocks[at].bytes),
        None => vec![0; (run.end - run.start) as usize],
    };
    let mut buffers: Vec<Vec<u8>> = runs.iter().map(buffer).collect();
    let read = |(run, buf): (&Run, _)| ReadAt {
        offset: run.start,
        buf,
    };
    let bufs = buffers.iter_mut().map(Vec::as_mut_slice);
    let mut reads: Vec<ReadAt<'_>> = runs.iter().zip(bufs).map(read).collect();
    file.read_device_batch(&mut reads, access)?;
    for (run, buffer) in runs.iter().zip(buffers) {
        if let Some(at) = own(run) {
            blocks[at].bytes = buffer;
            continue;
        }
        for &at in &positions[run.blocks.clone()] {
            let block = &mut blocks[at];
            let from = (block.offset - run.start) as usize;
            let bytes = &buffer[from..from + block.bytes.len()];
            block.bytes.copy_from_slice(bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
