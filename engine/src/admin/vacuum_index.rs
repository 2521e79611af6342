//! The work of VACUUM INDEX.

use crate::catalog::TableDef;
use crate::catalog::index::IndexId;
use crate::db::Db;
use crate::store::find_readable_index;
use strandline_base::Result;

impl Db {
    /// Moves the entries of all LIDBlocks of an index to its tree, and removes the entries that no
    /// snapshot needs. It runs beside transactions, and does nothing to an index that has been
    /// dropped.
    ///
    /// # Errors
    /// Those of the index: 53100 on a full disk, XX001 for damage; what was moved stays moved.
    pub fn vacuum_index(&self, table: &TableDef, id: IndexId) -> Result<()> {
        let store = self.any_store(table.storage)?;
        match find_readable_index(&store, table, id) {
            Some(index) => index.index.retain(&mut |_, _| true),
            None => Ok(()),
        }
    }
}
