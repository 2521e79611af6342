//! The point workload on LMDB: a memory-mapped copy-on-write B-tree with one writer at a time.
//!
//! Through `lmdb-rkv`, whose API is safe throughout; the newer `heed` opens with unsafe code, of
//! which this workspace has none.

use crate::Result;
use crate::entries::{Entry, EntryReader, EntryStore};
use crate::row::{self, Rows};
use crate::workload::{Keys, Run, Store, Worker};
use lmdb::{
    Database, DatabaseFlags, Environment, EnvironmentFlags, RoTransaction, Transaction, WriteFlags,
};
use std::path::Path;

const MAP_BYTES: usize = 8 << 30;

/// An open environment.
pub struct Lmdb {
    environment: Environment,
    point: Database,
}

impl Lmdb {
    fn at(path: &str, durable: bool, keys: DatabaseFlags) -> Result<Self> {
        std::fs::create_dir_all(path)?;
        let mut flags = EnvironmentFlags::NO_READAHEAD | EnvironmentFlags::NO_MEM_INIT;
        if !durable {
            flags |= EnvironmentFlags::WRITE_MAP
                | EnvironmentFlags::NO_SYNC
                | EnvironmentFlags::MAP_ASYNC;
        }
        let environment = Environment::new()
            .set_flags(flags)
            .set_map_size(MAP_BYTES)
            .open(Path::new(path))?;
        let point = environment.create_db(None, keys)?;
        Ok(Self { environment, point })
    }
}

fn read(store: &Lmdb, transaction: &impl Transaction, key: u64) -> Result<()> {
    let value = transaction.get(store.point, &key.to_ne_bytes())?;
    std::hint::black_box(row::touched(value));
    Ok(())
}

impl Store for Lmdb {
    const SETTINGS: &'static str = "MDB_INTEGERKEY, map of 8 GiB, NORDAHEAD, NOMEMINIT; not \
                                    durable: WRITEMAP, NOSYNC and MAPASYNC (durable, WRITEMAP \
                                    is the slower); readers in slots of their threads";

    fn version() -> String {
        "LMDB of lmdb-rkv 0.14.0".to_string()
    }

    fn fill(path: &str, rows: Rows) -> Result<()> {
        let store = Self::at(path, false, DatabaseFlags::INTEGER_KEY)?;
        let mut transaction = store.environment.begin_rw_txn()?;
        for (key, row) in rows {
            let value = row::encode(&row);
            transaction.put(store.point, &key.to_ne_bytes(), &value, WriteFlags::APPEND)?;
        }
        transaction.commit()?;
        Ok(store.environment.sync(true)?)
    }

    fn open(run: &Run) -> Result<Self> {
        Self::at(&run.path, run.durable, DatabaseFlags::INTEGER_KEY)
    }

    fn worker(&self) -> Result<impl Worker> {
        Ok(self)
    }
}

impl Worker for &Lmdb {
    fn transaction(&mut self, keys: &Keys) -> Result<()> {
        let mut transaction = self.environment.begin_rw_txn()?;
        for &key in &keys.reads {
            read(self, &transaction, key)?;
        }
        for (key, values) in &keys.updates {
            let key = key.to_ne_bytes();
            let new = row::updated(transaction.get(self.point, &key)?, values);
            transaction.put(self.point, &key, &new, WriteFlags::empty())?;
        }
        Ok(transaction.commit()?)
    }

    fn read(&mut self, keys: &[u64]) -> Result<()> {
        let transaction = self.environment.begin_ro_txn()?;
        for &key in keys {
            read(self, &transaction, key)?;
        }
        Ok(())
    }
}

impl EntryStore for Lmdb {
    fn with(path: &str, entries: &[Entry], _: Option<usize>) -> Result<Self> {
        let store = Self::at(path, false, DatabaseFlags::empty())?;
        let mut transaction = store.environment.begin_rw_txn()?;
        for entry in entries {
            transaction.put(store.point, entry, b"", WriteFlags::APPEND)?;
        }
        transaction.commit()?;
        Ok(store)
    }

    fn insert(&self, entry: &Entry) -> Result<()> {
        let mut transaction = self.environment.begin_rw_txn()?;
        transaction.put(self.point, entry, b"", WriteFlags::empty())?;
        Ok(transaction.commit()?)
    }

    fn reader(&self) -> Result<impl EntryReader> {
        let snapshot = self.environment.begin_ro_txn()?;
        Ok(Snapshot {
            store: self,
            snapshot,
        })
    }
}

/// One snapshot for all lookups of a thread: LMDB's quickest way.
struct Snapshot<'s> {
    store: &'s Lmdb,
    snapshot: RoTransaction<'s>,
}

impl EntryReader for Snapshot<'_> {
    fn contains(&mut self, entry: &Entry) -> Result<bool> {
        match self.snapshot.get(self.store.point, entry) {
            Ok(_) => Ok(true),
            Err(lmdb::Error::NotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
