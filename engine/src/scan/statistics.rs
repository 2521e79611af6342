//! Statistics and sizes of a table, and the size of the database.

use crate::catalog::TableDef;
use crate::db::Db;
use crate::store::TableStatistics;
use strandline_base::Result;

impl Db {
    /// An estimate of the rows, and bounds of the columns as far as they are in memory; see
    /// [`TableStatistics`].
    pub fn statistics(&self, table: &TableDef) -> TableStatistics {
        match self.any_store(table.storage) {
            Ok(store) => store.statistics(table),
            Err(_) => TableStatistics::empty(table),
        }
    }

    /// The bytes of a table's chunks and runs on the device.
    pub fn table_bytes(&self, table: &TableDef) -> Result<u64> {
        let (_, run_bytes) = self.any_store(table.storage)?.run_size();
        Ok(self.statistics(table).bytes + run_bytes)
    }
    /// The number of files, in both directories of a tiered database.
    pub fn file_count(&self) -> Result<usize> {
        Ok(self.device().list()?.len())
    }

    /// The bytes of all files.
    pub fn device_bytes(&self) -> Result<u64> {
        self.bytes_of(|_| true)
    }

    /// The bytes of the files whose names are meant.
    pub(crate) fn bytes_of(&self, is_meant: impl Fn(&str) -> bool) -> Result<u64> {
        let mut bytes = 0;
        for name in self
            .device()
            .list()?
            .into_iter()
            .filter(|name| is_meant(name))
        {
            // A file may be removed in the meantime.
            if let Ok(file) = self.device().open(&name) {
                bytes += file.len()?;
            }
        }
        Ok(bytes)
    }
}
