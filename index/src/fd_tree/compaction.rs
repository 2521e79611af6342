//! A compaction [FD+ §2.3, §4.4]: stages entries of the old levels in order of their keys, inserts
//! them into the new levels, and deletes them from the old ones, a block's entries at a time.
//!
//! One caller at a time drives it (`drive`), by steps of a bounded size: it merges until a batch is
//! full, writes the batch in parts, syncs it, and writes the image. Readers see only what
//! [`Compaction::publish`] changes, under the state's lock.
//!
//! First it goes over the fences of the upper sources, up to their first data entry: what the
//! lowest replaced level has before that entry stays as it is (RFC 3, "Kept blocks").
//!
//! Reclaim rule [FD+ A.1]: the first block of an old level goes when the first key of the block
//! that follows it is not greater than the wavefront. Before that, keys between the last key of
//! the one and the first key of the other are found by the first block's last fence.

use super::batch::Batch;
use super::block::{Kind, index_name};
use super::builder::Builders;
use super::filter::FilterForm;
use super::finalize::{skip_levels, tighten};
use super::head::Change;
use super::image;
use super::level::Level;
use super::loaded::Loaded;
use super::partition::entries_max;
use super::plan::Plan;
use super::progress::Work;
use super::sources::{HEAD, LOAD, Sources};
use super::state::{Mode, Old, Shared, Slot, State};
use std::mem::{replace, swap, take};
use std::ops::Range;
use std::sync::Arc;
use strandline_base::{Error, Result};

/// A batch has no more than this part of the tree's blocks, since the blocks that it replaces are
/// not free before it is durable, but at least so many blocks, and as many as a load has. Each
/// batch costs two syncs and an image with the heads.
const BATCH_BLOCKS_MIN: u64 = 16;
const BATCHES: u64 = 16;
/// A batch has at least so many times the blocks that the heads take in its image.
const BATCH_IMAGES_MIN: u64 = 4;

/// What the next step does.
#[derive(Debug)]
enum Phase {
    Merge,
    Write(Batch),
    Image,
    Over,
}

/// Which blocks of the lowest replaced level the target takes over.
#[derive(Debug)]
enum Keeping {
    /// goes over the fences; first keys of blocks so far
    Looks(Vec<Box<[u8]>>),
    /// the first keys of those blocks, and of the one with which the merge begins
    Found(Vec<Box<[u8]>>),
    Over,
}

/// A compaction under way.
#[derive(Debug)]
pub(super) struct Compaction {
    phase: Phase,
    keeping: Keeping,
    /// blocks that it neither reads nor writes
    kept: u64,
    sources: Sources,
    builders: Builders,
    /// the most whole blocks of a batch
    batch_blocks: u64,
    is_full: bool,
    is_done: bool,
    /// entries of the old head that the stage has taken
    moved: Vec<Box<[u8]>>,
    change: Change,
    wavefront: Option<Box<[u8]>>,
}

