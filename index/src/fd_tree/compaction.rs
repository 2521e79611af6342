//! A compaction [FD+ §2.3, §4.4]: stages entries of the old levels in order of their keys, inserts
//! them into the new levels, and deletes them from the old ones, a block's entries at a time.
//!
//! One caller at a time drives it (`drive`), by steps of a bounded size: it merges until a batch is
//! full, writes the batch in parts, syncs it, and writes the image. Readers see only what
//! [`Compaction::publish`] changes, under the state's lock.
//!
//! Reclaim rule [FD+ A.1]: the first block of an old level goes when the first key of the block
//! that follows it is not greater than the wavefront. Before that, keys between the last key of
//! the one and the first key of the other are found by the first block's last fence.

use super::batch::Batch;
use super::block::{Item, Kind};
use super::builder::Builders;
use super::finalize::skip_levels;
use super::head::Change;
use super::image;
use super::level::Level;
use super::loaded::Loaded;
use super::partition::entries_max;
use super::plan::plan;
use super::progress::Work;
use super::state::{Mode, Old, Shared, Slot, State};
use std::collections::VecDeque;
use std::mem::take;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use strandline_base::{Error, Result};

/// Entries that are taken from the old head at once.
const HEAD_ENTRIES: usize = if cfg!(test) { 8 } else { 256 };

/// Entries that are taken from a load at once.
const LOAD_ENTRIES: usize = 16 * HEAD_ENTRIES;

/// A batch has no more than this part of the replaced blocks, which are not free before it is
/// durable, but at least so many blocks.
const BATCH_BLOCKS_MIN: u64 = 16;
const BATCHES: u64 = 16;

/// Places of the head and of a load among the sources of a key.
const HEAD: usize = 0;
const LOAD: usize = 1;

/// An old level.
#[derive(Debug)]
struct Source {
    level: Arc<Level>,
    next: u64,
    end: u64,
    buffer: VecDeque<Item>,
    /// the blocks that are not reclaimed: ordinal and first key
    read: VecDeque<(u64, Box<[u8]>)>,
}

/// The old head.
#[derive(Debug, Default)]
struct HeadSource {
    after: Option<Box<[u8]>>,
    buffer: VecDeque<Item>,
    is_ended: bool,
}

/// The entries of a load.
#[derive(Debug, Default)]
struct LoadSource {
    loaded: Arc<Loaded>,
    next: usize,
    buffer: VecDeque<Item>,
}

/// What the next step does.
#[derive(Debug)]
enum Phase {
    Merge,
    Write(Batch),
    Image,
    Over,
}

/// A compaction under way.
#[derive(Debug)]
pub(super) struct Compaction {
    phase: Phase,
    head: HeadSource,
    load: LoadSource,
    sources: Vec<Source>,
    builders: Builders,
    /// the most whole blocks of a batch
    batch_blocks: u64,
    is_full: bool,
    is_done: bool,
    /// pending entries that the stage has passed
    left: Vec<Box<[u8]>>,
    /// entries of the old head that the stage has taken
    moved: Vec<Box<[u8]>>,
    change: Change,
    wavefront: Option<Box<[u8]>>,
}

impl Compaction {
    /// Merge-prepare: the head becomes the old head; a load's entries are inserted, too.
    pub fn begin(
        shared: &Shared,
        state: &mut State,
        is_underflow: bool,
        loaded: Option<Arc<Loaded>>,
    ) -> Self {
        let block_bytes = shared.blocks.block_bytes();
        debug_assert!(state.old.is_none(), "one compaction at a time");
        let plan = plan(
            &shared.settings,
            state,
            block_bytes,
            is_underflow,
            loaded.as_deref(),
        );
        let below = state.slots.split_off(plan.replaced);
        let mut slots: Vec<Slot> = Vec::new();
        for above in (0..=plan.fence_levels).rev() {
            let bits = if above == 0 { filter_bits(shared) } else { 0 };
            slots.push(Slot {
                number: plan.target - above,
                level: Arc::new(Level::new(state.next_run, above > 0, bits)),
                live_from: 0,
            });
            state.next_run += 1;
        }
        let new_levels = slots.len();
        slots.extend(below);
        state.begun += 1;
        state.old = Some(Old {
            head: take(&mut state.head),
            slots: std::mem::replace(&mut state.slots, slots),
            new_levels,
            loaded,
            ..Old::default()
        });
        let compaction = Self::of(shared, state);
        compaction.report(shared, state);
        compaction
    }

