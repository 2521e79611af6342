//! Registered tables: Arrow batches of one session, such as a data frame. They are read-only,
//! invisible to other sessions, belong to no transaction, and end with the session.
//!
//! They are an extension of the session's template, so that every statement planned from it finds
//! them. A registered table hides a stored table of the same name in the default schema. Views and
//! moments of the past see stored tables only.

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

/// The most rows of a batch. Longer batches are split, because operators work on one at a time.
const BATCH_ROWS: usize = 8_192;

/// A session's registered tables by name.
#[derive(Clone, Debug, Default)]
pub struct RegisteredTables(HashMap<String, Arc<MemTable>>);

impl RegisteredTables {
    /// The registered tables of the session of `state`.
    pub fn of(state: &SessionState) -> Arc<Self> {
        state.config().get_extension::<Self>().unwrap_or_default()
    }

    /// `state` with these registered tables.
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

    /// Adds or replaces a table. Values of types that stored tables do not have are cast to a type
    /// that can hold them.
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

    /// Removes a table; false if there is none.
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

/// The type that a stored column for values of `t` has; other types stay unchanged.
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
