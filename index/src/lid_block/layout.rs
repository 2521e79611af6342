//! The bytes of LIDBlocks in the pages of their file.
//!
//! Page 1 is the *form*, which all blocks of the file have:
//!
//! | at | type | field |
//! |---|---|---|
//! | 0 | [u8; 3] | `SLB` |
//! | 3 | u8 | version of the layout, 1 |
//! | 4 | u8 | 1: dense, 2: sparse |
//! | 5 | u8 | zero |
//! | 6 | u16 | slots of a block |
//! | 8 | u16 | bytes of a slot's entry |
//! | 10 | u16 | bytes of a fence |
//!
//! Every other page has 8 bytes (`SLB`, u8 version, u32 zero), then *areas* of one size, as many as
//! fit. An area has one block or is zero:
//!
//! | at | type | field |
//! |---|---|---|
//! | 0 | u64 | number of the block, never used twice; 0: the area is free |
//! | 8 | u32 | sparse: the leaf's page when the block was made; dense: 0 |
//! | 12 | u16 | length of the low fence |
//! | 14 | u16 | length of the high fence; 65,535: there is none |
//! | 16 | | low fence, high fence, each in the bytes of a fence |
//! | | | the slots |
//!
//! A slot: u8 state (0 free, 1 live, 2 retired, 3 retired in the tree), u8 zero, u16 length of the
//! entry, u64 timestamp from which on no snapshot needs the entry (0: none does; live: 0), the
//! entry's bytes. A sparse block's slot has the whole entry, key and row. A dense block's slot has
//! the row, and the low fence is the key.

use std::ops::Range;

use strandline_base::CommitTs;
use strandline_storage::pages::{PAGE_BODY_BYTES, PageNumber, SlotWrite};

use super::{BlockKind, LidForm};

const MAGIC: &[u8; 3] = b"SLB";
const VERSION: u8 = 1;
const PAGE_HEADER_BYTES: usize = 8;
const AREA_HEADER_BYTES: usize = 16;
const SLOT_HEADER_BYTES: usize = 12;
const ROW_BYTES: usize = 8;
const NO_HIGH: u16 = u16::MAX;

/// Where bytes are no blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damage(pub &'static str);

const OUTSIDE: Damage = Damage("a part lies outside its page");

/// What a block says of an entry. It takes precedence over the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// the index has the entry
    Live,
    /// the block had it, and no snapshot at or after the timestamp needs it; zero: none does
    Retired(CommitTs),
    /// the same of an entry that the block did not have: the tree may have it
    RetiredInTree(CommitTs),
}

impl State {
    /// The state after a retirement.
    pub fn retired(before: Option<State>, since: CommitTs) -> Self {
        match before {
            Some(State::Live | State::Retired(_)) => State::Retired(since),
            Some(State::RetiredInTree(_)) | None => State::RetiredInTree(since),
        }
    }

    /// The entries that the block adds to the tree's, if the tree has exactly those that the block
    /// did not have.
    pub fn weight(self) -> isize {
        match self {
            State::Live => 1,
            State::Retired(since) => isize::from(since != CommitTs::ZERO),
            State::RetiredInTree(since) => -isize::from(since == CommitTs::ZERO),
        }
    }

    /// Whether the index has no such entry for any snapshot.
    pub fn is_gone(self, oldest: CommitTs) -> bool {
        match self {
            State::Live => false,
            State::Retired(since) | State::RetiredInTree(since) => since <= oldest,
        }
    }

    fn code(self) -> (u8, CommitTs) {
        match self {
            State::Live => (1, CommitTs::ZERO),
            State::Retired(since) => (2, since),
            State::RetiredInTree(since) => (3, since),
        }
    }
}

/// A slot that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot<'a> {
    pub no: usize,
    pub state: State,
    /// the part of the entry that is in the slot
    pub part: &'a [u8],
    /// all bytes of the slot
    pub raw: &'a [u8],
}

