//! The point workload on fjall: an LSM tree with one writer at a time, which needs no validation.

use crate::Result;
use crate::row::{self, Bytes, Rows};
use crate::workload::{Keys, Run, Store, Worker};
use fjall::{
    KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
};

const CACHE_BYTES: u64 = 1 << 30;
const MEMTABLE_BYTES: u64 = 128 << 20;
const FILL_ROWS: usize = 10_000;

/// An open database.
pub struct Fjall {
    database: SingleWriterTxDatabase,
    point: SingleWriterTxKeyspace,
    persist: Option<PersistMode>,
}

impl Fjall {
    fn at(path: &str, persist: Option<PersistMode>) -> Result<Self> {
        let database = SingleWriterTxDatabase::builder(path)
            .cache_size(CACHE_BYTES)
            .open()?;
        let options = || {
            KeyspaceCreateOptions::default()
                .expect_point_read_hits(true)
                .max_memtable_size(MEMTABLE_BYTES)
        };
        let point = database.keyspace("point", options)?;
        Ok(Self {
            database,
            point,
            persist,
        })
    }

    fn get(&self, reader: &impl Readable, key: u64) -> Result<Bytes> {
        let value = reader
            .get(&self.point, key.to_be_bytes())?
            .ok_or("a row is missing")?;
        Ok((&*value).try_into()?)
    }
}

impl Store for Fjall {
    const SETTINGS: &'static str = "single-writer transactions, cache 1 GiB, memtable 128 MiB, \
                                    expect_point_read_hits, commits with PersistMode::SyncData or \
                                    left in the journal's buffer";

    fn version() -> String {
        "fjall 3.1.13".to_string()
    }

    fn fill(path: &str, rows: Rows) -> Result<()> {
        let store = Self::at(path, None)?;
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let mut transaction = store.database.write_tx().durability(None);
            for (key, row) in rows.by_ref().take(FILL_ROWS) {
                transaction.insert(&store.point, key.to_be_bytes(), row::encode(&row));
            }
            transaction.commit()?;
        }
        store.point.inner().rotate_memtable_and_wait()?;
        Ok(store.database.persist(PersistMode::SyncAll)?)
    }

    fn open(run: &Run) -> Result<Self> {
        Self::at(&run.path, run.durable.then_some(PersistMode::SyncData))
    }

    fn worker(&self) -> Result<impl Worker> {
        Ok(self)
    }
}

impl Worker for &Fjall {
    fn transaction(&mut self, keys: &Keys) -> Result<()> {
        let mut transaction = self.database.write_tx().durability(self.persist);
        for &key in &keys.reads {
            std::hint::black_box(row::touched(&self.get(&transaction, key)?));
        }
        for (key, values) in &keys.updates {
            let new = row::updated(&self.get(&transaction, *key)?, values);
            transaction.insert(&self.point, key.to_be_bytes(), new);
        }
        Ok(transaction.commit()?)
    }

    fn read(&mut self, keys: &[u64]) -> Result<()> {
        let snapshot = self.database.read_tx();
        for &key in keys {
            std::hint::black_box(row::touched(&self.get(&snapshot, key)?));
        }
        Ok(())
    }
}
