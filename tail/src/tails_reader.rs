//! Reading all tails of a range at a snapshot: its overlay, and the records behind it; see
//! [`crate::overlay`] for the invariants.
//!
//! A reader holds pages and no range version, so a long scan keeps neither later pages nor anything
//! that later merges retire \[L-Store §4.1.1 step 5\].

use crate::overlay::{Overlay, slot_in_range};
use crate::patches::{PatchList, Patches};
use crate::range::{Range, RangeVersion};
use crate::record_page::RecordKind;
use crate::tail_pages::TailPages;
use crate::visibility::sees_record;
use std::ops;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, UPDATE_RANGES};
use strandline_txn::{TxnManager, Visibility};

/// The parts of a range's tails that a snapshot needs. Later merges do not change them.
#[derive(Debug)]
pub struct TailsReader {
    overlay: Option<Arc<Overlay>>,
    /// the range has an overlay that is newer than the snapshot
    is_past: bool,
    /// tails that the overlay does not speak for, because merged records behind it are gone
    without_overlay: [bool; UPDATE_RANGES],
    /// tails with records behind the overlay
    behind: [Option<Behind>; UPDATE_RANGES],
}

/// The records of a tail that a reader has to visit.
#[derive(Debug)]
struct Behind {
    /// the first one's sequence number
    from: u64,
    pages: Arc<TailPages>,
}

impl<B> Range<B> {
    /// The parts of `version`'s tails that a snapshot at `ts`, taken before, needs; the caller may
    /// release `version` afterwards.
    pub fn tails_reader(&self, version: &RangeVersion<B>, ts: CommitTs) -> TailsReader {
        let newest = version.overlay.as_ref();
        let is_past = newest.is_some_and(|overlay| overlay.newest() > ts);
        let mut reader = TailsReader {
            overlay: newest.filter(|_| !is_past).cloned(),
            is_past,
            without_overlay: [false; UPDATE_RANGES],
            behind: [const { None }; UPDATE_RANGES],
        };
        for (at, tail) in version.tails.iter().enumerate() {
            let Some(tail) = tail else { continue };
            let overlay = reader.overlay.as_deref();
            if overlay.is_some_and(|o| self.marks().is_complete(at, o.number())) {
                continue;
            }
            let pages = Arc::clone(&tail.pages());
            let first = pages.first_seq();
            let through = overlay.map_or(first, |overlay| overlay.through(at));

            reader.without_overlay[at] = through < first;
            let from = through.max(first);
            reader.behind[at] = Some(Behind { from, pages });
        }
        reader
    }
}

impl TailsReader {
    /// The overlay that it uses, for [`Range::note_visit`]; None of a reader of the past, which
    /// cannot leave an overlay that reaches further than the range's.
    pub fn grows(&self) -> Option<Option<&Overlay>> {
        (!self.is_past).then_some(self.overlay.as_deref())
    }

    /// Whether the `at`-th tail may have values of `column`.
    pub fn has_cells(&self, at: usize, column: ColumnId) -> bool {
        let settled = self.overlay.as_deref();
        settled.is_some_and(|overlay| !overlay.patches(column, at..at + 1).is_empty())
            || self.behind[at]
                .as_ref()
                .is_some_and(|behind| behind.pages.iter().any(|page| page.has_cells(column)))
    }