    /// The greatest key that is in the new levels; None after their installation.
    pub fn processed(&self) -> Option<&[u8]> {
        self.wavefront.as_deref().filter(|_| !self.is_installed())
    }

    /// Whether the new levels are installed, and at most the image is left.
    pub fn is_installed(&self) -> bool {
        self.is_done && matches!(self.phase, Phase::Image | Phase::Over)
    }

    /// Goes on with the compaction of an opened state.
    pub fn resume(shared: &Shared) -> Result<Option<Self>> {
        let mut state = shared.state.lock();
        let Some(old) = &state.old else {
            return Ok(None);
        };
        let mut compaction = Self::of(shared, &state);
        compaction.builders.last_fence = old.last_fence;
        compaction.wavefront = old.wavefront.clone();
        compaction.head.after = old.wavefront.clone();
        compaction.report(shared, &mut state);
        drop(state);
        compaction.builders.resume(shared)?;
        Ok(Some(compaction))
    }

    fn of(shared: &Shared, state: &State) -> Self {
        let old = state.old.as_ref();
        let new_levels = old.map_or(0, |old| old.new_levels);
        let source = |slot: &Slot| Source {
            level: slot.level.clone(),
            next: slot.live_from,
            end: slot.level.end(),
            buffer: VecDeque::new(),
            read: VecDeque::new(),
        };
        let levels = state.slots.iter().take(new_levels);
        let levels: Vec<Arc<Level>> = levels.map(|slot| slot.level.clone()).collect();
        let loaded = old.and_then(|old| old.loaded.clone());
        let block_bytes = shared.blocks.block_bytes();
        let replaced = old.map_or(0, |old| old.slots.iter().map(|slot| slot.level.end()).sum());
        Self {
            phase: Phase::Merge,
            head: HeadSource::default(),
            load: LoadSource {
                loaded: loaded.unwrap_or_default(),
                ..LoadSource::default()
            },
            sources: old.map_or(Vec::new(), |old| old.slots.iter().map(source).collect()),
            builders: Builders::new(&shared.settings, block_bytes, &levels),
            batch_blocks: batch_blocks(shared.settings.batch_bytes / block_bytes, replaced),
            is_full: new_levels == state.slots.len(),
            is_done: false,
            left: Vec::new(),
            moved: Vec::new(),
            change: Change::default(),
            wavefront: None,
        }
    }

    /// A step. Returns whether the compaction goes on.
    pub fn step(&mut self, shared: &Shared) -> Result<bool> {
        match &mut self.phase {
            Phase::Over => return Ok(false),
            Phase::Merge => self.merge(shared)?,
            Phase::Write(batch) if batch.left() > 0 => batch.write_part(shared)?,
            Phase::Write(_) => self.end_batch(shared)?,
            Phase::Image => {
                image::save(shared)?;
                self.phase = match self.is_done {
                    true => Phase::Over,
                    false => Phase::Merge,
                };
            }
        }
        self.report(shared, &mut shared.state.lock());
        Ok(!self.is_over())
    }

    /// Whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Reads at most one block of every level and makes what is complete reachable.
    fn merge(&mut self, shared: &Shared) -> Result<()> {
        self.fill(shared)?;
        self.stage(shared)?;
        self.publish(shared);
        if self.is_done || self.builders.unwritten() >= self.batch_blocks {
            self.phase = Phase::Write(self.builders.begin_batch(shared)?);
        }
        Ok(())
    }

    /// The batch is written. A last one is followed by the installation of the new levels.
    fn end_batch(&mut self, shared: &Shared) -> Result<()> {
        if let Phase::Write(batch) = std::mem::replace(&mut self.phase, Phase::Image) {
            let superfluous = self.builders.end_batch(shared, batch)?;
            shared.state.lock().reclaim(superfluous);
        }
        if self.is_done {
            self.install(shared)?;
        }
        Ok(())
    }

