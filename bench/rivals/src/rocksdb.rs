//! The point workload on RocksDB with optimistic transactions.
//!
//! As its tuning guide advises for point lookups: a block cache that holds the table, Bloom filters
//! of whole keys, hash indexes in data blocks, filters and indexes of level 0 pinned. Updated rows
//! are read for update, as a transaction that finds them changed must not commit; other reads are
//! not validated, which is our read committed. A transaction that conflicts runs again.

use crate::Result;
use crate::entries::{Entry, EntryReader, EntryStore};
use crate::row::{self, Rows};
use crate::workload::{Keys, Run, Store, Worker};
use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, DataBlockIndexType, ErrorKind,
    OptimisticTransactionDB, OptimisticTransactionOptions, Options, WriteBatchWithTransaction,
    WriteOptions,
};

const CACHE_BYTES: usize = 1 << 30;
const MEMTABLE_BYTES: usize = 128 << 20;
const FILL_ROWS: usize = 10_000;

/// An open database.
pub struct RocksDb {
    database: OptimisticTransactionDB,
    durable: bool,
}

/// Blocks for point lookups.
fn point_blocks(cache_bytes: usize) -> BlockBasedOptions {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_hyper_clock_cache(cache_bytes, 0));
    blocks.set_bloom_filter(10.0, false);
    blocks.set_whole_key_filtering(true);
    blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    blocks.set_data_block_hash_ratio(0.75);
    blocks
}

/// Levels of these blocks, without compression.
fn leveled(blocks: &BlockBasedOptions, memtable_bytes: usize, memtables: i32) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(blocks);
    options.set_write_buffer_size(memtable_bytes);
    options.set_max_write_buffer_number(memtables);
    options.increase_parallelism(2);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_compression_type(DBCompressionType::None);
    options
}

/// Opens the database; with `memory_bytes` its caches and memtables have so much together, and it
/// reads and writes tables past the page cache.
fn open(path: &str, durable: bool, memory_bytes: Option<usize>) -> Result<OptimisticTransactionDB> {
    let (cache_bytes, memtable_bytes, memtables) = match memory_bytes {
        Some(bytes) => (bytes / 4 * 3, bytes / 8, 2),
        None => (CACHE_BYTES, MEMTABLE_BYTES, 4),
    };
    let mut blocks = point_blocks(cache_bytes);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = leveled(&blocks, memtable_bytes, memtables);
    options.set_memtable_whole_key_filtering(true);
    options.set_memtable_prefix_bloom_ratio(0.02);
    options.set_manual_wal_flush(!durable);
    options.set_use_direct_reads(memory_bytes.is_some());
    options.set_use_direct_io_for_flush_and_compaction(memory_bytes.is_some());
    Ok(OptimisticTransactionDB::open(&options, path)?)
}

impl Store for RocksDb {
    const SETTINGS: &'static str = "optimistic transactions, clock cache 1 GiB, Bloom filters 10 \
                                    bits, hash index in blocks, memtables 4 x 128 MiB, no \
                                    compression; WAL synced per group of commits, or left in its \
                                    buffer (manual_wal_flush)";

    fn version() -> String {
        "RocksDB 11.8.1".to_string()
    }

    fn fill(path: &str, rows: Rows) -> Result<()> {
        let database = open(path, false, None)?;
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let mut batch = WriteBatchWithTransaction::<true>::default();
            for (key, row) in rows.by_ref().take(FILL_ROWS) {
                batch.put(key.to_be_bytes(), row::encode(&row));
            }
            database.write(batch)?;
        }
        database.flush()?;
        database.compact_range::<&[u8], &[u8]>(None, None);
        Ok(())
    }

    fn open(run: &Run) -> Result<Self> {
        Ok(Self {
            database: open(
                &run.path,
                run.durable,
                run.memory_bytes.map(|bytes| bytes as usize),
            )?,
            durable: run.durable,
        })
    }

    fn worker(&self) -> Result<impl Worker> {
        let mut write = WriteOptions::default();
        write.set_sync(self.durable);
        let transaction = OptimisticTransactionOptions::default();
        Ok(RocksDbWorker {
            database: &self.database,
            write,
            transaction,
        })
    }
}

struct RocksDbWorker<'s> {
    database: &'s OptimisticTransactionDB,
    write: WriteOptions,
    transaction: OptimisticTransactionOptions,
}

impl Worker for RocksDbWorker<'_> {
    fn transaction(&mut self, keys: &Keys) -> Result<()> {
        loop {
            let transaction = self
                .database
                .transaction_opt(&self.write, &self.transaction);
            for &key in &keys.reads {
                let value = transaction.get_pinned(key.to_be_bytes())?;
                std::hint::black_box(row::touched(&value.ok_or("a row is missing")?));
            }
            for (key, values) in &keys.updates {
                let key = key.to_be_bytes();
                let value = transaction.get_pinned_for_update(key, true)?;
                let new = row::updated(&value.ok_or("a row is missing")?, values);
                transaction.put(key, new)?;
            }
            match transaction.commit() {
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => {}
                done => return Ok(done?),
            }
        }
    }

    fn read(&mut self, keys: &[u64]) -> Result<()> {
        for key in keys {
            let value = self.database.get_pinned(key.to_be_bytes())?;
            std::hint::black_box(row::touched(&value.ok_or("a row is missing")?));
        }
        Ok(())
    }
}

impl EntryStore for RocksDb {
    /// A quarter of the memory is for memtables, the rest for blocks. Filters and indexes of the
    /// tables are beside it, as the filters of our side are.
    fn with(path: &str, entries: &[Entry], memory_bytes: Option<usize>) -> Result<Self> {
        let memory = memory_bytes.unwrap_or(CACHE_BYTES);
        let options = leveled(&point_blocks(memory / 4 * 3), memory / 8, 2);
        let database = OptimisticTransactionDB::open(&options, path)?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        for entries in entries.chunks(FILL_ROWS) {
            let mut batch = WriteBatchWithTransaction::<true>::default();
            for entry in entries {
                batch.put(entry, b"");
            }
            database.write_opt(batch, &write)?;
        }
        database.flush()?;
        database.compact_range::<&[u8], &[u8]>(None, None);
        Ok(Self {
            database,
            durable: false,
        })
    }

    fn insert(&self, entry: &Entry) -> Result<()> {
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        Ok(self.database.put_opt(entry, b"", &write)?)
    }

    fn reader(&self) -> Result<impl EntryReader> {
        Ok(&self.database)
    }
}

impl EntryReader for &OptimisticTransactionDB {
    fn contains(&mut self, entry: &Entry) -> Result<bool> {
        Ok(self.get_pinned(entry)?.is_some())
    }
}
