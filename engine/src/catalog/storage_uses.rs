//! The storages that catalog versions name: the newest definition with each, and when the last
//! version that names it was superseded.
//!
//! Each checkpoint asks for all of them. Most neighbouring versions differ in one table, so the
//! tables in which two neighbours differ are found once and kept. A look at all storages then costs
//! the tables of the newest version and the changes before it, not versions times tables.
//!
//! Invariant: two versions with the timestamps of a kept pair are the pair that was compared.
//! Timestamps are unique, also over versions that were taken back.

use crate::catalog::{Catalog, HistoryPolicy, TableDef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandline_base::{CommitTs, StorageId, TableId};

/// A catalog and the timestamp from which on it is valid.
type Version = (CommitTs, Arc<Catalog>);

/// How catalog versions use a storage.
pub(crate) struct StorageUse {
    /// the newest definition of its table that has the storage
    pub table: Arc<TableDef>,
    /// of the newest definition of its table
    history: HistoryPolicy,
    /// when the last version that has it was superseded; None: the newest version has it
    superseded: Option<CommitTs>,
}

/// The storages that some versions name.
#[derive(Default)]
pub(crate) struct StorageUses(BTreeMap<StorageId, StorageUse>);

/// The tables in which neighbouring versions differ.
#[derive(Default)]
pub(crate) struct VersionChanges {
    /// by the timestamps of two neighbours: the tables of the older one that the newer one changes
    /// or lacks
    known: BTreeMap<(CommitTs, CommitTs), Vec<TableId>>,
    /// the number of definitions looked at
    #[cfg(test)]
    looked_at: usize,
}

impl StorageUses {
    fn note(&mut self, table: &Arc<TableDef>, history: HistoryPolicy, at: Option<CommitTs>) {
        self.0.entry(table.storage).or_insert_with(|| StorageUse {
            table: table.clone(),
            history,
            superseded: at,
        });
    }

    /// The newest definition with a storage.
    pub fn table(&self, storage: StorageId) -> Option<&Arc<TableDef>> {
        self.0.get(&storage).map(|found| &found.table)
    }

    /// Whether the newest version has a storage.
    pub fn has_newest(&self, storage: StorageId) -> bool {
        let found = self.0.get(&storage);
        found.is_some_and(|found| found.superseded.is_none())
    }

    /// All storages.
    pub fn all(&self) -> BTreeSet<StorageId> {
        self.0.keys().copied().collect()
    }

    /// All tables.
    pub fn tables(&self) -> BTreeSet<TableId> {
        self.0.values().map(|found| found.table.id).collect()
    }

    /// The storages that readers may still use: those of the last version, and those that a table
    /// had since its history begins, or since `oldest`, the oldest snapshot. `begins` gives the
    /// begin of a policy's history. The newest definition of a table determines its policy.
    pub fn kept(
        &self,
        begins: impl Fn(HistoryPolicy) -> CommitTs,
        oldest: CommitTs,
    ) -> BTreeSet<StorageId> {
        let is_kept = |found: &StorageUse| {
            let superseded = found.superseded;
            superseded.is_none_or(|at| at > oldest || at >= begins(found.history))
        };
        let kept = self.0.iter().filter(|(_, found)| is_kept(found));
        kept.map(|(id, _)| *id).collect()
    }
}

impl VersionChanges {
    /// The storages that the versions up to `through` name. `versions` are all, oldest first.
    pub fn uses(&mut self, versions: &[Version], through: CommitTs) -> StorageUses {
        let (mut known, mut uses) = (BTreeMap::new(), StorageUses::default());
        let mut policies: BTreeMap<TableId, HistoryPolicy> = BTreeMap::new();
        let end = versions.partition_point(|(from, _)| *from <= through);
        let newest = versions[..end].last().map(|(_, newest)| newest);
        for table in newest.iter().flat_map(|newest| newest.tables.values()) {
            self.look_at(1);
            policies.insert(table.id, table.history);
            uses.note(table, table.history, None);
        }
        // The newest first, and of a table its newest definition.
        for at in (1..versions.len()).rev() {
            let ((older, before), (newer, after)) = (&versions[at - 1], &versions[at]);
            let changed = match self.known.remove(&(*older, *newer)) {
                Some(changed) => changed,
                None => self.changed(before, after),
            };
            for table in changed.iter().filter_map(|id| before.tables.get(id)) {
                if at < end {
                    self.look_at(1);
                    let history = *policies.entry(table.id).or_insert(table.history);
                    uses.note(table, history, Some(*newer));
                }
            }
            known.insert((*older, *newer), changed);
        }
        self.known = known;
        uses
    }

    fn changed(&mut self, before: &Catalog, after: &Catalog) -> Vec<TableId> {
        self.look_at(before.tables.len());
        let is_same = |id, table| {
            let now = after.tables.get(id);
            now.is_some_and(|now| Arc::ptr_eq(now, table))
        };
        let tables = before.tables.iter();
        let changed = tables.filter(|(id, table)| !is_same(id, table));
        changed.map(|(id, _)| *id).collect()
    }

    fn look_at(&mut self, _definitions: usize) {
        #[cfg(test)]
        {
            self.looked_at += _definitions;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::rng::Rng;

    fn table(id: u32, storage: u32, history: HistoryPolicy) -> Arc<TableDef> {
        Arc::new(TableDef {
            id: TableId(id),
            storage: StorageId(storage),
            history,
            ..TableDef::new("public", format!("t{id}"), Vec::new())
        })
    }

    fn begins(policy: HistoryPolicy) -> CommitTs {
        match policy {
            HistoryPolicy::Forever => CommitTs::ZERO,
            _ => CommitTs(30),
        }
    }

    /// The same by a look at every table of every version.
    fn kept_by_all(versions: &[Version], oldest: CommitTs) -> BTreeSet<StorageId> {
        let mut policies: BTreeMap<TableId, HistoryPolicy> = BTreeMap::new();
        let mut kept = BTreeSet::new();
        let mut superseded: Option<CommitTs> = None;
        for (from, catalog) in versions.iter().rev() {
            for table in catalog.tables.values() {
                let policy = *policies.entry(table.id).or_insert(table.history);
                if superseded.is_none_or(|at| at > oldest || at >= begins(policy)) {
                    kept.insert(table.storage);
                }
            }
            superseded = Some(*from);
        }
        kept
    }

    #[test]
    fn remembered_changes_give_what_a_look_at_all_versions_gives() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let mut changes = VersionChanges::default();
            let mut versions: Vec<Version> = vec![(CommitTs(1), Arc::default())];
            let mut next_storage = 0;
            for ts in 2..60 {
                let mut catalog = Catalog::clone(&versions[versions.len() - 1].1);
                let id = rng.below(8) as u32;
                let policies = [HistoryPolicy::None, HistoryPolicy::Forever];
                let policy = policies[rng.below(2) as usize];
                let old = catalog.tables.get(&TableId(id)).map(|t| t.storage.0);
                match rng.below(4) {
                    0 => drop(catalog.tables.remove(&TableId(id))),
                    1 if old.is_some() => {
                        let renamed = table(id, old.unwrap_or_default(), policy);
                        catalog.tables.insert(TableId(id), renamed);
                    }
                    _ => {
                        next_storage += 1;
                        let other = table(id, next_storage, policy);
                        catalog.tables.insert(TableId(id), other);
                    }
                }
                versions.push((CommitTs(ts), Arc::new(catalog)));
                match rng.below(10) {
                    0 => drop(versions.remove(0)),
                    1 if versions.len() > 1 => drop(versions.pop()),
                    _ => {}
                }
                let through = CommitTs(ts.saturating_sub(rng.below(4)));
                let end = versions.partition_point(|(from, _)| *from <= through);
                let oldest = CommitTs(rng.below(ts));
                let uses = changes.uses(&versions, through);
                let expected = kept_by_all(&versions[..end], oldest);
                assert_eq!(uses.kept(begins, oldest), expected, "seed {seed}, {ts}");
                let mut all = BTreeMap::new();
                for (_, catalog) in &versions[..end] {
                    all.extend(catalog.tables.values().map(|t| (t.storage, t.clone())));
                }
                assert_eq!(uses.all(), all.keys().copied().collect());
                for (storage, table) in &all {
                    let found = uses.table(*storage).expect("a definition");
                    assert!(Arc::ptr_eq(found, table), "the newest, seed {seed}, {ts}");
                }
            }
        }
    }

    #[test]
    fn a_look_costs_the_newest_tables_and_the_changes() {
        const TABLES: u32 = 1_000;
        const VERSIONS: u64 = 300;
        let mut catalog = Catalog::default();
        for id in 0..TABLES {
            let policy = HistoryPolicy::Forever;
            catalog.tables.insert(TableId(id), table(id, id, policy));
        }
        let mut versions: Vec<Version> = vec![(CommitTs(1), Arc::new(catalog.clone()))];
        for ts in 2..2 + VERSIONS {
            let id = ts as u32 % TABLES;
            let changed = table(id, TABLES + ts as u32, HistoryPolicy::Forever);
            catalog.tables.insert(TableId(id), changed);
            versions.push((CommitTs(ts), Arc::new(catalog.clone())));
        }
        let mut changes = VersionChanges::default();
        changes.uses(&versions, CommitTs::MAX);
        for through in [CommitTs::MAX, CommitTs(VERSIONS / 2), CommitTs::MAX] {
            changes.looked_at = 0;
            let uses = changes.uses(&versions, through);
            assert!(uses.all().len() >= TABLES as usize);
            assert!(changes.looked_at <= TABLES as usize + VERSIONS as usize);
        }
        // A further version is compared with the one before only.
        versions.push((CommitTs(5_000), Arc::new(catalog)));
        changes.looked_at = 0;
        changes.uses(&versions, CommitTs::MAX);
        assert!(changes.looked_at <= 2 * TABLES as usize + VERSIONS as usize);
    }
}
