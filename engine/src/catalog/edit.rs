//! Differences between catalogs. They make the size of a definition change, in the log and in the
//! manifest, proportional to the change rather than to the catalog.
//!
//! Invariants:
//! 1. `CatalogEdit::between(a, b).apply(a)` equals `b`.
//! 2. Definitions that are equal in both catalogs share memory: `apply` copies pointers of tables,
//!    views and roles, and `between` compares pointers first.

use crate::catalog::access::{Access, Grant, Object, RoleDef, RoleId};
use crate::catalog::versions::Version;
use crate::catalog::{Catalog, TableDef, ViewDef, known_version};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{CommitTs, Error, Result, TableId};

/// The difference between two catalogs, without the parts that are equal in both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CatalogEdit {
    /// [`Catalog::version`]
    #[serde(deserialize_with = "known_version")]
    version: u32,
    next_table: u32,
    next_storage: u32,
    #[serde(default, skip_serializing_if = "MapEdit::is_empty")]
    schemas: MapEdit<String, Option<String>>,
    #[serde(default, skip_serializing_if = "MapEdit::is_empty")]
    tables: MapEdit<TableId, Arc<TableDef>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    views: Option<ListEdit<Arc<ViewDef>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    access: Option<AccessEdit>,
}

/// The difference between two [`Access`] values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct AccessEdit {
    next_role: u32,
    #[serde(default, skip_serializing_if = "MapEdit::is_empty")]
    roles: MapEdit<RoleId, Arc<RoleDef>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owners: Option<ListEdit<(Object, RoleId)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grants: Option<ListEdit<Grant>>,
}

impl CatalogEdit {
    /// The edit that turns `before` into `after`.
    pub fn between(before: &Catalog, after: &Catalog) -> Self {
        Self {
            version: after.version,
            next_table: after.next_table,
            next_storage: after.next_storage,
            schemas: MapEdit::between(&before.schemas, &after.schemas, |a, b| a == b),
            tables: MapEdit::between(&before.tables, &after.tables, same),
            views: ListEdit::between(&before.views, &after.views, same),
            access: AccessEdit::between(&before.access, &after.access),
        }
    }

    /// Applies this change to `before`.
    ///
    /// # Errors
    /// None: the change belongs to a different catalog.
    pub fn apply(&self, before: &Catalog) -> Option<Catalog> {
        let mut after = before.clone();
        after.version = self.version;
        after.next_table = self.next_table;
        after.next_storage = self.next_storage;
        self.schemas.apply(&mut after.schemas);
        self.tables.apply(&mut after.tables);
        if let Some(views) = &self.views {
            views.apply(&mut after.views)?;
        }
        if let Some(access) = &self.access {
            access.apply(Arc::make_mut(&mut after.access))?;
        }
        Some(after)
    }

    /// The tables that are new or changed.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableDef>> {
        self.tables.put.values()
    }
}

impl AccessEdit {
    fn between(before: &Arc<Access>, after: &Arc<Access>) -> Option<Self> {
        if Arc::ptr_eq(before, after) {
            return None;
        }
        let edit = Self {
            next_role: after.next_role,
            roles: MapEdit::between(&before.roles, &after.roles, same),
            owners: ListEdit::between(&before.owners, &after.owners, |a, b| a == b),
            grants: ListEdit::between(&before.grants, &after.grants, |a, b| a == b),
        };
        (before != after).then_some(edit)
    }

    fn apply(&self, access: &mut Access) -> Option<()> {
        access.next_role = self.next_role;
        self.roles.apply(&mut access.roles);
        if let Some(owners) = &self.owners {
            owners.apply(&mut access.owners)?;
        }
        match &self.grants {
            Some(grants) => grants.apply(&mut access.grants),
            None => Some(()),
        }
    }
}

fn same<T: PartialEq>(a: &Arc<T>, b: &Arc<T>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

/// A change of a map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "K: Deserialize<'de> + Ord, V: Deserialize<'de>"))]
struct MapEdit<K, V> {
    /// new or replaced
    put: BTreeMap<K, V>,
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    gone: Vec<K>,
}

impl<K, V> Default for MapEdit<K, V> {
    fn default() -> Self {
        Self {
            put: BTreeMap::new(),
            gone: Vec::new(),
        }
    }
}

impl<K: Ord + Clone, V: Clone> MapEdit<K, V> {
    fn between(
        before: &BTreeMap<K, V>,
        after: &BTreeMap<K, V>,
        same: impl Fn(&V, &V) -> bool,
    ) -> Self {
        let changed = after
            .iter()
            .filter(|(key, value)| before.get(key).is_none_or(|old| !same(old, value)));
        let gone = before.keys().filter(|key| !after.contains_key(key));
        Self {
            put: changed.map(|(k, v)| (k.clone(), v.clone())).collect(),
            gone: gone.cloned().collect(),
        }
    }

    fn apply(&self, map: &mut BTreeMap<K, V>) {
        for key in &self.gone {
            map.remove(key);
        }
        map.extend(self.put.iter().map(|(k, v)| (k.clone(), v.clone())));
    }
}

impl<K, V> MapEdit<K, V> {
    fn is_empty(&self) -> bool {
        self.put.is_empty() && self.gone.is_empty()
    }
}

/// A change of a list: `put` replaces the items between `from` and `to`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ListEdit<T> {
    from: usize,
    to: usize,
    put: Vec<T>,
}

