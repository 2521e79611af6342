//! Rounds: they make changes of the cache durable, and free slots ahead of admissions.
//!
//! Order within a round: victims are on the capacity tier, synced; slots are synced; the directory
//! has all changes, synced; only then are slots free [SSD-DB §2.4.8].

use std::collections::BTreeSet;
use std::time::Duration;

use strandline_base::{Error, Result};

use super::clock::Victim;
use super::core::{Maintenance, SsdCache};
use super::directory::{Change, Directory, Head};
use super::settings::Mode;
use super::state::State;
use crate::cache_counters::add;

/// Fresh neighbours that a victim takes along on each side.
const NEIGHBOURS_MAX: usize = 16;

impl SsdCache {
    /// Whether a step has something to do.
    pub fn is_step_due(&self) -> bool {
        let state = self.state.lock();
        self.settings.mode != Mode::Off && self.is_due(&state)
    }

    /// Waits until an admission makes a step due, at most for `patience`.
    pub fn await_step(&self, patience: Duration) {
        let mut state = self.state.lock();
        self.due.wait_for(&mut state, patience);
    }

    /// Wakes the thread that waits for a step.
    pub fn wake(&self) {
        self.due.notify_all();
    }

    /// Wakes the thread that waits for a step if the last admission has made one due.
    pub(super) fn wake_if_due(&self, state: &State) {
        let is_batch = state.pending_count() + 1 >= self.settings.batch as usize;
        if is_batch || state.free.count() < self.reserve(state) {
            self.due.notify_all();
        }
    }

    fn is_due(&self, state: &State) -> bool {
        state.coming_free() < self.reserve(state)
            || state.free.count() < self.reserve(state)
            || state.missed_run > 0
            || !state.leaving.is_empty()
            || state.pending_count() >= self.settings.batch as usize
            || state.limit < state.allocated
            || self.has_much_to_clean(state)
    }

    /// Whether lazy cleaning is over its threshold.
    fn has_much_to_clean(&self, state: &State) -> bool {
        let threshold = u64::from(state.limit) * u64::from(self.settings.cleaning_percent) / 100;
        self.is_volatile() && state.fresh_count() > threshold
    }

    /// One step of background work: frees slots ahead, lists admitted blocks, empties slots beyond
    /// a reduced size, and in mode `lc` cleans. Waits for syncs. Returns whether it has achieved
    /// something and more is due.
    ///
    /// # Errors
    /// Those of the devices, after everything else was tried; `Closed` (58030) since a sync has
    /// failed.
    pub fn step(&self) -> Result<bool> {
        if self.settings.mode == Mode::Off {
            return Ok(false);
        }
        let mut maintenance = self.maintenance.lock();
        self.state.lock().check_usable()?;
        let victims = self.choose_victims();
        let copied = self.copy_out(&self.with_neighbours(&victims));
        let evicted = self.evict_clean(victims);
        let settled = self.settle(&mut maintenance, false)?;
        let is_cut = self.cut_file()?;
        let has_much_to_clean = self.has_much_to_clean(&self.state.lock());
        let is_cleaned = has_much_to_clean && self.clean(self.settings.batch as usize)? > 0;
        copied?;
        let is_due = self.is_due(&self.state.lock());
        Ok(is_due && (evicted > 0 || settled || is_cut || is_cleaned))
    }

    /// Copies up to `blocks_max` fresh blocks out that will be victims next. They stay cached. For
    /// idle times; the directory is not written. Returns their number.
    ///
    /// # Errors
    /// As [`SsdCache::step`].
    pub fn clean_idle(&self, blocks_max: usize) -> Result<usize> {
        let _maintenance = self.maintenance.lock();
        self.state.lock().check_usable()?;
        self.clean(blocks_max)
    }

    fn clean(&self, blocks_max: usize) -> Result<usize> {
        let victims = self.state.lock().next_to_clean(blocks_max);
        self.copy_out(&victims)?;
        Ok(victims.len())
    }

    fn choose_victims(&self) -> Vec<Victim> {
        let mut state = self.state.lock();
        let batch = self.settings.batch.max(1);
        let missed = std::mem::take(&mut state.missed_run);
        let wanted = self.reserve(&state).max(missed);
        let mut short = wanted.saturating_sub(state.coming_free());
        if missed > 1 {
            short = short.max(1);
        }
        if self.settings.mode == Mode::Pc2 && short > 0 {
            // The rounds that follow find slots enough.
            short = short.max(batch.min(state.limit.div_ceil(4)));
        }
        let mut victims = state.choose_victims(short, batch as usize);
        if missed > 1
            && let Some(first) = victims.first()
        {
            // Free slots are there, but not side by side.
            let more = state.in_window(first.slot, missed);
            add_victims(&mut victims, more);
        }
        if state.limit < state.allocated {
            add_victims(&mut victims, state.beyond_limit(batch as usize));
        }
        victims
    }

    /// The victims, and the fresh neighbours of fresh ones in their files: adjacent blocks are one
    /// request to the capacity tier. Neighbours stay cached and are clean then.
    fn with_neighbours(&self, victims: &[Victim]) -> Vec<Victim> {
        let state = self.state.lock();
        let mut all = victims.to_vec();
        let mut known: BTreeSet<u32> = victims.iter().map(|victim| victim.slot).collect();
        for victim in victims.iter().filter(|victim| victim.is_fresh) {
            let neighbours = state.fresh_neighbours(victim.block, NEIGHBOURS_MAX);
            let new = neighbours
                .into_iter()
                .filter(|other| known.insert(other.slot));
            all.extend(new);
        }
        all
    }

