//! The point workload on redb: a copy-on-write B-tree with one writer at a time.

use crate::Result;
use crate::row::{self, Bytes, Rows};
use crate::workload::{Keys, Run, Store, Worker};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

const POINT: TableDefinition<u64, Bytes> = TableDefinition::new("point");
const CACHE_BYTES: usize = 1 << 30;

/// An open database.
pub struct Redb {
    database: Database,
    durability: Durability,
}

fn open(path: &str) -> Result<Database> {
    Ok(Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create(path)?)
}

impl Store for Redb {
    const SETTINGS: &'static str = "cache 1 GiB, u64 keys and values of fixed width, 1-phase \
                                    commit, Durability::Immediate or None";

    fn version() -> String {
        "redb 4.4.0".to_string()
    }

    fn fill(path: &str, rows: Rows) -> Result<()> {
        let transaction = open(path)?.begin_write()?;
        let mut table = transaction.open_table(POINT)?;
        for (key, row) in rows {
            table.insert(key, row::encode(&row))?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn open(run: &Run) -> Result<Self> {
        let durability = if run.durable {
            Durability::Immediate
        } else {
            Durability::None
        };
        Ok(Self {
            database: open(&run.path)?,
            durability,
        })
    }

    fn worker(&self) -> Result<impl Worker> {
        Ok(self)
    }
}

fn get(table: &impl ReadableTable<u64, Bytes>, key: u64) -> Result<Bytes> {
    Ok(table.get(key)?.ok_or("a row is missing")?.value())
}

impl Worker for &Redb {
    fn transaction(&mut self, keys: &Keys) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(self.durability)?;
        let mut table = transaction.open_table(POINT)?;
        for &key in &keys.reads {
            std::hint::black_box(row::touched(&get(&table, key)?));
        }
        for (key, values) in &keys.updates {
            let new = row::updated(&get(&table, *key)?, values);
            table.insert(key, new)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn read(&mut self, keys: &[u64]) -> Result<()> {
        let table = self.database.begin_read()?.open_table(POINT)?;
        for &key in keys {
            std::hint::black_box(row::touched(&get(&table, key)?));
        }
        Ok(())
    }
}