impl<T: Clone> ListEdit<T> {
    fn between(before: &[T], after: &[T], same: impl Fn(&T, &T) -> bool) -> Option<Self> {
        let pairs = before.iter().zip(after);
        let from = pairs.take_while(|(a, b)| same(a, b)).count();
        let pairs = before[from..].iter().rev().zip(after[from..].iter().rev());
        let kept = pairs.take_while(|(a, b)| same(a, b)).count();
        let (to, end) = (before.len() - kept, after.len() - kept);
        let put = after[from..end].to_vec();
        (from < to || !put.is_empty()).then_some(Self { from, to, put })
    }

    fn apply(&self, list: &mut Vec<T>) -> Option<()> {
        if self.from > self.to || self.to > list.len() {
            return None;
        }
        list.splice(self.from..self.to, self.put.iter().cloned());
        Some(())
    }
}

/// A change of the list of catalog versions: the oldest are removed, new ones are added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct VersionsEdit {
    /// versions before this timestamp are removed
    from: CommitTs,
    /// each with its difference from the one before
    added: Vec<(CommitTs, CatalogEdit)>,
}

impl VersionsEdit {
    /// The edit that turns `before` into `after`. Both are sorted and not empty. None if they are
    /// the same. A version in both lists must be the same in both.
    pub fn between(before: &[Version], after: &[Version]) -> Option<Self> {
        let (oldest, newest, from) = (before.first()?.0, before.last()?, after.first()?.0);
        let mut last = &newest.1;
        let mut added = Vec::new();
        for (ts, catalog) in after.iter().filter(|(ts, _)| *ts > newest.0) {
            added.push((*ts, CatalogEdit::between(last, catalog)));
            last = catalog;
        }
        (from > oldest || !added.is_empty()).then_some(Self { from, added })
    }

    /// Applies the change to the list.
    ///
    /// # Errors
    /// XX001 with `place` if the change belongs to a different list.
    pub fn apply(&self, versions: &mut Vec<Version>, place: &str) -> Result<()> {
        for (ts, edit) in &self.added {
            let last = versions.last().filter(|(last, _)| last < ts);
            let catalog = last.and_then(|(_, last)| edit.apply(last));
            versions.push((*ts, Arc::new(catalog.ok_or_else(|| misplaced(place))?)));
        }
        versions.retain(|(ts, _)| *ts >= self.from);
        match versions.is_empty() {
            false => Ok(()),
            true => Err(misplaced(place)),
        }
    }
}

/// The error for a stored change that does not belong to the catalog before it.
pub(crate) fn misplaced(place: &str) -> Error {
    Error::corrupt(
        place,
        "a change of the catalog does not belong to the catalog before it",
    )
}

/// The stored form of catalog versions: the oldest whole, then differences. For `serde(with)`.
pub(crate) mod stored_versions {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Stored {
        oldest: Option<(CommitTs, Arc<Catalog>)>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        later: Vec<(CommitTs, CatalogEdit)>,
    }

