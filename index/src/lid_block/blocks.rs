//! The blocks in their page file: making, writing, reading and freeing them.
//!
//! Slots are written by appends (`strandline_storage::pages`), so by several threads at once.
//! Blocks are made and freed, and slots are made free, by changes that have the page for
//! themselves: a slot that another thread takes is free in the log, too.
//!
//! Space: a new block takes the first free area. A page without blocks goes back to the file while
//! the free areas are more than the blocks, by more than a page has; the checkpoints cut such pages
//! off at the end of the file. A thread that still holds a freed block finds it marked as gone,
//! whatever it reads of the page.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering::Relaxed}; // counters only

use strandline_base::sync::{Mutex, Ordering};
use strandline_base::{Error, Result, SqlState};
use strandline_storage::pages::{
    Access, PAGE_BODY_BYTES, PageChange, PageFileId, PageNumber, PageStore, SlotWrite,
};

use super::directory::{Block, Directory};
use super::layout::{BlockHeader, Damage, State, put, successor};
use super::{BlockKind, LidForm};
use crate::access_method::Direction;
use crate::search_tree::LeafRange;

/// The page of the form.
const FORM: PageNumber = PageNumber(1);

/// Blocks that wait for an early move at most; others wait until they are full.
const DUE_MAX: usize = 1024;

/// Pages without blocks that one change gives back at most.
const FREED_PAGES_MAX: usize = 8;

/// The areas of the pages, and the number of the next block.
#[derive(Debug)]
struct Areas {
    free: BTreeSet<(PageNumber, usize)>,
    /// by page the number of its blocks
    blocks: BTreeMap<PageNumber, usize>,
    /// pages without blocks
    empty: BTreeSet<PageNumber>,
    next_id: u64,
}

impl Areas {
    /// Adds a page on which these areas are free.
    fn add_page(&mut self, page: PageNumber, free: impl Iterator<Item = usize>, blocks: usize) {
        self.free.extend(free.map(|area| (page, area)));
        self.set_blocks(page, blocks);
    }

    fn set_blocks(&mut self, page: PageNumber, blocks: usize) {
        self.blocks.insert(page, blocks);
        match blocks {
            0 => self.empty.insert(page),
            _ => self.empty.remove(&page),
        };
    }

    fn blocks_of(&self, page: PageNumber) -> usize {
        self.blocks.get(&page).copied().unwrap_or(0)
    }

    /// A block is made in a free area.
    fn take(&mut self, (page, area): (PageNumber, usize)) {
        self.free.remove(&(page, area));
        self.set_blocks(page, self.blocks_of(page) + 1);
    }

    /// A block is freed.
    fn give_back(&mut self, (page, area): (PageNumber, usize)) {
        self.free.insert((page, area));
        self.set_blocks(page, self.blocks_of(page).saturating_sub(1));
    }

    /// A page without blocks is freed.
    fn remove_page(&mut self, page: PageNumber, areas: usize) {
        for area in 0..areas {
            self.free.remove(&(page, area));
        }
        self.blocks.remove(&page);
        self.empty.remove(&page);
    }

    /// The pages that the file need not keep when a block on `page` is freed and `left` blocks are
    /// left. A page has so many areas.
    fn superfluous(&self, page: PageNumber, left: usize, areas: usize) -> Vec<PageNumber> {
        let free = self.free.len() + 1;
        let surplus = free.saturating_sub(left + areas) / areas.max(1);
        let own = (self.blocks_of(page) == 1).then_some(page);
        let empty = own.into_iter().chain(self.empty.iter().rev().copied());
        empty.take(surplus.min(FREED_PAGES_MAX)).collect()
    }
}

/// The blocks of an index.
#[derive(Debug)]
pub(super) struct Blocks {
    store: Arc<PageStore>,
    file: PageFileId,
    pub form: LidForm,
    pub directory: Directory,
    /// held while a block is made or freed
    areas: Mutex<Areas>,
    /// the sum of all slots' weights
    held: AtomicIsize,
    /// changes of blocks since the opening
    changes: AtomicU64,
    /// nearly full blocks, some of which may be no more
    due: Mutex<VecDeque<Arc<Block>>>,
}

/// A slot as a reader has copied it.
#[derive(Clone, Debug)]
pub(super) struct SlotCopy {
    no: usize,
    raw: Vec<u8>,
    pub state: State,
    pub entry: Vec<u8>,
}

