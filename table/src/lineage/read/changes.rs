//! The rows that other transactions have changed since a snapshot, for the validation of reads
//! \[L-Store §5.1.1: versions committed in (begin, commit\], merged ones included\].
//!
//! Tails show a change as a record; base shows it by start and last-updated times, which a merge
//! keeps and fills. A range version is loaded once: a change is in its tails or in its base, also
//! if a merge is published meanwhile. Pre-committed changes count. Cost: pending records, rows of
//! open insert ranges and of ranges merged since the snapshot, never rows at rest.

use crate::lineage::Lineage;
use crate::lineage::base::BaseBody;
use crate::lineage::base::row_meta::NEVER;
use crate::lineage::range::RangeVersion;
use strandline_base::{CommitTs, Result, RowId, UPDATE_ROWS};
use strandline_tail::record_page::RecordKind;
use strandline_tail::tail_pages::locate;
use strandline_tail::visibility::{RecordState, record_state, resolve};
use strandline_txn::StartWord;

impl Lineage {
    /// The rows that a transaction other than `own` has inserted, updated or deleted by a commit
    /// (or pre-commit) after `since`, in row order. The caller has a snapshot at `since`.
    pub fn changed_since(&self, since: CommitTs, own: StartWord) -> Result<Vec<RowId>> {
        let mut changed = Vec::new();
        for range in self.ranges().iter() {
            let version = range.load_full();
            let mut slots = self.changed_in_base(&version, since, own)?;
            self.add_changed_in_tails(&version, since, own, &mut slots);
            slots.sort_unstable();
            slots.dedup();
            let row = |slot: usize| RowId::new(range.no(), slot as u16);
            changed.extend(slots.into_iter().map(row));
        }
        Ok(changed)
    }

    /// Whether `row` is among [`Lineage::changed_since`].
    pub fn has_changed_since(&self, row: RowId, since: CommitTs, own: StartWord) -> Result<bool> {
        let Some(range) = self.range(row.range()) else {
            return Ok(false);
        };
        let version = range.load_full();
        let slot = row.slot();
        if let Some(tail) = &version.tails[slot / UPDATE_ROWS] {
            let entry = tail.row_map().entry(slot % UPDATE_ROWS);
            let pages = tail.pages();
            let mut next = pages.head(entry);
            while next != 0 {
                let Some((page, i)) = locate(&pages, next - 1) else {
                    break;
                };
                next = page.back(i);
                let state = record_state(page, i, own, &self.shared.txns);
                let kind = page.slot_kind(i).1;
                if !kind.is_lock() && is_after(state, since) {
                    return Ok(true);
                }
                // A chain is in commit order. An old value has the row's start, not a commit's.
                if kind != RecordKind::OldValue && matches!(state, RecordState::Committed(_)) {
                    break;
                }
            }
        }
        self.has_changed_in_base(&version, slot, since, own)
    }

    fn has_changed_in_base(
        &self,
        version: &RangeVersion,
        slot: usize,
        since: CommitTs,
        own: StartWord,
    ) -> Result<bool> {
        let txns = &self.shared.txns;
        Ok(match &version.base.body {
            BaseBody::Insert(rows) => rows
                .existing_page(slot)
                .is_some_and(|(page, i)| is_after(record_state(page, i, own, txns), since)),
            BaseBody::Chunks(chunks) if slot >= chunks.rows as usize => false,
            BaseBody::Chunks(chunks) => match &chunks.meta {
                None => is_after(resolve(|| chunks.start.load(), own, txns), since),
                Some(meta) => {
                    let meta = meta.load()?;
                    let start = meta.starts[slot];
                    start != NEVER && start.max(meta.last_updated[slot]) > since.0
                }
            },
        })
    }

    fn changed_in_base(
        &self,
        version: &RangeVersion,
        since: CommitTs,
        own: StartWord,
    ) -> Result<Vec<usize>> {
        let txns = &self.shared.txns;
        Ok(match &version.base.body {
            BaseBody::Insert(rows) => (0..rows.rows() as usize)
                .filter(|&slot| {
                    let place = rows.existing_page(slot);
                    place.is_some_and(|(page, i)| is_after(record_state(page, i, own, txns), since))
                })
                .collect(),
            BaseBody::Chunks(chunks) if chunks.is_quiet_at(since) => Vec::new(),
            BaseBody::Chunks(chunks) => match &chunks.meta {
                None => {
                    let state = resolve(|| chunks.start.load(), own, txns);
                    let rows = if is_after(state, since) {
                        chunks.rows
                    } else {
                        0
                    };
                    (0..rows as usize).collect()
                }
                Some(meta) => {
                    let meta = meta.load()?;
                    let times = meta.starts.iter().zip(meta.last_updated.iter());
                    let all = times.enumerate();
                    all.filter(|(_, (start, last))| *start != NEVER && *start.max(last) > since.0)
                        .map(|(slot, _)| slot)
                        .collect()
                }
            },
        })
    }

    fn add_changed_in_tails(
        &self,
        version: &RangeVersion,
        since: CommitTs,
        own: StartWord,
        slots: &mut Vec<usize>,
    ) {
        for (at, tail) in version.tails.iter().enumerate() {
            let Some(tail) = tail else { continue };
            for page in tail.pages().iter() {
                for i in 0..page.claimed() {
                    // The state first: only of a published record the rest may be looked at.
                    let state = record_state(page, i, own, &self.shared.txns);
                    if !is_after(state, since) {
                        continue;
                    }
                    let (slot, kind) = page.slot_kind(i);
                    if !kind.is_lock() {
                        slots.push(at * UPDATE_ROWS + usize::from(slot));
                    }
                }
            }
        }
    }
}

fn is_after(state: RecordState, since: CommitTs) -> bool {
    match state {
        RecordState::Committed(ts) | RecordState::PreCommitted(_, ts) => ts > since,
        RecordState::Nothing | RecordState::Own | RecordState::InProgress(_) => false,
    }
}
