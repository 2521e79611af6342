//! The table function `strandline_tiers()`: a row for each tier of the database and for each cache
//! between them.

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use std::sync::Arc;
use strandline_engine::{Db, TierCounts};

/// `strandline_tiers()`.
pub(crate) struct TiersFunction {
    pub db: Arc<Db>,
}

impl TiersFunction {
    /// Its name in SQL.
    pub const NAME: &'static str = "strandline_tiers";
}

impl std::fmt::Debug for TiersFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(Self::NAME)
    }
}

impl TableFunctionImpl for TiersFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        if !args.exprs().is_empty() {
            let what = format!("{} takes no arguments", Self::NAME);
            return Err(DataFusionError::Plan(what));
        }
        let rows = self.db.tier_counts();
        let rows = rows.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let (mut fields, mut columns): (Vec<Field>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
        let mut text = |name: &str, is_nullable, of: &dyn Fn(&TierCounts) -> Option<String>| {
            fields.push(Field::new(name, DataType::Utf8View, is_nullable));
            let values: StringViewArray = rows.iter().map(of).collect();
            columns.push(Arc::new(values));
        };
        text("name", false, &|row| Some(row.name.to_owned()));
        text("location", false, &|row| Some(row.location.clone()));
        text("mode", true, &|row| row.mode.map(str::to_owned));
        let mut number = |name: &str, of: &dyn Fn(&TierCounts) -> Option<u64>| {
            fields.push(Field::new(name, DataType::Int64, true));
            let values = rows.iter().map(|row| of(row).map(|count| count as i64));
            columns.push(Arc::new(values.collect::<Int64Array>()));
        };
        number("bytes", &|row| Some(row.bytes));
        number("bytes_max", &|row| row.bytes_max);
        number("fresh_bytes", &|row| row.fresh_bytes);
        for (at, name) in TierCounts::EVENTS.iter().enumerate() {
            number(name, &|row| row.events.map(|events| events[at]));
        }
        number("writes", &|row| row.writes);
        number("written_bytes", &|row| row.written_bytes);
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema.clone(), columns)?;
        Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
    }
}