/// The outcome of writing an entry into a block.
pub(super) enum Put {
    /// the block is no more
    Gone,
    /// the block has no free slot
    Full,
    /// written; the entry's state before
    Done(Option<State>),
}

/// What is to be written for an entry.
enum Decision {
    Gone,
    Full,
    Same(State),
    Write {
        before: Option<State>,
        after: State,
        write: SlotWrite,
        /// slots that are then in use
        used: usize,
    },
}

impl Blocks {
    /// Creates the file.
    pub fn create(
        store: Arc<PageStore>,
        file: PageFileId,
        form: LidForm,
        memory: Arc<AtomicUsize>,
    ) -> Result<Self> {
        if form.entries == 0 || form.areas() == 0 || form.entries > usize::from(u16::MAX) {
            let message = format!(
                "a block of {} entries with keys of up to {} bytes takes {} bytes; between 1 \
                 entry and {PAGE_BODY_BYTES} bytes fit",
                form.entries,
                form.key_bytes,
                form.area_bytes()
            );
            let error = Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message);
            return Err(error.with_hint("Choose fewer entries or shorter keys."));
        }
        store.create_fast_file(file)?;
        let blocks = Self::over(store, file, form, memory);
        let mut change = blocks.store.begin(file);
        let page = change.allocate()?;
        let written = form.write(change.body_mut(page));
        written.map_err(|damage| blocks.damaged(page, damage))?;
        change.commit()?;
        Ok(blocks)
    }

    /// Opens the file, and reads which blocks it has.
    pub fn open(store: Arc<PageStore>, file: PageFileId, memory: Arc<AtomicUsize>) -> Result<Self> {
        let form = LidForm::read(&store.read(file, FORM, Access::Sequential)?);
        let form = form.map_err(|damage| damaged(file, FORM, damage))?;
        let blocks = Self::over(store, file, form, memory);
        let used = blocks.pages()?;
        for pages in used.chunks(blocks.store.prefetched_pages_max().max(1)) {
            blocks.store.prefetch(file, pages);
            for page in pages {
                let body = blocks.store.read(file, *page, Access::Sequential)?;
                let known = blocks.recall(*page, &body);
                known.map_err(|damage| blocks.damaged(*page, damage))?;
            }
        }
        Ok(blocks)
    }

    fn over(
        store: Arc<PageStore>,
        file: PageFileId,
        form: LidForm,
        memory: Arc<AtomicUsize>,
    ) -> Self {
        Self {
            store,
            file,
            form,
            directory: Directory::counted(memory),
            areas: Mutex::new(Areas {
                free: BTreeSet::new(),
                blocks: BTreeMap::new(),
                empty: BTreeSet::new(),
                next_id: 1,
            }),
            held: AtomicIsize::new(0),
            changes: AtomicU64::new(0),
            due: Mutex::default(),
        }
    }

    /// The pages that have blocks.
    pub fn pages(&self) -> Result<Vec<PageNumber>> {
        let mut pages = self.store.used_pages(self.file)?;
        pages.retain(|page| *page != FORM);
        Ok(pages)
    }

    /// Enters the blocks of a page into the directory.
    fn recall(&self, page: PageNumber, body: &[u8]) -> Result<(), Damage> {
        let mut areas = self.areas.lock();
        areas.add_page(page, 0..self.form.areas(), 0);
        for area in 0..self.form.areas() {
            let Some(header) = self.form.header(body, area)? else {
                continue;
            };
            areas.take((page, area));
            let next = header.id.checked_add(1);
            let next = next.ok_or(Damage("a block has the last number of all"))?;
            areas.next_id = areas.next_id.max(next);
            let range = (&*header.low, header.high.as_deref());
            if !self
                .directory
                .within(range, Direction::Forward, 1)
                .is_empty()
            {
                return Err(Damage("two blocks cover the same entries"));
            }
            let (slots, _) = self.form.slots(body, area)?;
            let weight = slots.iter().map(|slot| slot.state.weight()).sum();
            let is_due = self.is_nearly_full(slots.len());
            let block = Arc::new(Block::new(header, page, area));
            self.note_weight(&block, weight);
            if is_due {
                self.note_due(&block);
            }
            self.directory.insert(block);
        }
        Ok(())
    }

    /// The error for damaged blocks.
    pub fn damaged(&self, page: PageNumber, damage: Damage) -> Error {
        damaged(self.file, page, damage)
    }

    /// The entries that the blocks add to the tree's, about.
    pub fn held(&self) -> isize {
        self.held.load(Relaxed)
    }

    /// Changes of blocks since the opening.
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    fn note_weight(&self, block: &Block, delta: isize) {
        self.changes.fetch_add(1, Relaxed);
        block.weight.fetch_add(delta, Relaxed);
        self.held.fetch_add(delta, Relaxed);
    }

    /// From three quarters on a block is moved early.
    fn is_nearly_full(&self, used: usize) -> bool {
        4 * used >= 3 * self.form.entries
    }

    fn note_due(&self, block: &Arc<Block>) {
        let mut due = self.due.lock();
        if due.len() < DUE_MAX && !block.is_due.swap(true, Ordering::AcqRel) {
            due.push_back(Arc::clone(block));
        }
    }

    /// A nearly full block; any block if there is no memory for another one.
    pub fn take_due(&self) -> Option<Arc<Block>> {
        let due = self.due.lock().pop_front();
        due.or_else(|| {
            let first = self.directory.is_full().then(|| self.directory.first());
            first.flatten()
        })
    }

    /// Whether there are nearly full blocks.
    pub fn is_any_due(&self) -> bool {
        !self.due.lock().is_empty()
    }

    /// Waits until nobody makes or frees a block.
    pub fn await_changes(&self) {
        drop(self.areas.lock());
    }

    /// Writes the state that `want` gives by the state before into an entry's slot. The caller has
    /// the entry's lock.
    pub fn put(
        &self,
        block: &Arc<Block>,
        entry: &[u8],
        want: &dyn Fn(Option<State>) -> State,
    ) -> Result<Put> {
        let mut decided = Ok(Decision::Gone);
        let appended = self.store.append_slot(self.file, block.page, &mut |body| {
            decided = self.decide(body, block, entry, want);
            match &decided {
                Ok(Decision::Write { write, .. }) => Some(write.clone()),
                _ => None,
            }
        });
        match appended {
            Err(_) if block.is_gone.load(Ordering::Acquire) => return Ok(Put::Gone),
            appended => appended?,
        };
        match decided.map_err(|damage| self.damaged(block.page, damage))? {
            Decision::Gone => Ok(Put::Gone),
            Decision::Full => Ok(Put::Full),
            Decision::Same(state) => Ok(Put::Done(Some(state))),
            Decision::Write {
                before,
                after,
                used,
                ..
            } => {
                let weight = before.map_or(0, State::weight);
                self.note_weight(block, after.weight() - weight);
                if self.is_nearly_full(used) {
                    self.note_due(block);
                }
                Ok(Put::Done(before))
            }
        }
    }

    fn decide(
        &self,
        body: &[u8],
        block: &Block,
        entry: &[u8],
        want: &dyn Fn(Option<State>) -> State,
    ) -> Result<Decision, Damage> {
        // The page may be free: then it is zeros.
        if block.is_gone.load(Ordering::Acquire)
            || self.form.block_id(body, block.area)? != Some(block.header.id)
        {
            return Ok(Decision::Gone);
        }
        let (slots, free) = self.form.slots(body, block.area)?;
        let part = self.form.part_of(entry);
        let own = slots.iter().find(|slot| slot.part == part);
        let before = own.map(|slot| slot.state);
        let after = want(before);
        if before == Some(after) {
            return Ok(Decision::Same(after));
        }
        let Some(no) = own.map(|slot| slot.no).or(free) else {
            return Ok(Decision::Full);
        };
        Ok(Decision::Write {
            before,
            after,
            write: self.form.slot_write(block.area, no, after, part),
            used: slots.len() + usize::from(own.is_none()),
        })
    }

    /// Makes a block for an entry and its neighbours in a leaf, with this entry in it. False: there
    /// is a block now.
    pub fn make(&self, entry: &[u8], range: LeafRange, state: State) -> Result<bool> {
        let mut areas = self.areas.lock();
        if self.directory.covering(entry).is_some() {
            return Ok(false);
        }
        let (mut low, mut high) = self.shortened(range.low, range.high);
        self.directory.clip(entry, &mut low, &mut high);
        let header = BlockHeader {
            id: areas.next_id,
            leaf: range.leaf,
            low,
            high,
        };
        let mut change = self.store.begin(self.file);
        let found = areas.free.first().copied();
        let (page, area) = match found {
            Some((page, area)) => {
                change.write(page)?;
                (page, area)
            }
            None => {
                let page = change.allocate()?;
                let written = LidForm::write_page_header(change.body_mut(page));
                written.map_err(|damage| self.damaged(page, damage))?;
                (page, 0)
            }
        };
        let written = self.write_first(&mut change, (page, area), &header, entry, state);
        written.map_err(|damage| self.damaged(page, damage))?;
        change.commit()?;
        areas.next_id += 1;
        if found.is_none() {
            areas.add_page(page, 0..self.form.areas(), 0);
        }
        areas.take((page, area));
        let block = Arc::new(Block::new(header, page, area));
        self.note_weight(&block, state.weight());
        if self.is_nearly_full(1) {
            self.note_due(&block);
        }
        self.directory.insert(block);
        Ok(true)
    }

    fn write_first(
        &self,
        change: &mut PageChange,
        (page, area): (PageNumber, usize),
        header: &BlockHeader,
        entry: &[u8],
        state: State,
    ) -> Result<(), Damage> {
        let body = change.body_mut(page);
        self.form.write_header(body, area, header)?;
        let part = self.form.part_of(entry);
        let SlotWrite { offset, bytes } = self.form.slot_write(area, 0, state, part);
        put(body, offset, &bytes)
    }

    /// Fences that are not too long: a range that is wider, if need be.
    fn shortened(&self, low: Box<[u8]>, high: Option<Box<[u8]>>) -> (Box<[u8]>, Option<Box<[u8]>>) {
        let limit = self.form.fence_bytes();
        let cut = |fence: &[u8]| fence.get(..limit).map(Box::<[u8]>::from);
        let low = cut(&low).unwrap_or(low);
        let high = high.and_then(|high| match high.len() <= limit {
            true => Some(high),
            false => successor(&cut(&high)?),
        });
        (low, high)
    }

    /// The slots of a block; none if it is no more.
    pub fn read(&self, block: &Block) -> Result<Vec<SlotCopy>> {
        let read = self.store.read(self.file, block.page, Access::Random);
        let slots = read.and_then(|body| {
            let slots = self.slots(&body, block);
            slots.map_err(|damage| self.damaged(block.page, damage))
        });
        // Behind the read: the page may have been freed before it.
        match block.is_gone.load(Ordering::Acquire) {
            true => Ok(Vec::new()),
            false => slots,
        }
    }

    fn slots(&self, body: &[u8], block: &Block) -> Result<Vec<SlotCopy>, Damage> {
        if self.form.block_id(body, block.area)? != Some(block.header.id) {
            return Ok(Vec::new());
        }
        let (slots, _) = self.form.slots(body, block.area)?;
        let copy = slots.into_iter().map(|slot| SlotCopy {
            no: slot.no,
            raw: slot.raw.to_vec(),
            state: slot.state,
            entry: self.form.entry(&block.header.low, slot.part),
        });
        Ok(copy.collect())
    }

    /// Makes those of these slots free that have not been written since they were read, and the
    /// area of a block without entries. The caller holds the block's `moving` lock, under which it
    /// has read the slots.
    pub fn clear(&self, block: &Arc<Block>, read: &[SlotCopy]) -> Result<()> {
        let mut areas = self.areas.lock();
        let mut change = self.store.begin(self.file);
        change.write(block.page)?;
        let cleared = self.clear_slots(&mut change, block, read);
        let cleared = cleared.map_err(|damage| self.damaged(block.page, damage))?;
        let Some((weight, is_empty)) = cleared else {
            return Ok(());
        };
        let mut superfluous = Vec::new();
        if is_empty {
            let left = self.directory.len().saturating_sub(1);
            superfluous = areas.superfluous(block.page, left, self.form.areas());
            // Before the page is freed: from then on it is read as zeros.
            block.is_gone.store(true, Ordering::Release);
        }
        let mut pages = superfluous.iter();
        let freed = pages.try_for_each(|page| change.free(*page));
        if let Err(error) = freed.and_then(|()| change.commit().map(drop)) {
            block.is_gone.store(false, Ordering::Release);
            return Err(error);
        }
        self.note_weight(block, -weight);
        block.is_due.store(false, Ordering::Release);
        if is_empty {
            self.directory.remove(block);
            areas.give_back((block.page, block.area));
            for page in superfluous {
                areas.remove_page(page, self.form.areas());
            }
        }
        Ok(())
    }

    /// The weight of the freed slots, and whether the block is empty; None: the block is no more.
    fn clear_slots(
        &self,
        change: &mut PageChange,
        block: &Block,
        read: &[SlotCopy],
    ) -> Result<Option<(isize, bool)>, Damage> {
        let now = self.slots(change.body(block.page), block)?;
        if self.form.block_id(change.body(block.page), block.area)? != Some(block.header.id) {
            return Ok(None);
        }
        let mut weight = 0;
        let body = change.body_mut(block.page);
        for slot in read {
            if now
                .iter()
                .any(|now| now.no == slot.no && now.raw == slot.raw)
            {
                self.form.clear_slot(body, block.area, slot.no)?;
                weight += slot.state.weight();
            }
        }
        let (left, _) = self.form.slots(body, block.area)?;
        let is_empty = left.is_empty();
        if is_empty {
            let area = body.get_mut(self.form.area_range(block.area));
            area.unwrap_or_default().fill(0);
        }
        Ok(Some((weight, is_empty)))
    }

    /// What a new block for an entry is to cover, without the tree: a dense block's values.
    pub fn dense_range(key: &[u8]) -> LeafRange {
        LeafRange {
            leaf: PageNumber(0),
            low: key.into(),
            high: successor(key),
        }
    }

    /// Whether entries with this key are kept in blocks.
    pub fn takes(&self, key: &[u8]) -> bool {
        key.len() <= self.form.key_bytes
    }

    /// Whether blocks have the entries of one value each.
    pub fn is_dense(&self) -> bool {
        self.form.kind == BlockKind::Dense
    }

    /// Appends a line for every damage of a page's blocks; returns how many blocks it has.
    pub fn check_page(&self, page: PageNumber, damage: &mut Vec<String>) -> usize {
        let areas = self.areas.lock();
        if !areas.blocks.contains_key(&page) {
            return 0; // It has been freed meanwhile.
        }
        let body = match self.store.read(self.file, page, Access::Sequential) {
            Ok(body) => body,
            Err(error) => {
                damage.push(error.message().to_owned());
                return 0;
            }
        };
        let mut found = 0;
        for area in 0..self.form.areas() {
            match self.check_area(&body, page, area) {
                Ok(is_used) => found += usize::from(is_used),
                Err(what) => damage.push(self.damaged(page, what).message().to_owned()),
            }
        }
        found
    }

    fn check_area(&self, body: &[u8], page: PageNumber, area: usize) -> Result<bool, Damage> {
        let Some(header) = self.form.header(body, area)? else {
            let range = body.get(self.form.area_range(area)).unwrap_or_default();
            return match range.iter().all(|byte| *byte == 0) {
                true => Ok(false),
                false => Err(Damage("a free area is not zero")),
            };
        };
        let known = self.directory.covering(&header.low);
        let is_known = known.is_some_and(|block| {
            block.header == header && (block.page, block.area) == (page, area)
        });
        if !is_known {
            return Err(Damage("a block is not the one that the directory has"));
        }
        let (slots, _) = self.form.slots(body, area)?;
        let mut entries: Vec<_> = slots
            .iter()
            .map(|slot| self.form.entry(&header.low, slot.part))
            .collect();
        let is_within = |entry: &Vec<u8>| {
            let is_before = header.high.as_ref().is_none_or(|high| **entry < **high);
            crate::entry::parts_of(entry).is_some() && is_before && *header.low <= **entry
        };
        if !entries.iter().all(is_within) {
            return Err(Damage("an entry is outside its block's fences"));
        }
        entries.sort_unstable();
        if entries.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(Damage("an entry is in its block twice"));
        }
        Ok(true)
    }
}

fn damaged(file: PageFileId, page: PageNumber, damage: Damage) -> Error {
    let place = format!("page {} of page file {}", page.0, file.0);
    Error::corrupt(place, damage.0).with_hint("REINDEX builds the index anew from its rows.")
}