impl Compaction {
    /// Merge-prepare: the head becomes the old head; a load's entries are inserted, too. `plan`: of
    /// this state and load.
    pub fn begin(
        shared: &Shared,
        state: &mut State,
        plan: Plan,
        loaded: Option<Arc<Loaded>>,
    ) -> Self {
        debug_assert!(state.old.is_none(), "one compaction at a time");
        let replaced: Vec<Slot> = state.slots.iter().take(plan.replaced).cloned().collect();
        let below = state.slots.iter().skip(plan.replaced).cloned();
        let mut slots: Vec<Slot> = Vec::new();
        for above in (0..=plan.fence_levels).rev() {
            let filters = match above {
                0 => filter_form(shared),
                _ => FilterForm::default(),
            };
            slots.push(Slot {
                number: plan.target - above,
                level: Arc::new(Level::new(state.next_run, above > 0, filters)),
                live_from: 0,
            });
            state.next_run += 1;
        }
        let new_levels = slots.len();
        slots.extend(below);
        state.slots = Arc::new(slots);
        state.begun += 1;
        state.old = Some(Old {
            head: take(&mut state.head),
            slots: Arc::new(replaced),
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
        compaction.sources.head.after = old.wavefront.clone();
        compaction.report(shared, &mut state);
        drop(state);
        compaction.builders.resume(shared)?;
        Ok(Some(compaction))
    }

    fn of(shared: &Shared, state: &State) -> Self {
        let old = state.old.as_ref();
        let new_levels = old.map_or(0, |old| old.new_levels);
        let levels = state.slots.iter().take(new_levels);
        let levels: Vec<Arc<Level>> = levels.map(|slot| slot.level.clone()).collect();
        let block_bytes = shared.blocks.block_bytes();
        let old_levels = old.iter().flat_map(|old| old.slots.iter());
        let below = state.slots.iter().skip(new_levels);
        let all = old_levels.chain(below).map(|slot| slot.level.end()).sum();
        let loaded = old.and_then(|old| old.loaded.as_deref());
        let loaded = loaded.map_or(0, |loaded| loaded.bytes().div_ceil(block_bytes) as u64);
        // In an image entries take about half of what they take in the head. What the old head
        // loses the new one gets.
        let heads = old.map_or(0, |old| old.head.data_bytes()) + state.head.data_bytes();
        let least = loaded.max(BATCH_IMAGES_MIN * (heads / 2 / block_bytes) as u64);
        Self {
            phase: Phase::Merge,
            keeping: match may_keep(shared, state) {
                true => Keeping::Looks(Vec::new()),
                false => Keeping::Over,
            },
            kept: levels.last().map_or(0, |target| target.kept()),
            sources: old.map_or_else(Sources::default, Sources::of),
            builders: Builders::new(&shared.settings, block_bytes, &levels),
            batch_blocks: batch_blocks(shared.settings.batch_bytes / block_bytes, all, least),
            is_full: new_levels == state.slots.len(),
            is_done: false,
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
                self.finalize(shared)?;
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

    /// Takes at most one block of every level, of which several are read at once, and makes what is
    /// complete reachable.
    fn merge(&mut self, shared: &Shared) -> Result<()> {
        if !self.look_for_kept(shared)? {
            return Ok(());
        }
        self.sources.fill(shared, self.wavefront.as_deref())?;
        if let Keeping::Found(first_keys) = &self.keeping {
            // In the step that publishes them: before it the wavefront is not where they end.
            if self.sources.has_unread() {
                return Ok(());
            }
            if let (Some(lowest), Some(end)) = (self.sources.levels.last(), first_keys.last()) {
                let kept = lowest.level.before(self.kept, end);
                self.builders.keep(kept, first_keys);
            }
        }
        self.stage(shared)?;
        self.publish(shared);
        if self.is_done || self.builders.unwritten() >= self.batch_blocks {
            self.phase = Phase::Write(self.builders.begin_batch(shared)?);
        }
        Ok(())
    }

    /// Goes over the fences that lead to blocks before all data entries of the other sources.
    /// Returns whether it is known which blocks are kept.
    fn look_for_kept(&mut self, shared: &Shared) -> Result<bool> {
        let Keeping::Looks(first_keys) = &mut self.keeping else {
            return Ok(true);
        };
        if !self.sources.pass_fences(shared, first_keys)? {
            return Ok(false);
        }
        self.keeping = match first_keys.len() as u64 {
            0 | 1 => Keeping::Over,
            known => {
                self.kept = known - 1;
                self.sources.begin_lowest_at(self.kept);
                Keeping::Found(take(first_keys))
            }
        };
        Ok(true)
    }

    /// The batch is written. A last one is followed by the installation of the new levels.
    fn end_batch(&mut self, shared: &Shared) -> Result<()> {
        if let Phase::Write(batch) = replace(&mut self.phase, Phase::Image) {
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

    /// Tells writers how far it is. About as many blocks are written as are read.
    fn report(&self, shared: &Shared, state: &mut State) {
        let Some(old) = &mut state.old else { return };
        let block_bytes = shared.blocks.block_bytes();
        let (read, unread) = self.sources.read_and_unread();
        let head = old.head.data_bytes().div_ceil(block_bytes);
        let load = self.sources.load_bytes().div_ceil(block_bytes);
        let in_memory = (head + load) as u64;
        // As many filter blocks are written again.
        let filters = self.sources.filter_blocks();
        let (unwritten, written) = match &self.phase {
            Phase::Write(batch) => (batch.left(), batch.len() - batch.left()),
            _ => (self.builders.unwritten(), 0),
        };
        old.work = Work {
            done: read.saturating_sub(self.kept) + self.builders.written + written,
            // The last image is work, too.
            left: 2 * unread + filters + in_memory + unwritten + 1,
        };
    }

    /// M-stage and m-insert: all keys of which no level can have unread entries.
    fn stage(&mut self, shared: &Shared) -> Result<()> {
        let mut last = None;
        let result = self.stage_keys(shared, &mut last);
        if let Some(key) = last {
            self.wavefront = Some(key.into());
        }
        result
    }

    /// As [`Compaction::stage`]; `last` becomes the last key that is staged.
    fn stage_keys(&mut self, shared: &Shared, last: &mut Option<Vec<u8>>) -> Result<()> {
        let mut key = Vec::new();
        while !self.sources.has_unread() {
            let Some(least) = self.sources.least() else {
                self.is_done = true;
                return Ok(());
            };
            let mut is_alone = true;
            // Mostly several keys of a large level come one after the other. Meanwhile no other
            // source loses an entry.
            while is_alone && let Some(ordering) = self.sources.compare(least) {
                if ordering.is_gt() {
                    break;
                }
                is_alone = ordering.is_lt();
                key.clear();
                key.extend_from_slice(self.sources.front_key(least.at).unwrap_or_default());
                let among = match is_alone {
                    true => least.at..least.at + 1,
                    false => HEAD..usize::MAX,
                };
                self.stage_key(shared, &key, among)?;
                swap(last.get_or_insert_default(), &mut key);
                if shared.settings.mode == Mode::FcTuple {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Takes all entries with one key, which only these sources have. Data entries alternate
    /// between insert and delete from level to level, so that an even number cancels, and an odd
    /// number leaves the newest.
    fn stage_key(&mut self, shared: &Shared, key: &[u8], among: Range<usize>) -> Result<()> {
        let (mut fence, mut is_loaded) = (None, false);
        // Of the data entries, without a load's.
        let (mut newest, mut oldest, mut count) = (None, None, 0);
        let mut is_alternating = true;
        // The last source has the fences.
        let last = match self.sources.levels.len() {
            0 => HEAD,
            levels => LOAD + levels,
        };
        let count_of_sources = among.len();
        let buffers = self.sources.buffers_mut().enumerate();
        for (at, buffer) in buffers.skip(among.start).take(count_of_sources) {
            while let Some((front, kind)) = buffer.front()
                && front == key
            {
                buffer.advance();
                match kind {
                    Kind::Fence(to) if at == last && !self.is_full => fence = Some(to),
                    Kind::Fence(_) => {}
                    Kind::Insert | Kind::Delete if at == LOAD => is_loaded = true,
                    Kind::Insert | Kind::Delete => {
                        if at == HEAD {
                            self.moved.push(key.into());
                        }
                        let is_insert = kind == Kind::Insert;
                        self.change.add(Change::of(is_insert, -1));
                        is_alternating &= oldest != Some(is_insert);
                        newest = newest.or(Some(is_insert));
                        oldest = Some(is_insert);
                        count += 1;
                    }
                }
            }
        }
        // The head has no entry of a load. One that the levels have is not inserted again.
        if is_loaded && newest != Some(true) {
            newest = Some(true);
            count += 1;
        }
        let net = newest.filter(|_| count % 2 == 1);
        if !is_alternating || self.is_full && net == Some(false) {
            let place = index_name(shared.settings.tree);
            let what = format!(
                "{count} inserts and deletes of an entry, the last of them an insert: {newest:?}, \
                 do not alternate or leave a delete: build the index anew"
            );
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
            let left: Vec<_> = self.sources.head.pending.extract_if(.., passed).collect();
            keep_pending(state, &mut old, left);
            debug_assert!(
                old.head.data.keys().next().is_none_or(|key| **key > **wave),
                "I6"
            );
            debug_assert!(old.wavefront.as_ref().is_none_or(|before| before <= wave));
            old.wavefront = Some(wave.clone());
            let slots = Arc::make_mut(&mut old.slots);
            if let Keeping::Found(first_keys) = replace(&mut self.keeping, Keeping::Over)
                && let (Some(slot), Some(end)) = (slots.last_mut(), first_keys.last())
            {
                debug_assert!(end <= wave, "the merge begins with the block behind them");
                slot.live_from = self.kept;
                slot.level.give_filters(end);
            }
            for (source, slot) in self.sources.levels.iter_mut().zip(slots) {
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
        self.builders.end();
        let mut state = shared.state.lock();
        if let Some(mut old) = state.old.take() {
            keep_pending(&mut state, &mut old, take(&mut self.sources.head.pending));
            let mut reclaimed = Vec::new();
            for slot in old.slots.iter() {
                reclaimed.extend(slot.level.numbers(slot.live_from).into_iter().flatten());
                let filters = slot.level.partitions();
                reclaimed.extend(filters.iter().flat_map(|one| one.owned()));
            }
            let has_data = self.builders.has_data;
            tighten(&shared.settings, &mut state, old.new_levels, has_data);
            state.reclaim(reclaimed);
        }
        drop(state);
        self.finalize(shared)
    }

    /// Skips levels of fences of an installed tree. It is done again if a read has failed.
    pub fn finalize(&self, shared: &Shared) -> Result<()> {
        match self.is_installed() {
            true => skip_levels(shared),
            false => Ok(()),
        }
    }
}

/// Whether a compaction that begins may keep blocks of the lowest level that it replaces.
fn may_keep(shared: &Shared, state: &State) -> bool {
    let Some(old) = &state.old else { return false };
    let target = old
        .new_levels
        .checked_sub(1)
        .and_then(|at| state.slots.get(at));
    let (Some(lowest), Some(target)) = (old.slots.last(), target) else {
        return false;
    };
    // In mode `Ds` the old levels stay whole to the end.
    shared.settings.mode != Mode::Ds
        && old.wavefront.is_none()
        && lowest.live_from == 0
        && target.blocks() == 0
        && !lowest.level.only_fences
        && lowest.level.filters == target.level.filters
}

/// The most blocks of a batch, whose bytes allow `most`, in a tree of `all` blocks. `least`: what a
/// load and the images want.
fn batch_blocks(most: usize, all: u64, least: u64) -> u64 {
    let most = most.max(1) as u64;
    match all {
        0 => most,
        _ => (all / BATCHES).max(BATCH_BLOCKS_MIN).max(least).min(most),
    }
}

/// The filters of a new level with data.
fn filter_form(shared: &Shared) -> FilterForm {
    let (bits, of) = (shared.settings.filter_bits, shared.settings.filter_of);
    match entries_max(shared.blocks.block_bytes(), bits) {
        0 => FilterForm::default(),
        _ => FilterForm { bits, of },
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