/// The header of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub id: u64,
    pub leaf: PageNumber,
    pub low: Box<[u8]>,
    pub high: Option<Box<[u8]>>,
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Damage> {
    let bytes = bytes.get(at..).and_then(|b| b.first_chunk());
    bytes.map(|b| u16::from_le_bytes(*b)).ok_or(OUTSIDE)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Damage> {
    let bytes = bytes.get(at..).and_then(|b| b.first_chunk());
    bytes.map(|b| u64::from_le_bytes(*b)).ok_or(OUTSIDE)
}

/// Overwrites a part of `bytes`.
pub(super) fn put(bytes: &mut [u8], at: usize, part: &[u8]) -> Result<(), Damage> {
    let place = bytes.get_mut(at..).and_then(|b| b.get_mut(..part.len()));
    place
        .ok_or(OUTSIDE)
        .map(|place| place.copy_from_slice(part))
}

impl LidForm {
    fn slot_bytes(&self) -> usize {
        SLOT_HEADER_BYTES + self.part_bytes()
    }

    /// Bytes of an entry that a slot has.
    fn part_bytes(&self) -> usize {
        match self.kind {
            BlockKind::Dense => ROW_BYTES,
            BlockKind::Sparse => self.key_bytes + ROW_BYTES,
        }
    }

    /// The longest fence that a block has.
    pub(super) fn fence_bytes(&self) -> usize {
        match self.kind {
            BlockKind::Dense => self.key_bytes,
            BlockKind::Sparse => self.key_bytes + ROW_BYTES,
        }
    }

    /// Bytes of a block.
    pub(super) fn area_bytes(&self) -> usize {
        self.slots_start() + self.entries * self.slot_bytes()
    }

    fn slots_start(&self) -> usize {
        AREA_HEADER_BYTES + 2 * self.fence_bytes()
    }

    /// Blocks of a page.
    pub(super) fn areas(&self) -> usize {
        (PAGE_BODY_BYTES - PAGE_HEADER_BYTES) / self.area_bytes()
    }

    fn area_start(&self, area: usize) -> usize {
        PAGE_HEADER_BYTES + area * self.area_bytes()
    }

    /// Writes the form's page.
    pub(super) fn write(&self, body: &mut [u8]) -> Result<(), Damage> {
        put(body, 0, MAGIC)?;
        let kind = match self.kind {
            BlockKind::Dense => 1,
            BlockKind::Sparse => 2,
        };
        put(body, 3, &[VERSION, kind, 0])?;
        for (no, field) in [self.entries, self.part_bytes(), self.fence_bytes()]
            .into_iter()
            .enumerate()
        {
            put(body, 6 + 2 * no, &(field as u16).to_le_bytes())?;
        }
        Ok(())
    }

    /// The form in its page.
    pub(super) fn read(body: &[u8]) -> Result<Self, Damage> {
        check_magic(body)?;
        let kind = match body.get(4) {
            Some(1) => BlockKind::Dense,
            Some(2) => BlockKind::Sparse,
            _ => return Err(Damage("the blocks are of an unknown kind")),
        };
        let field = |no: usize| u16_at(body, 6 + 2 * no).map(usize::from);
        let (entries, part, fence) = (field(0)?, field(1)?, field(2)?);
        let key_bytes = match kind {
            BlockKind::Dense => Some(fence),
            BlockKind::Sparse => fence.checked_sub(ROW_BYTES),
        };
        let form = Self {
            kind,
            entries,
            key_bytes: key_bytes.ok_or(Damage("the fences are shorter than an entry"))?,
        };
        if form.part_bytes() != part || entries == 0 || form.areas() == 0 {
            return Err(Damage("the blocks do not fit into a page"));
        }
        Ok(form)
    }

    /// Writes the header of a page of blocks.
    pub(super) fn write_page_header(body: &mut [u8]) -> Result<(), Damage> {
        put(body, 0, MAGIC)?;
        put(body, 3, &[VERSION])
    }

    /// Where an area lies in its page.
    pub(super) fn area_range(&self, area: usize) -> Range<usize> {
        let start = self.area_start(area);
        start..start + self.area_bytes()
    }

    fn area_of<'a>(&self, body: &'a [u8], area: usize) -> Result<&'a [u8], Damage> {
        body.get(self.area_range(area)).ok_or(OUTSIDE)
    }

    /// The number of the block in an area; None: the area is free.
    pub(super) fn block_id(&self, body: &[u8], area: usize) -> Result<Option<u64>, Damage> {
        let id = u64_at(self.area_of(body, area)?, 0)?;
        Ok((id != 0).then_some(id))
    }

    /// The header of the block in an area; None: the area is free.
    pub(super) fn header(&self, body: &[u8], area: usize) -> Result<Option<BlockHeader>, Damage> {
        check_magic(body)?;
        let bytes = self.area_of(body, area)?;
        let id = u64_at(bytes, 0)?;
        if id == 0 {
            return Ok(None);
        }
        let leaf = bytes.get(8..).and_then(|b| b.first_chunk());
        let leaf = leaf.map(|leaf| PageNumber(u32::from_le_bytes(*leaf)));
        let (low_len, high_len) = (u16_at(bytes, 12)?, u16_at(bytes, 14)?);
        let fence = |no: usize, len: u16| {
            let len = usize::from(len);
            let start = AREA_HEADER_BYTES + no * self.fence_bytes();
            let fence = bytes.get(start..start + len);
            let fence = fence.filter(|_| len <= self.fence_bytes());
            fence.ok_or(Damage("a fence is longer than fences are"))
        };
        let low = fence(0, low_len)?;
        let high = (high_len != NO_HIGH)
            .then(|| fence(1, high_len))
            .transpose()?;
        if high.is_some_and(|high| high <= low) {
            return Err(Damage("the high fence is not behind the low fence"));
        }
        Ok(Some(BlockHeader {
            id,
            leaf: leaf.ok_or(OUTSIDE)?,
            low: low.into(),
            high: high.map(Box::from),
        }))
    }

    /// Writes the header of a block into a free area.
    pub(super) fn write_header(
        &self,
        body: &mut [u8],
        area: usize,
        header: &BlockHeader,
    ) -> Result<(), Damage> {
        let start = self.area_start(area);
        let high = header.high.as_deref();
        let high_len = high.map_or(NO_HIGH, |high| high.len() as u16);
        put(body, start, &header.id.to_le_bytes())?;
        put(body, start + 8, &header.leaf.0.to_le_bytes())?;
        put(body, start + 12, &(header.low.len() as u16).to_le_bytes())?;
        put(body, start + 14, &high_len.to_le_bytes())?;
        let fences = start + AREA_HEADER_BYTES;
        put(body, fences, &header.low)?;
        put(body, fences + self.fence_bytes(), high.unwrap_or_default())
    }

    /// The slots of an area that are not free, and the first free one.
    pub(super) fn slots<'a>(
        &self,
        body: &'a [u8],
        area: usize,
    ) -> Result<(Vec<Slot<'a>>, Option<usize>), Damage> {
        let bytes = self.area_of(body, area)?;
        let slots = bytes.get(self.slots_start()..).ok_or(OUTSIDE)?;
        let (mut used, mut free) = (Vec::new(), None);
        for (no, raw) in slots.chunks(self.slot_bytes()).enumerate() {
            let Some((header, part)) = raw.split_first_chunk::<SLOT_HEADER_BYTES>() else {
                return Err(OUTSIDE);
            };
            let since = CommitTs(u64_at(header, 4)?);
            let state = match header {
                [0, ..] => {
                    free = free.or(Some(no));
                    continue;
                }
                [1, ..] => State::Live,
                [2, ..] => State::Retired(since),
                [3, ..] => State::RetiredInTree(since),
                _ => return Err(Damage("a slot has an unknown state")),
            };
            let part = part.get(..usize::from(u16_at(header, 2)?));
            let part = part.ok_or(Damage("an entry is longer than its slot"))?;
            let is_whole = match self.kind {
                BlockKind::Dense => part.len() == ROW_BYTES,
                BlockKind::Sparse => part.len() >= ROW_BYTES,
            };
            if !is_whole {
                return Err(Damage("an entry is shorter than a row's number"));
            }
            used.push(Slot {
                no,
                state,
                part,
                raw,
            });
        }
        Ok((used, free))
    }

    /// The bytes of a slot.
    pub(super) fn slot_write(
        &self,
        area: usize,
        no: usize,
        state: State,
        part: &[u8],
    ) -> SlotWrite {
        let (code, since) = state.code();
        let mut bytes = vec![code, 0];
        bytes.extend((part.len() as u16).to_le_bytes());
        bytes.extend(since.0.to_le_bytes());
        bytes.extend(part);
        bytes.resize(self.slot_bytes(), 0);
        SlotWrite {
            offset: self.slot_start(area, no),
            bytes,
        }
    }

    /// Makes a slot free.
    pub(super) fn clear_slot(&self, body: &mut [u8], area: usize, no: usize) -> Result<(), Damage> {
        let start = self.slot_start(area, no);
        put(body, start, &vec![0; self.slot_bytes()])
    }

    fn slot_start(&self, area: usize, no: usize) -> usize {
        self.area_start(area) + self.slots_start() + no * self.slot_bytes()
    }

    /// The part of an entry that a slot of its block has.
    pub(super) fn part_of<'e>(&self, entry: &'e [u8]) -> &'e [u8] {
        let start = match self.kind {
            BlockKind::Dense => entry.len().saturating_sub(ROW_BYTES),
            BlockKind::Sparse => 0,
        };
        entry.get(start..).unwrap_or_default()
    }

    /// The entry of a slot in a block with this low fence.
    pub(super) fn entry(&self, low: &[u8], part: &[u8]) -> Vec<u8> {
        match self.kind {
            BlockKind::Dense => [low, part].concat(),
            BlockKind::Sparse => part.to_vec(),
        }
    }
}

fn check_magic(body: &[u8]) -> Result<(), Damage> {
    match body.split_first_chunk() {
        Some((magic, [VERSION, ..])) if magic == MAGIC => Ok(()),
        Some((magic, _)) if magic == MAGIC => {
            Err(Damage("the blocks' layout is of an unknown version"))
        }
        _ => Err(Damage("the page has no blocks")),
    }
}

/// The least bytes behind all that begin with `prefix`; None: there are none.
pub(super) fn successor(prefix: &[u8]) -> Option<Box<[u8]>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let (kept, _) = prefix.split_at(last + 1);
    let mut kept = kept.to_vec();
    if let Some(byte) = kept.last_mut() {
        *byte += 1;
    }
    Some(kept.into())
}