    /// The values of `columns` in the tails of several update ranges at `visibility`.
    pub fn view(
        &self,
        tails: ops::Range<usize>,
        visibility: &Visibility,
        columns: &[ColumnId],
        txns: &TxnManager,
    ) -> TailsView<'_> {
        let mut view = TailsView {
            overlay: self.overlay.as_deref(),
            runs: self.runs(tails.clone()),
            behind: Vec::new(),
            visited: Visited::default(),
        };
        for at in tails {
            let Some(behind) = &self.behind[at] else {
                continue;
            };
            let seen = behind.visit(at, visibility, columns, txns);
            view.visited.tails += 1;
            view.visited.records += seen.visited;
            if seen.visible > 0 {
                view.behind.push(seen);
            }
        }
        view
    }

    /// The update ranges among `tails` that the overlay speaks for, joined.
    fn runs(&self, tails: ops::Range<usize>) -> Vec<ops::Range<usize>> {
        if self.overlay.is_none() {
            return Vec::new();
        }
        let mut runs: Vec<ops::Range<usize>> = Vec::with_capacity(1);
        for at in tails.filter(|&at| !self.without_overlay[at]) {
            match runs.last_mut() {
                Some(last) if last.end == at => last.end = at + 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }
}

impl Behind {
    fn visit(
        &self,
        at: usize,
        visibility: &Visibility,
        columns: &[ColumnId],
        txns: &TxnManager,
    ) -> Seen {
        let mut seen = Seen {
            patches: columns.iter().map(|_| Patches::default()).collect(),
            ..Seen::default()
        };
        let mut wanted = Vec::with_capacity(columns.len());
        for page in self.pages.since(self.from) {
            wanted.clear();
            wanted.extend((0..columns.len()).filter(|&at| page.has_cells(columns[at])));
            let records = page.index_from(self.from)..page.claimed();
            seen.visited += records.len();
            if wanted.is_empty() && !page.has_deletes() {
                continue;
            }
            for i in records {
                if !sees_record(page, i, visibility, txns) {
                    continue;
                }
                seen.visible += 1;
                let (slot, kind) = page.slot_kind(i);
                let slot = slot_in_range(at, slot);
                if kind == RecordKind::Delete {
                    seen.deleted.push(slot);
                } else if kind == RecordKind::Update {
                    // Old values are those that base has.
                    for &at in &wanted {
                        if page.has(i, columns[at]) {
                            seen.patches[at].push(slot, page, i, columns[at]);
                        }
                    }
                }
            }
        }
        seen
    }
}

/// The values of one tail's records behind the overlay.
#[derive(Debug, Default)]
struct Seen {
    /// by position in the wanted columns
    patches: Vec<Patches>,
    /// slots in the range
    deleted: Vec<u16>,
    visited: usize,
    visible: u64,
}

/// The cost of a visit to several tails.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visited {
    /// tails with records behind the overlay
    pub tails: usize,
    /// records, visible or not
    pub records: usize,
}

/// The tails' values at a snapshot.
#[derive(Debug)]
pub struct TailsView<'a> {
    overlay: Option<&'a Overlay>,
    /// update ranges that the overlay speaks for
    runs: Vec<ops::Range<usize>>,
    behind: Vec<Seen>,
    /// cost of the visit
    pub visited: Visited,
}

impl TailsView<'_> {
    /// The patches of `column`, the `at`-th one wanted; each list to be applied after the one
    /// before.
    pub fn patches(&self, at: usize, column: ColumnId) -> impl Iterator<Item = PatchList<'_>> {
        let settled = self.overlay.into_iter().flat_map(move |overlay| {
            let runs = self.runs.iter();
            runs.map(move |run| overlay.patches(column, run.clone()))
        });
        let behind = self.behind.iter().map(move |seen| seen.patches[at].all());
        settled.chain(behind).filter(|list| !list.is_empty())
    }

    /// Deleted rows, by slot in the range.
    pub fn deleted(&self) -> impl Iterator<Item = u16> + '_ {
        let settled = self.overlay.into_iter().flat_map(|overlay| {
            let runs = self.runs.iter();
            runs.flat_map(|run| overlay.deleted(run.clone()))
        });
        let behind = self.behind.iter().flat_map(|seen| &seen.deleted);
        settled.chain(behind).copied()
    }

    /// Visible records and consolidated values about `columns`.
    pub fn records(&self, columns: &[ColumnId]) -> u64 {
        let overlay = self.overlay.into_iter();
        let settled = overlay.flat_map(|overlay| {
            let of_run = |run: &ops::Range<usize>| {
                let patches = columns.iter().map(|&c| overlay.patches(c, run.clone()));
                let patches: usize = patches.map(|list| list.len()).sum();
                patches + overlay.deleted(run.clone()).len()
            };
            self.runs.iter().map(of_run)
        });
        let behind: u64 = self.behind.iter().map(|seen| seen.visible).sum();
        behind + settled.sum::<usize>() as u64
    }
}
