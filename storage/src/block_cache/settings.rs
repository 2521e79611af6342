//! Settings of the cache, and the bounds that follow from them.

/// Bytes of memory of an indexed block: its entry, and its key in the list of its segment.
pub(super) const ENTRY_BYTES: usize = 96;
/// Bytes of memory of a block that was read once (`ghost`).
pub(super) const GHOST_BYTES: usize = 64;
/// Bytes of the smallest index by default.
const INDEX_BYTES_MIN: usize = 64 << 10;
/// Segments in memory: one is filled, one waits, one is assembled or read.
pub(super) const SEGMENTS_IN_MEMORY: usize = 3;
/// The largest block is this inverse share of a segment.
const BLOCK_PART: u32 = 4;
/// While a segment waits to be written, admissions leave this inverse share of the next one to
/// reinsertions.
const REINSERTED_PART: u32 = 2;

/// The blocks that are admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// at the first random read
    #[default]
    FirstRead,
    /// at the second random read, if as many other blocks as the cache may hold at most have been
    /// read once in between
    SecondRead,
}

impl Admission {
    /// Every rule.
    pub const ALL: [Self; 2] = [Self::FirstRead, Self::SecondRead];

    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstRead => "first_read",
            Self::SecondRead => "second_read",
        }
    }
}

/// Settings of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// identifies the database; the file carries it
    pub identity: u128,
    /// bytes of the file, rounded down to whole segments
    pub cache_bytes: u64,
    /// bytes that are written together; three times as many are taken from memory
    pub segment_bytes: u32,
    /// bound on the memory of the index in bytes
    pub index_bytes_max: usize,
    /// the blocks to admit
    pub admission: Admission,
}

impl Settings {
    /// The default size of a segment.
    pub const SEGMENT_BYTES: u32 = 4 << 20;

    /// The defaults for a file of `cache_bytes`: segments of 4 MiB, an index of at most a 64th of
    /// the file's bytes, or 64 KiB.
    pub fn new(identity: u128, cache_bytes: u64) -> Self {
        Self {
            identity,
            cache_bytes,
            segment_bytes: Self::SEGMENT_BYTES,
            index_bytes_max: index_bytes_of(cache_bytes),
            admission: Admission::default(),
        }
    }

    /// These settings with another size, and the index that is the default for it.
    pub(super) fn resized(self, cache_bytes: u64) -> Self {
        Self {
            cache_bytes,
            index_bytes_max: index_bytes_of(cache_bytes),
            ..self
        }
    }

    /// The least `cache_bytes` for segments of this size: two of them. With one, a write would
    /// empty the cache.
    pub fn cache_bytes_min(&self) -> u64 {
        super::layout::HEADER_BYTES + 2 * u64::from(self.segment_bytes)
    }

    /// The most bytes of memory that the cache takes.
    pub fn memory_bytes_max(&self) -> usize {
        SEGMENTS_IN_MEMORY * self.segment_bytes as usize + self.index_bytes_max
    }

    /// The number of segments.
    pub(super) fn slots(&self) -> u32 {
        let bytes = self.cache_bytes.saturating_sub(super::layout::HEADER_BYTES);
        u32::try_from(bytes / u64::from(self.segment_bytes)).unwrap_or(u32::MAX)
    }

    /// The most blocks of the whole cache. A segment waiting in memory may be beyond it.
    pub(super) fn blocks_max(&self) -> usize {
        self.index_bytes_max / (ENTRY_BYTES + GHOST_BYTES)
    }

    /// The most blocks of a segment, at least one.
    pub(super) fn segment_blocks_max(&self) -> usize {
        (self.blocks_max() / self.slots().max(1) as usize).max(1)
    }

    /// Bytes of the largest block that is admitted.
    pub(super) fn block_bytes_max(&self) -> u32 {
        self.segment_bytes / BLOCK_PART
    }

    /// The share of a segment for admissions while another one waits to be written: bytes and
    /// blocks.
    pub(super) fn admitted_beside_write(&self) -> (usize, usize) {
        let (bytes, blocks) = (self.segment_bytes as usize, self.segment_blocks_max());
        let part = REINSERTED_PART as usize;
        (bytes - bytes / part, blocks - blocks / part)
    }
}

/// The default bound on the memory of the index.
fn index_bytes_of(cache_bytes: u64) -> usize {
    let bytes = usize::try_from(cache_bytes / 64).unwrap_or(usize::MAX);
    bytes.max(INDEX_BYTES_MIN)
}
