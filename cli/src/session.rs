//! Opens the embedded database for the shell and the commands.

use crate::args::{CapacityArgs, DatabaseArgs, OpenArgs};
use crate::render::Batches;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use std::path::Path;
use std::sync::Arc;
use strandline::{DatabaseBuilder, QueryResult};
use strandline_allocator::keep_freed_memory_for;
use strandline_device::MemoryDevice;

pub use strandline::{
    CancelHandle, Connection, Database, Error, ErrorKind, Outcome, Progress, ProgressHook,
    QueryStream, Result, Row, SqlState, Summary, TableHandle, Transaction, TransactionStatus,
    Value, catalog,
};

/// Opens or creates the database at `path`; without a path one in memory.
pub fn open(path: Option<&Path>, capacity: &CapacityArgs, arguments: OpenArgs) -> Result<Database> {
    let builder = match path {
        Some(path) => at(path, capacity),
        None => Database::on_device(Arc::new(MemoryDevice::new())),
    };
    built(configure(builder, arguments))
}

/// Opens the database at `arguments.path` to look at it; an error if there is none. Records no
/// capacity tier.
pub fn open_existing(arguments: &DatabaseArgs) -> Result<Database> {
    let builder = at(&arguments.path, &arguments.capacity)
        .must_exist()
        .only_looks()
        .capacity_for_once();
    built(builder)
}

/// Opens a database, and lets the allocator keep as much freed memory as suits it.
pub fn built(builder: DatabaseBuilder) -> Result<Database> {
    let database = builder.build()?;
    keep_freed_memory_for(database.engine().settings().memory_bytes);
    Ok(database)
}

fn at(path: &Path, capacity: &CapacityArgs) -> DatabaseBuilder {
    let mut builder = Database::builder(path);
    if let Some(dir) = &capacity.capacity_dir {
        builder = builder.capacity_dir(dir);
    }
    if let Some(url) = &capacity.capacity_url {
        builder = builder.capacity_url(url);
    }
    builder
}

/// Applies the options of the command line to `builder`.
pub fn configure(mut builder: DatabaseBuilder, arguments: OpenArgs) -> DatabaseBuilder {
    if let Some(bytes) = arguments.memory {
        builder = builder.memory_bytes(bytes);
    }
    builder.synchronous_commit(arguments.is_synchronous())
}

impl Batches for QueryStream<'_> {
    fn schema(&self) -> SchemaRef {
        QueryStream::schema(self).clone()
    }
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.next().transpose()
    }
}

/// A result that is complete in memory.
pub struct Stored {
    schema: SchemaRef,
    batches: std::vec::IntoIter<RecordBatch>,
}

impl Stored {
    pub fn new(result: QueryResult) -> Self {
        Self {
            schema: result.schema().clone(),
            batches: result.into_batches().into_iter(),
        }
    }
}

impl Batches for Stored {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        Ok(self.batches.next())
    }
}
