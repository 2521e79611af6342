//! The end of a checkpoint's fourth step: storages that no moment within the retention needs are
//! dropped.

use super::moment::Moment;
use crate::db::Db;
use crate::store::Store;
use std::sync::Arc;
use strandline_base::CommitTs;

impl Db {
    /// Forgets storages that may not be asked for any more and no transaction is creating.
    pub(super) fn drop_storages(&self, moment: &Moment) {
        let stores: Vec<Arc<Store>> = self.stores.read().values().cloned().collect();
        // In this order: a creating transaction publishes its catalog before it lets go.
        let free: Vec<_> = stores
            .into_iter()
            .filter(|store| !store.is_held())
            .collect();
        let storages = self.catalogs.storages(CommitTs::MAX);
        let live = self.live_storages(&storages, moment);
        for store in free.into_iter().filter(|store| !live.contains(&store.id())) {
            let mut stores = self.stores.write();
            if stores
                .get(&store.id())
                .is_some_and(|s| Arc::ptr_eq(s, &store))
            {
                stores.remove(&store.id());
                store.remove_files();
            }
        }
    }
}
