//! The point workload on LMDB: a memory-mapped copy-on-write B-tree with one writer at a time.

use crate::Result;
use crate::row::{self, Bytes, Rows};
use crate::workload::{Keys, Run, Store, Worker};
use heed::byteorder::NativeEndian;
use heed::types::{Bytes as Slice, U64};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, IntegerComparator, PutFlags, RoTxn, WithTls};

const MAP_BYTES: usize = 8 << 30;

type Point = Database<U64<NativeEndian>, Slice, IntegerComparator>;

/// An open environment.
pub struct Lmdb {
    environment: Env<WithTls>,
    point: Point,
}

impl Lmdb {
    #[expect(
        unsafe_code,
        reason = "a memory map of a file that no other process changes"
    )]
    fn at(path: &str, durable: bool) -> Result<Self> {
        std::fs::create_dir_all(path)?;
        let mut flags = EnvFlags::WRITE_MAP | EnvFlags::NO_READ_AHEAD | EnvFlags::NO_MEM_INIT;
        if !durable {
            flags |= EnvFlags::NO_SYNC | EnvFlags::MAP_ASYNC;
        }
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_readers(64);
        let environment = unsafe { options.flags(flags).open(path)? };
        let mut transaction = environment.write_txn()?;
        let point = environment
            .database_options()
            .types::<U64<NativeEndian>, Slice>()
            .key_comparator::<IntegerComparator>()
            .name("point")
            .create(&mut transaction)?;
        transaction.commit()?;
        Ok(Self { environment, point })
    }

    fn get<'t>(&self, transaction: &'t RoTxn<'_>, key: u64) -> Result<&'t [u8]> {
        Ok(self
            .point
            .get(transaction, &key)?
            .ok_or("a row is missing")?)
    }
}

impl Store for Lmdb {
    const SETTINGS: &'static str = "MDB_INTEGERKEY, map of 8 GiB, WRITEMAP, NORDAHEAD, NOMEMINIT; \
                                    not durable: NOSYNC and MAPASYNC; readers in thread-local slots";

    fn version() -> String {
        let version = heed::lmdb_version();
        format!("LMDB {}.{}.{}", version.major, version.minor, version.patch)
    }

    fn fill(path: &str, rows: Rows) -> Result<()> {
        let store = Self::at(path, false)?;
        let mut transaction = store.environment.write_txn()?;
        for (key, row) in rows {
            let value = row::encode(&row);
            store
                .point
                .put_with_flags(&mut transaction, PutFlags::APPEND, &key, &value)?;
        }
        transaction.commit()?;
        Ok(store.environment.force_sync()?)
    }

    fn open(run: &Run) -> Result<Self> {
        Self::at(&run.path, run.durable)
    }

    fn worker(&self) -> Result<impl Worker> {
        Ok(self)
    }
}

impl Worker for &Lmdb {
    fn transaction(&mut self, keys: &Keys) -> Result<()> {
        let mut transaction = self.environment.write_txn()?;
        for &key in &keys.reads {
            std::hint::black_box(row::touched(self.get(&transaction, key)?));
        }
        for (key, values) in &keys.updates {
            let new: Bytes = row::updated(self.get(&transaction, *key)?, values);
            self.point.put(&mut transaction, key, &new)?;
        }
        Ok(transaction.commit()?)
    }

    fn read(&mut self, keys: &[u64]) -> Result<()> {
        let transaction = self.environment.read_txn()?;
        for &key in keys {
            std::hint::black_box(row::touched(self.get(&transaction, key)?));
        }
        Ok(())
    }
}
