//! Tables that one session registered: Arrow batches that it holds, such as a data frame. They are
//! invisible to other sessions, belong to no transaction, cannot be changed, and end with the
//! session.
//!
//! They live in the configuration of the session's template, so that every statement planned from
//! it finds them. A registered table hides a stored one of the same name in the default schema.
//! Views and moments of the past know stored tables only.

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::execution::session_state::SessionState;
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::Result;
use strandline_semantics::cast::strict_cast;
use strandline_semantics::error::convert;
use strandline_semantics::types::{arrow_type, sql_type_of_arrow};

/// Longer batches are cut to pieces of so many rows, which operators work on one at a time.
const BATCH_ROWS: usize = 8_192;

/// A session's registered tables by name.
#[derive(Clone, Debug, Default)]
pub struct RegisteredTables(HashMap<String, Arc<MemTable>>);

impl RegisteredTables {
    /// Those of the session whose state `state` is, or is cloned from.
    pub fn of(state: &SessionState) -> Arc<Self> {
        state.config().get_extension::<Self>().unwrap_or_default()
    }

    /// `state` with these tables instead.
    pub fn put_into(self, state: &SessionState) -> SessionState {
        let mut state = state.clone();
        state.config_mut().set_extension(Arc::new(self));
        state
    }

    /// The table called `name`.
    pub fn get(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        let table = self.0.get(name)?;
        Some(Arc::clone(table) as Arc<dyn TableProvider>)
    }

    /// Adds a table, or puts it in the place of the one of that name. Values of types that tables
    /// do not have are cast to the type that holds them.
    pub fn add(&mut self, name: &str, schema: &Schema, batches: &[RecordBatch]) -> Result<()> {
        let schema = stored_schema(schema);
        let mut pieces = Vec::new();
        for batch in batches {
            let batch = cast(batch, &schema)?;
            let starts = (0..batch.num_rows()).step_by(BATCH_ROWS);
            pieces.extend(starts.map(|at| batch.slice(at, BATCH_ROWS.min(batch.num_rows() - at))));
        }
        let table = MemTable::try_new(schema, vec![pieces]).map_err(convert)?;
        self.0.insert(name.to_string(), Arc::new(table));
        Ok(())
    }

    /// Takes a table away; whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }
}

fn stored_schema(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let t = stored_type(field.data_type());
        Field::new(field.name(), t, field.is_nullable())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The type that a column of `t` would have in a table; types without one stay as they are.
fn stored_type(t: &DataType) -> DataType {
    match t {
        DataType::UInt64 => DataType::Decimal128(20, 0),
        other => sql_type_of_arrow(other).map_or_else(|| other.clone(), arrow_type),
    }
}

fn cast(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (array, field) in batch.columns().iter().zip(schema.fields()) {
        columns.push(match array.data_type() == field.data_type() {
            true => array.clone(),
            false => strict_cast(array, field.data_type())
                .map_err(|error| error.context(format!("column \"{}\"", field.name())))?,
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(|error| strandline_semantics::error::from_arrow(&error))
}