    /// Makes durable what is published: ends the batch under way, or writes one.
    pub fn save(&mut self, shared: &Shared) -> Result<()> {
        if let Phase::Merge = self.phase {
            self.phase = Phase::Write(self.builders.begin_batch(shared)?);
        }
        while let Phase::Write(_) | Phase::Image = self.phase {
            self.step(shared)?;
        }
        Ok(())
    }

    /// Tells writers how far it is. Every block that is read is written again.
    fn report(&self, shared: &Shared, state: &mut State) {
        let Some(old) = &mut state.old else { return };
        let block_bytes = shared.blocks.block_bytes();
        let read: u64 = self.sources.iter().map(|source| source.next).sum();
        let unread: u64 = self
            .sources
            .iter()
            .map(|source| source.end - source.next)
            .sum();
        let head = old.head.data_bytes().div_ceil(block_bytes);
        let loaded = &self.load.loaded;
        let load = loaded.bytes() / loaded.len().max(1) * (loaded.len() - self.load.next);
        let in_memory = (head + load.div_ceil(block_bytes)) as u64;
        // As many filter blocks are written again.
        let filters: u64 = (self.sources.iter())
            .map(|source| source.level.filter_blocks())
            .sum();
        let (unwritten, written) = match &self.phase {
            Phase::Write(batch) => (batch.left(), batch.len() - batch.left()),
            _ => (self.builders.unwritten(), 0),
        };
        old.work = Work {
            done: read + self.builders.written + written,
            // The last image is work, too.
            left: 2 * unread + filters + in_memory + unwritten + 1,
        };
    }

    /// Reads the next block of every level whose entries are staged.
    fn fill(&mut self, shared: &Shared) -> Result<()> {
        for source in &mut self.sources {
            while source.buffer.is_empty() && source.next < source.end {
                let block = shared.read(&source.level, source.next)?;
                let first = block.first_key().unwrap_or_default().into();
                source.read.push_back((source.next, first));
                source.next += 1;
                let wave = self.wavefront.as_deref();
                let rest = block
                    .iter()
                    .filter(|(key, _)| wave.is_none_or(|w| *key > w));
                source
                    .buffer
                    .extend(rest.map(|(key, kind)| (key.into(), kind)));
            }
        }
        if self.head.buffer.is_empty() && !self.head.is_ended {
            self.fill_head(shared);
        }
        if self.load.buffer.is_empty() {
            let entries = (self.load.next..).map_while(|at| self.load.loaded.get(at));
            let entries = entries.take(LOAD_ENTRIES);
            self.load.buffer = entries.map(|key| (key.into(), Kind::Insert)).collect();
            self.load.next += self.load.buffer.len();
        }
        Ok(())
    }

    fn fill_head(&mut self, shared: &Shared) {
        let state = shared.state.lock();
        let Some(old) = &state.old else { return };
        let from = self.head.after.as_deref().map_or(Unbounded, Excluded);
        let data: Vec<_> = old
            .head
            .data
            .range::<[u8], _>((from, Unbounded))
            .take(HEAD_ENTRIES)
            .collect();
        let fences: Vec<_> = old
            .head
            .fences
            .range::<[u8], _>((from, Unbounded))
            .take(HEAD_ENTRIES)
            .collect();
        // Up to the least key behind which a list may be cut: no key is staged in two parts.
        let cuts = [
            data.last()
                .filter(|_| data.len() == HEAD_ENTRIES)
                .map(|(key, _)| *key),
            fences
                .last()
                .filter(|_| fences.len() == HEAD_ENTRIES)
                .map(|(key, _)| *key),
        ];
        let cut = cuts.into_iter().flatten().min().cloned();
        let is_within = |key: &[u8]| cut.as_deref().is_none_or(|cut| key <= cut);
        let mut items: Vec<Item> = Vec::new();
        for (key, to) in fences {
            if is_within(key) {
                items.push((key.clone(), Kind::Fence(*to)));
            }
        }
        for (key, data) in data {
            match (is_within(key), data.is_pending, data.is_insert) {
                (false, ..) => {}
                (_, true, _) => self.left.push(key.clone()),
                (.., true) => items.push((key.clone(), Kind::Insert)),
                (.., false) => items.push((key.clone(), Kind::Delete)),
            }
        }
        // Stable: the fence of a key stays before its data entry.
        items.sort_by(|a, b| a.0.cmp(&b.0));
        self.head.buffer = items.into();
        self.head.is_ended = cut.is_none();
        self.head.after = cut;
    }

