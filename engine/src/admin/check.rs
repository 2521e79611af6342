//! `check`: verifies every checksum, row map and index entry, and every constraint the engine
//! knows (NOT NULL, keys, unique indexes).

use super::check_index::check_indexes;
use crate::catalog::TableDef;
use crate::db::Db;
use crate::display::value_text;
use crate::store::TableStore;
use crate::store::{Store, StoredIndex, newest};
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::{Result, RowId, Value};
use strandline_index::KeyBytes;
use strandline_storage::kept_log::read_kept_log;
use strandline_txn::StartWord;

impl Db {
    /// Verifies everything and returns the damage, one line each, with file, table and place. It
    /// runs beside transactions and ignores their uncommitted changes. Damage that was repaired at
    /// open is reported as well.
    pub fn check(&self) -> Result<Vec<String>> {
        let mut damage = self.manifest.mended().to_vec();
        self.check_kept_logs(&mut damage);
        let stores: Vec<Arc<Store>> = self.stores.read().values().cloned().collect();
        let catalog = self.catalog();
        // Include dropped tables, since reads of the past use their files.
        for store in &stores {
            let before = damage.len();
            if let Err(failure) = store.check_restored() {
                damage.push(self.unrestored(store.id(), failure).message().to_owned());
            }
            store.check_files(&mut damage);
            for index in store.indexes() {
                let own = damage.len();
                index.check(&mut damage)?;
                if index.file().is_some() {
                    let name = self.index_name(store, &index);
                    let table = self.table_name(store.id());
                    for line in damage.iter_mut().skip(own) {
                        *line = format!("table {table}, index \"{name}\": {line}");
                    }
                }
            }
            let tables = catalog.tables.values();
            for table in tables.filter(|t| t.storage == store.id()) {
                if store.check_restored().is_ok() {
                    store.check_row_maps(table, &mut damage);
                }
                if damage.len() == before {
                    check_rows(table, store, &mut damage)?;
                    check_indexes(table, store, &mut damage)?;
                }
            }
        }
        Ok(damage)
    }

    /// Reads the parts of the log that are kept for closed-off tables.
    fn check_kept_logs(&self, damage: &mut Vec<String>) {
        // No checkpoint removes one meanwhile.
        let state = self.checkpoint.lock();
        for file in state.kept_log_files() {
            let which = (self.manifest.database_id(), file.id, file.bytes);
            let read = read_kept_log(&**self.device(), which, &mut |_| Ok(()));
            damage.extend(read.err().map(|error| error.to_string()));
        }
    }
}

/// Checks NOT NULL, uniqueness, and that every index finds every visible row.
fn check_rows(table: &TableDef, store: &Store, damage: &mut Vec<String>) -> Result<()> {
    let everything = newest(StartWord(0));
    let columns: Vec<_> = table.columns.iter().map(|c| c.id).collect();
    let mut seen: Vec<HashMap<KeyBytes, Vec<RowId>>> = vec![HashMap::new(); table.keys.len()];
    for range in store.ranges() {
        for slot in 0..range.slots() {
            let row = RowId::new(range.no(), slot as u16);
            let mut values = vec![Value::Null; columns.len()];
            if !store.rows().read(row, &everything, &columns, &mut values)? {
                continue;
            }
            for (column, value) in table.columns.iter().zip(&values) {
                if column.not_null && value.is_null() {
                    damage.push(format!(
                        "table \"{}\", {row:?}: NULL in column \"{}\" violates NOT NULL",
                        table.name, column.name
                    ));
                }
            }
            for (at, key) in table.keys.iter().enumerate() {
                let parts: Vec<Value> = key
                    .columns
                    .iter()
                    .filter_map(|id| table.position(*id))
                    .map(|position| values[position].clone())
                    .collect();
                check_key(table, store, at, &parts, row, &mut seen[at], damage)?;
            }
        }
    }
    Ok(())
}

fn check_key(
    table: &TableDef,
    store: &Store,
    at: usize,
    parts: &[Value],
    row: RowId,
    seen: &mut HashMap<KeyBytes, Vec<RowId>>,
    damage: &mut Vec<String>,
) -> Result<()> {
    let key = &table.keys[at];
    let Some(index) = store.key(&key.columns) else {
        damage.push(format!(
            "table \"{}\", constraint \"{}\" has no index",
            table.name, key.name
        ));
        return Ok(());
    };
    let Some(bytes) = index.key_bytes(parts) else {
        return Ok(());
    };
    let shown = || {
        let texts: Vec<String> = key
            .columns
            .iter()
            .zip(parts)
            .filter_map(|(id, v)| Some(value_text(table.column_by_id(*id)?.sql_type, v)))
            .collect();
        texts.join(", ")
    };
    let mut rows = Vec::new();
    index.index.lookup(&bytes, &mut rows)?;
    if !rows.contains(&row) {
        damage.push(format!(
            "table \"{}\", constraint \"{}\": the index does not lead to {row:?} with key ({})",
            table.name,
            key.name,
            shown()
        ));
    }
    let same_bytes = seen.entry(bytes).or_default();
    for other in same_bytes.iter() {
        let mut theirs = vec![Value::Null; key.columns.len()];
        if store
            .rows()
            .read(*other, &newest(StartWord(0)), &key.columns, &mut theirs)?
            && StoredIndex::are_duplicates(&theirs, parts, key.nulls_not_distinct)
        {
            damage.push(format!(
                "table \"{}\", constraint \"{}\": {other:?} and {row:?} both have key ({})",
                table.name,
                key.name,
                shown()
            ));
        }
    }
    same_bytes.push(row);
    Ok(())
}
