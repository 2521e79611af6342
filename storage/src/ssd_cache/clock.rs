//! The clock: which entries leave next [SSD-DB §2.4.2, §2.5].
//!
//! A queue of entries in the order of their admission. An entry at its head that was touched since
//! it was queued is queued again; the others are victims. After a restart nothing is touched.

use super::free_slots::Run;
use super::settings::BlockKey;
use super::state::{Entry, State};

/// A victim of the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim {
    pub block: BlockKey,
    pub slot: u32,
    pub born: u64,
    pub version: u64,
    pub is_fresh: bool,
    /// whether its element was taken from the queue
    pub is_dequeued: bool,
}

impl State {
    /// Whether an entry may leave now.
    fn is_evictable(entry: &Entry) -> bool {
        let is_settled = entry.listed.is_some() && !entry.is_writing;
        is_settled && !(entry.is_damaged && entry.is_fresh)
    }

    /// Turns the clock until it has victims of `slots` slots, of which at most `fresh_max` are
    /// fresh. Each entry is looked at twice at most: the first look takes the touched bit away.
    /// While entries wait for their listing, which lets them become victims, it is once at most.
    /// The victims' elements are taken from the queue.
    pub fn choose_victims(&mut self, slots: u32, fresh_max: usize) -> Vec<Victim> {
        let mut victims: Vec<Victim> = Vec::new();
        let (mut found, mut fresh) = (0, 0);
        let rounds = if self.pending.is_empty() { 2 } else { 1 };
        let mut turns = rounds * self.queue.len();
        while found < slots && fresh < fresh_max && turns > 0 {
            turns -= 1;
            let Some((slot, born)) = self.queue.pop_front() else {
                break;
            };
            let Some(entry) = self.living(slot, born) else {
                continue;
            };
            if std::mem::take(&mut entry.is_touched) || !Self::is_evictable(entry) {
                self.queue.push_back((slot, born));
                continue;
            }
            found += entry.run.slots;
            fresh += usize::from(entry.is_fresh);
            victims.push(Victim {
                is_dequeued: true,
                ..victim(entry)
            });
        }
        victims
    }

    /// Entries beyond the limit, up to `max`. Their elements stay in the queue.
    pub fn beyond_limit(&self, max: usize) -> Vec<Victim> {
        let Some(from) = self.limit.checked_sub(1) else {
            return self.evictable(self.entries.values(), max);
        };
        // The one before may reach over the limit.
        let before = self.entries.range(..=from).next_back();
        let reaching = before.map(|(_, entry)| entry);
        let reaching = reaching.filter(|entry| entry.run.end() > self.limit);
        let beyond = self.entries.range(self.limit..).map(|(_, entry)| entry);
        self.evictable(reaching.into_iter().chain(beyond), max)
    }

    /// Entries that overlap the window of `slots` slots around `slot`.
    pub fn in_window(&self, slot: u32, slots: u32) -> Vec<Victim> {
        let start = slot / slots * slots;
        let window = Run { start, slots };
        let before = self.entries.range(..start).next_back();
        let reaching = before.map(|(_, entry)| entry);
        let reaching = reaching.filter(|entry| entry.run.end() > start);
        let inside = self.entries.range(start..window.end());
        let inside = inside.map(|(_, entry)| entry);
        self.evictable(reaching.into_iter().chain(inside), usize::MAX)
    }

    fn evictable<'a>(&self, entries: impl Iterator<Item = &'a Entry>, max: usize) -> Vec<Victim> {
        let entries = entries.filter(|entry| Self::is_evictable(entry));
        entries.take(max).map(victim).collect()
    }

    /// Fresh entries that nothing has touched since the hand has passed, in the order of the queue,
    /// up to `max`: the next victims.
    pub fn next_to_clean(&self, max: usize) -> Vec<Victim> {
        let entries = self.queue.iter().filter_map(|&(slot, born)| {
            let entry = self.entries.get(&slot)?;
            let is_candidate = entry.born == born && entry.is_fresh && !entry.is_touched;
            (is_candidate && Self::is_evictable(entry)).then_some(entry)
        });
        entries.take(max).map(victim).collect()
    }

    /// The fresh entries that adjoin `block` in its file without gaps, up to `max` on each side.
    pub fn fresh_neighbours(&self, block: BlockKey, max: usize) -> Vec<Victim> {
        let after = self.run_of_fresh(block, max, |from| from.offset.checked_add(from.len.into()));
        // Most blocks of a file have one length, so the one before is looked for at that distance.
        let before =
            self.run_of_fresh(block, max, |from| from.offset.checked_sub(block.len.into()));
        after.into_iter().chain(before).collect()
    }

    fn run_of_fresh(
        &self,
        block: BlockKey,
        max: usize,
        next: impl Fn(BlockKey) -> Option<u64>,
    ) -> Vec<Victim> {
        let (mut run, mut at) = (Vec::new(), block);
        while run.len() < max
            && let Some(offset) = next(at)
            && let Some(entry) = self.entry(BlockKey { offset, ..block })
            && entry.is_fresh
            && Self::is_evictable(entry)
        {
            at = entry.block;
            run.push(victim(entry));
        }
        run
    }

    /// All fresh entries that no thread writes, damaged ones included: a copy of these fails.
    pub fn all_fresh(&self) -> Vec<Victim> {
        let entries = self.entries.values();
        let fresh = entries.filter(|entry| entry.is_fresh && !entry.is_writing);
        fresh.map(victim).collect()
    }

    /// A victim stays: it is the clock's last one again.
    pub fn spare(&mut self, victim: Victim) {
        let is_living = self.living(victim.slot, victim.born).is_some();
        if victim.is_dequeued && is_living {
            self.enqueue(victim.slot, victim.born);
        }
    }
}

fn victim(entry: &Entry) -> Victim {
    Victim {
        block: entry.block,
        slot: entry.run.start,
        born: entry.born,
        version: entry.version,
        is_fresh: entry.is_fresh,
        is_dequeued: false,
    }
}