    /// M-stage and m-insert: all keys of which no level can have unread entries.
    fn stage(&mut self, shared: &Shared) -> Result<()> {
        loop {
            let has_unread = self
                .sources
                .iter()
                .any(|source| source.buffer.is_empty() && source.next < source.end);
            let LoadSource {
                loaded,
                next,
                buffer,
            } = &self.load;
            let has_unread = has_unread
                || self.head.buffer.is_empty() && !self.head.is_ended
                || buffer.is_empty() && *next < loaded.len();
            if has_unread {
                return Ok(());
            }
            let fronts = self
                .sources
                .iter()
                .filter_map(|source| source.buffer.front());
            let least = fronts
                .chain(self.head.buffer.front())
                .chain(self.load.buffer.front())
                .map(|(key, _)| key)
                .min();
            let Some(key) = least.cloned() else {
                self.is_done = true;
                return Ok(());
            };
            self.stage_key(shared, &key)?;
            self.wavefront = Some(key);
            if shared.settings.mode == Mode::FcTuple {
                return Ok(());
            }
        }
    }

    /// Takes all entries with one key. Data entries alternate between insert and delete from level
    /// to level, so that an even number cancels, and an odd number leaves the newest.
    fn stage_key(&mut self, shared: &Shared, key: &[u8]) -> Result<()> {
        let mut fence = None;
        let mut data: Vec<bool> = Vec::new();
        // From the newest to the oldest: the head, a load, the levels. The last has the fences.
        let last = match self.sources.len() {
            0 => HEAD,
            levels => LOAD + levels,
        };
        let buffers = [&mut self.head.buffer, &mut self.load.buffer].into_iter();
        let buffers = buffers.chain(self.sources.iter_mut().map(|source| &mut source.buffer));
        for (at, buffer) in buffers.enumerate() {
            while let Some((_, kind)) = buffer.pop_front_if(|(front, _)| **front == *key) {
                match kind {
                    Kind::Fence(to) if at == last && !self.is_full => fence = Some(to),
                    Kind::Fence(_) => {}
                    Kind::Insert | Kind::Delete => {
                        if at == HEAD {
                            self.moved.push(key.into());
                        }
                        if at != LOAD {
                            let is_insert = kind == Kind::Insert;
                            self.change.add(Change::of(is_insert, -1));
                        }
                        data.push(kind == Kind::Insert);
                    }
                }
            }
        }
        let is_alternating = data.windows(2).all(|pair| pair.first() != pair.last());
        let net = data.first().copied().filter(|_| data.len() % 2 == 1);
        if !is_alternating || self.is_full && net == Some(false) {
            let place = format!("index {}", shared.settings.tree);
            let what = format!("an entry has inserts and deletes {data:?}: build the index anew");
            return Err(Error::corrupt(place, what));
        }
        if let Some(is_insert) = net {
            self.change.add(Change::of(is_insert, 1));
        }
        self.builders.add(key, fence, net);
        Ok(())
    }