    /// Removes the victims that are clean and unchanged; the others stay. Returns the number
    /// removed.
    fn evict_clean(&self, victims: Vec<Victim>) -> usize {
        let mut state = self.state.lock();
        let mut evicted = 0;
        for victim in victims {
            let entry = state.living(victim.slot, victim.born);
            let may_leave = entry.is_some_and(|entry| {
                let is_same = entry.version == victim.version && !entry.is_writing;
                is_same && !entry.is_fresh
            });
            match may_leave {
                true => {
                    state.remove(victim.slot);
                    evicted += 1;
                }
                false => state.spare(victim),
            }
        }
        add(&self.counters.evictions, evicted as u64);
        evicted
    }

    /// Makes the changes so far durable, and frees the slots that they leave. `is_forced` syncs the
    /// slots even without changes. Returns whether there were changes.
    pub(super) fn settle(&self, maintenance: &mut Maintenance, is_forced: bool) -> Result<bool> {
        let (changes, freed) = self.state.lock().take_changes();
        let has_changes = !changes.is_empty();
        let durable = match self.is_volatile() {
            true => Ok(()),
            false => self.make_durable(maintenance, &changes, is_forced),
        };
        let mut state = self.state.lock();
        match &durable {
            Ok(()) => freed.into_iter().for_each(|run| state.release(run)),
            Err(_) => state.leaving.extend(freed),
        }
        durable.map(|()| has_changes)
    }

    fn make_durable(
        &self,
        maintenance: &mut Maintenance,
        changes: &[Change],
        is_forced: bool,
    ) -> Result<()> {
        if !changes.is_empty() || is_forced {
            add(&self.counters.cache_syncs, 1);
            let synced = self.slots.sync();
            synced.map_err(|error| self.fail(&error, "its slots"))?;
        }
        if changes.is_empty() && !maintenance.is_broken {
            return Ok(());
        }
        add(&self.counters.directory_changes, changes.len() as u64);
        let directory = maintenance.directory.as_mut();
        let directory = directory.filter(|directory| !directory.is_long());
        let Some(directory) = directory.filter(|_| !maintenance.is_broken) else {
            return self.begin_epoch(maintenance);
        };
        add(&self.counters.cache_syncs, 1);
        match directory.append(changes) {
            Ok(frames) => {
                add(&self.counters.directory_writes, frames);
                Ok(())
            }
            Err(error) => {
                // The file's end is unknown. The next round writes another file.
                maintenance.is_broken = true;
                Err(error.context("the SSD cache's directory"))
            }
        }
    }

    /// Writes the directory anew and puts it in force. An error after the first step ends all
    /// writing: it is not known which directory is in force.
    pub(super) fn begin_epoch(&self, maintenance: &mut Maintenance) -> Result<()> {
        let head = Head {
            identity: self.settings.identity,
            epoch: maintenance.marker.epoch + 1,
            slot_bytes: self.settings.slot_bytes,
        };
        let entries = self.state.lock().listed();
        let device = &*self.device;
        add(&self.counters.cache_syncs, 2);
        add(&self.counters.directory_rewrites, 1);
        let staged = Directory::stage(device, head, &entries)
            .map_err(|error| error.context("the SSD cache's new directory"))?;
        let mut marker = maintenance.marker.clone();
        marker.epoch = head.epoch;
        self.write_marker(maintenance, marker)?;
        Directory::publish(device)
            .map_err(|error| self.fail(&error, "the name of its directory"))?;
        maintenance.directory = Some(staged);
        maintenance.is_broken = false;
        Ok(())
    }

    /// Puts a marker in force.
    pub(super) fn write_marker(
        &self,
        maintenance: &mut Maintenance,
        marker: super::marker::Marker,
    ) -> Result<()> {
        let device = &*self.device;
        let context = |error: Error| error.context("the SSD cache's marker");
        add(&self.counters.cache_syncs, 1);
        add(&self.counters.marker_writes, 1);
        marker.stage(device).map_err(context)?;
        super::marker::Marker::publish(device)
            .map_err(|error| self.fail(&error, "its marker on the capacity tier"))?;
        maintenance.marker = marker;
        Ok(())
    }

    /// Changes the size. Less space: blocks beyond it stay readable and leave with the next steps,
    /// fresh ones to the capacity tier first.
    ///
    /// # Errors
    /// 53100 without room for more slots, `Closed` (58030) since a sync has failed; the size is
    /// then as before.
    pub fn resize(&self, cache_bytes: u64) -> Result<()> {
        if self.settings.mode == Mode::Off {
            return Ok(());
        }
        let limit = self.settings.slots_of(cache_bytes);
        let _maintenance = self.maintenance.lock();
        self.state.lock().check_usable()?;
        if limit > self.state.lock().allocated {
            self.slots.set_slots(limit)?;
            self.state.lock().allocated = limit;
        }
        self.state.lock().set_limit(limit);
        self.wake();
        Ok(())
    }

    /// Cuts the file once nothing is beyond the limit. Returns whether it was cut.
    fn cut_file(&self) -> Result<bool> {
        let state = self.state.lock();
        let limit = state.limit;
        if limit == state.allocated || state.is_shrinking() {
            return Ok(false);
        }
        drop(state);
        self.slots.set_slots(limit)?;
        let mut state = self.state.lock();
        state.allocated = limit;
        state.given_up.retain(|run| run.end() <= limit);
        Ok(true)
    }
}

fn add_victims(victims: &mut Vec<Victim>, more: Vec<Victim>) {
    for victim in more {
        if victims.iter().all(|known| known.slot != victim.slot) {
            victims.push(victim);
        }
    }
}
