//! Settings of the cache, and the address of a block.

pub use crate::block_key::BlockKey;

/// Memory of a cached block: its entry, its place in the index, elements of the clock's queue.
const ENTRY_BYTES: u64 = 256;

/// How the cache treats dirty blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Persistent cache: a fresh victim is copied out for each slot that an admission has taken,
    /// all of a round under one sync.
    #[default]
    #[doc(alias = "PC")]
    Pc,
    /// Persistent cache that copies out a batch of victims under one sync when a slot is short.
    #[doc(alias = "PC2")]
    Pc2,
    /// Lazy cleaning, a baseline: the SSD's content does not count after a crash. Fresh blocks are
    /// copied out above a threshold and at every checkpoint.
    #[doc(alias = "LC")]
    Lc,
    /// No cache. Opening copies the fresh blocks of an earlier mode out and removes the files.
    Off,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Pc, Self::Pc2, Self::Lc, Self::Off];

    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pc => "pc",
            Self::Pc2 => "pc2",
            Self::Lc => "lc",
            Self::Off => "off",
        }
    }

    /// Whether blocks in the cache count after a crash.
    pub fn is_lasting(self) -> bool {
        matches!(self, Self::Pc | Self::Pc2)
    }
}

/// The blocks that the cache takes when they are evicted from memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// blocks read at random, and dirty blocks that are cached already [SSD-DB §2.4.5]
    #[default]
    Qualified,
    /// sequentially read blocks too
    Everything,
    /// no block that is not cached already
    Nothing,
}

impl Admission {
    /// Every rule.
    pub const ALL: [Self; 3] = [Self::Qualified, Self::Everything, Self::Nothing];

    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qualified => "random",
            Self::Everything => "all",
            Self::Nothing => "none",
        }
    }
}

/// The reaction of an opening to a lost cache that had blocks fresher than the capacity tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// refuse, naming files and blocks
    #[default]
    Refuse,
    /// accept the older versions on the capacity tier
    Discard,
}

/// Settings of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// identifies the database and its pair of directories; every structure on disk carries it
    pub identity: u128,
    /// how dirty blocks are treated
    pub mode: Mode,
    /// the blocks to take
    pub admission: Admission,
    /// bytes of all slots together, rounded down to whole slots
    pub cache_bytes: u64,
    /// bytes of a slot with its header; a multiple of 512. A larger block takes adjacent slots. The
    /// size of an existing cache stays until all fresh blocks are copied out.
    pub slot_bytes: u32,
    /// slots that rounds keep free, so that an eviction need not wait; at most a quarter of all
    pub free_slots: u32,
    /// `pc2` copies out so many victims under one sync; a step is due when as many admissions wait
    /// for their listing
    pub batch: u32,
    /// `lc` cleans while more than this share of the slots is fresh, in percent
    pub cleaning_percent: u8,
    /// the reaction to a lost cache
    pub on_loss: OnLoss,
}

impl Settings {
    /// The defaults for a cache of `cache_bytes`: slots for pages of 8 KiB, mode `pc`.
    pub fn new(identity: u128, cache_bytes: u64) -> Self {
        Self {
            identity,
            mode: Mode::default(),
            admission: Admission::default(),
            cache_bytes,
            slot_bytes: 8_192 + 512,
            free_slots: 64,
            batch: 64,
            cleaning_percent: 50,
            on_loss: OnLoss::default(),
        }
    }

    /// An upper bound of the memory that the directory of so many slots takes.
    pub fn directory_bytes(&self) -> u64 {
        u64::from(self.slots_of(self.cache_bytes)) * ENTRY_BYTES
    }

    /// The number of slots of `cache_bytes`.
    pub(super) fn slots_of(&self, cache_bytes: u64) -> u32 {
        u32::try_from(cache_bytes / u64::from(self.slot_bytes)).unwrap_or(u32::MAX)
    }
}