    pub fn serialize<S: Serializer>(versions: &[Version], to: S) -> Result<S::Ok, S::Error> {
        let pairs = versions.windows(2);
        let later = pairs.map(|pair| (pair[1].0, CatalogEdit::between(&pair[0].1, &pair[1].1)));
        let stored = Stored {
            oldest: versions.first().cloned(),
            later: later.collect(),
        };
        stored.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Version>, D::Error> {
        let stored = Stored::deserialize(from)?;
        let mut versions: Vec<Version> = stored.oldest.into_iter().collect();
        let from = versions.first().map_or(CommitTs::ZERO, |oldest| oldest.0);
        let added = stored.later;
        if !added.is_empty() {
            let edit = VersionsEdit { from, added };
            let place = "the list of catalogs";
            edit.apply(&mut versions, place)
                .map_err(serde::de::Error::custom)?;
        }
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::HistoryPolicy;
    use crate::catalog::access::Privileges;
    use strandline_base::StorageId;
    use strandline_base::rng::Rng;

    fn table(id: u32, rng: &mut Rng) -> TableDef {
        TableDef {
            id: TableId(id),
            storage: StorageId(id),
            next_column: rng.below(3) as u32,
            history: HistoryPolicy::None,
            comment: rng.one_in(2).then(|| format!("{}", rng.below(4))),
            ..TableDef::new("public", format!("t{id}"), Vec::new())
        }
    }

    fn view(name: String) -> Arc<ViewDef> {
        Arc::new(ViewDef {
            schema: "public".into(),
            name,
            query: "SELECT 1".into(),
            columns: Vec::new(),
            comment: None,
        })
    }

    /// One random change; sometimes no change.
    fn change(catalog: &mut Catalog, rng: &mut Rng) {
        let id = rng.below(6) as u32;
        match rng.below(9) {
            0 | 1 => catalog.put_table(table(id, rng)),
            2 => drop(catalog.tables.remove(&TableId(id))),
            3 => catalog.views.push(view(format!("v{}", rng.below(5)))),
            4 if !catalog.views.is_empty() => {
                let at = rng.below(catalog.views.len() as u64) as usize;
                match rng.one_in(2) {
                    true => drop(catalog.views.remove(at)),
                    false => catalog.views[at] = view("replaced".into()),
                }
            }
            5 => drop(catalog.schemas.insert(format!("s{id}"), None)),
            6 => drop(catalog.schemas.remove(&format!("s{id}"))),
            7 => {
                let owner = Object::Table(TableId(id));
                let access = Arc::make_mut(&mut catalog.access);
                access.set_owner(owner.clone(), RoleId(16_384 + rng.below(3) as u32));
                access.grants.push(Grant {
                    object: owner,
                    grantee: RoleId(0),
                    privileges: Privileges::SELECT,
                    grantable: Privileges::NONE,
                });
            }
            _ => {
                catalog.next_table += 1;
            }
        }
    }

    #[test]
    fn differences_make_the_later_catalog_of_the_earlier_one() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut before = Catalog::initial();
            for step in 0..30 {
                let mut after = before.clone();
                for _ in 0..rng.below(4) {
                    change(&mut after, &mut rng);
                }
                let edit = CatalogEdit::between(&before, &after);
                let json = serde_json::to_vec(&edit).expect("encodes");
                let back: CatalogEdit = serde_json::from_slice(&json).expect("decodes");
                assert_eq!(back, edit);
                let applied = back.apply(&before).expect("belongs to it");
                assert_eq!(applied, after, "seed {seed}, step {step}");
                for (id, kept) in &before.tables {
                    let unchanged = edit.tables().all(|table| table.id != *id);
                    if let Some(now) = applied.tables.get(id).filter(|_| unchanged) {
                        assert!(Arc::ptr_eq(kept, now), "shared");
                    }
                }
                before = applied;
            }
        }
    }

    #[test]
    fn lists_of_versions_come_back_from_whole_and_from_differences() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let mut all = vec![(CommitTs(1), Arc::new(Catalog::initial()))];
            for ts in 2..20 {
                let mut next = Catalog::clone(&all[all.len() - 1].1);
                change(&mut next, &mut rng);
                all.push((CommitTs(ts), Arc::new(next)));
            }
            let mut known = all[..1].to_vec();
            let (mut first, mut end) = (0, 1);
            while end < all.len() {
                end = (end + rng.below(4) as usize).min(all.len());
                first = (first + rng.below(3) as usize).min(end - 1);
                let now = &all[first..end];
                match VersionsEdit::between(&known, now) {
                    Some(edit) => edit.apply(&mut known, "here").expect("belongs to it"),
                    None => assert_eq!(known, now),
                }
                assert_eq!(known, now, "seed {seed}");
                let mut json = serde_json::Serializer::new(Vec::new());
                stored_versions::serialize(now, &mut json).expect("encodes");
                let json = json.into_inner();
                let mut from = serde_json::Deserializer::from_slice(&json);
                let back = stored_versions::deserialize(&mut from).expect("decodes");
                assert_eq!(back, now, "seed {seed}");
            }
        }
    }

    #[test]
    fn differences_of_another_catalog_are_refused() {
        let versions = |ts| vec![(CommitTs(ts), Arc::new(Catalog::initial()))];
        let mut later = versions(5);
        later.push((CommitTs(6), Arc::new(Catalog::initial())));
        let edit = VersionsEdit::between(&versions(5), &later).expect("one more");
        let error = edit.apply(&mut versions(9), "here").expect_err("older");
        assert!(error.message().contains("here"), "{error}");
        assert!(edit.apply(&mut Vec::new(), "here").is_err());
        let mut one = Catalog::initial();
        one.views.push(view("v".into()));
        let mut two = one.clone();
        two.views.push(view("w".into()));
        let edit = CatalogEdit::between(&one, &two);
        assert_eq!(edit.apply(&Catalog::initial()), None);
    }
}