    /// M-delete: makes the new blocks reachable and advances the wavefront (I6).
    fn publish(&mut self, shared: &Shared) {
        let mut state = shared.state.lock();
        let state = &mut *state;
        self.builders.publish();
        for (key, to) in self.builders.head_fences.drain(..) {
            state.head.add_fence(&key, to);
        }
        state.count(take(&mut self.change));
        let Some(mut old) = state.old.take() else {
            return;
        };
        old.last_fence = self.builders.last_fence;
        let mut reclaimed = Vec::new();
        if let (Some(wave), false) = (&self.wavefront, shared.settings.mode == Mode::Ds) {
            old.pointer = old.head.remove_fences(wave).or(old.pointer);
            for key in self.moved.drain(..) {
                old.head.remove(&key);
            }
            let passed = |key: &mut Box<[u8]>| **key <= **wave;
            let left: Vec<_> = self.left.extract_if(.., passed).collect();
            keep_pending(state, &mut old, left);
            debug_assert!(
                old.head.data.keys().next().is_none_or(|key| **key > **wave),
                "I6"
            );
            debug_assert!(old.wavefront.as_ref().is_none_or(|before| before <= wave));
            old.wavefront = Some(wave.clone());
            for (source, slot) in self.sources.iter_mut().zip(&mut old.slots) {
                while source.read.get(1).is_some_and(|(_, first)| first <= wave) {
                    source.read.pop_front();
                    reclaimed.extend(slot.level.number(slot.live_from));
                    slot.live_from += 1;
                }
                reclaimed.extend(slot.level.pass_partitions(wave));
            }
        }
        state.old = Some(old);
        state.reclaim(reclaimed);
    }

    /// Ends merge-execute: the new head becomes the head. Then merge-finalize, without its image.
    fn install(&mut self, shared: &Shared) -> Result<()> {
        let mut state = shared.state.lock();
        if let Some(mut old) = state.old.take() {
            keep_pending(&mut state, &mut old, take(&mut self.left));
            let mut reclaimed = Vec::new();
            for slot in &old.slots {
                let live = slot.live_from..slot.level.end();
                reclaimed.extend(live.filter_map(|ordinal| slot.level.number(ordinal)));
                let filters = slot.level.partitions();
                reclaimed.extend(filters.iter().flat_map(|one| &one.numbers));
            }
            self.tighten(shared, &mut state, old.new_levels);
            state.reclaim(reclaimed);
        }
        drop(state);
        skip_levels(shared)
    }

    /// Level tightening: the least numbers that the new levels' sizes allow (I3, I4).
    fn tighten(&self, shared: &Shared, state: &mut State, new_levels: usize) {
        let target = new_levels - 1;
        if let (Some(slot), false) = (state.slots.get_mut(target), self.builders.has_data) {
            let end = slot.level.end();
            let numbers = (0..end).filter_map(|ordinal| slot.level.number(ordinal));
            let level = Level::opened(slot.level.run, true, 0, numbers.collect());
            slot.level = Arc::new(level);
        }
        let mut at = 0;
        let mut kept = 0;
        state.slots.retain(|slot| {
            at += 1;
            let is_kept = at > new_levels || slot.blocks() > 0;
            kept += u32::from(is_kept && at <= new_levels);
            is_kept
        });
        let Some(last) = kept.checked_sub(1) else {
            return;
        };
        let Some(slot) = state.slots.get_mut(last as usize) else {
            return;
        };
        let mut numbers = kept..slot.number;
        let fit = numbers.find(|number| slot.blocks() <= shared.settings.capacity(*number));
        let number = fit.unwrap_or(slot.number);
        for (at, slot) in state.slots.iter_mut().take(kept as usize).enumerate() {
            slot.number = number - (last - at as u32);
        }
    }
}

/// The most blocks of a batch, whose bytes allow `most`.
fn batch_blocks(most: usize, replaced: u64) -> u64 {
    let most = most.max(1) as u64;
    match replaced {
        0 => most,
        _ => (replaced / BATCHES).max(BATCH_BLOCKS_MIN).min(most),
    }
}

/// Bits of a filter for each entry of a level with data.
fn filter_bits(shared: &Shared) -> usize {
    let bits = shared.settings.filter_bits;
    match entries_max(shared.blocks.block_bytes(), bits) {
        0 => 0,
        _ => bits,
    }
}

/// Moves pending entries from the old head to the new one.
fn keep_pending(state: &mut State, old: &mut Old, keys: Vec<Box<[u8]>>) {
    for key in keys {
        if let Some(data) = old.head.remove(&key) {
            // Counted while it was in the old head; `put` counts it again.
            let mut change = state.head.put(&key, data);
            change.add(Change::of(data.is_insert, -1));
            state.count(change);
        }
    }
}
