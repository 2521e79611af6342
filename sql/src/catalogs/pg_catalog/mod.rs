//! Schema `pg_catalog`: the system tables and functions that PostgreSQL's clients ask, over our
//! catalog.
//!
//! * [`relation`] knows all tables of PostgreSQL 15 with their columns; [`table`] fills the tables
//!   whose objects exist here, when a statement names them, from the catalog that the statement
//!   sees. The other tables are empty.
//! * [`oid`] numbers objects, [`types`] knows PostgreSQL's types.
//! * [`functions`] has the functions about the system. They are registered only for a statement
//!   that calls them, since they hold its context ([`system`]).
//! * [`display`] shows columns of the types that PostgreSQL writes otherwise than it stores them
//!   (`regclass`, `int2vector`).

mod catalog_value;
mod classes;
mod constraints;
pub mod display;
pub mod functions;
mod indexes;
mod oid;
mod relation;
mod sequences;
mod server;
mod system;
mod table_index;
pub(super) mod text;
mod types;
mod views;

pub use sequences::Sequence;
pub use system::{System, ViewColumns};
pub use types::type_name;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{Float64Type, Int64Type, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use relation::{RELATIONS, Rows};
use std::sync::Arc;
use strandline_base::Result;
use strandline_semantics::error::{convert, from_arrow};

/// The schema's name.
pub const PG_CATALOG: &str = "pg_catalog";

/// Whether there is a table `name`.
pub fn has(name: &str) -> bool {
    RELATIONS.contains_key(name)
}

/// The sequence of an identity column as a table: one row with its state.
pub fn sequence(system: &System, sequence: &Sequence<'_>) -> Result<Arc<dyn TableProvider>> {
    let last = sequence.last_value(system);
    let fields = [
        ("last_value", "int8"),
        ("log_cnt", "int8"),
        ("is_called", "bool"),
    ];
    let fields = fields.map(|(name, pg_type)| relation::field(name, pg_type));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![last.unwrap_or(sequence.start())])),
        Arc::new(Int64Array::from(vec![0])),
        Arc::new(BooleanArray::from(vec![last.is_some()])),
    ];
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let batch = RecordBatch::try_new(schema, columns).map_err(|e| from_arrow(&e))?;
    in_memory(batch)
}

fn in_memory(batch: RecordBatch) -> Result<Arc<dyn TableProvider>> {
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).map_err(convert)?;
    Ok(Arc::new(table))
}

/// Whether the table `name` shows the columns of views.
pub fn shows_views(name: &str) -> bool {
    matches!(name, "pg_attribute" | "pg_class")
}

/// The table `name` as `system` sees it; `views` are the columns of the views if it shows them.
pub fn table(
    name: &str,
    system: &System,
    views: &ViewColumns,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let Some(relation) = RELATIONS.get(name) else {
        return Ok(None);
    };
    let mut rows = Rows::of(relation);
    fill(name, system, views, &mut rows);
    in_memory(rows.into_batch().map_err(convert)?).map(Some)
}

fn fill(name: &str, system: &System, views: &ViewColumns, rows: &mut Rows) {
    match name {
        "pg_am" => server::pg_am(rows),
        "pg_attrdef" => constraints::pg_attrdef(system, rows),
        "pg_attribute" => classes::pg_attribute(system, views, rows),
        "pg_auth_members" => server::pg_auth_members(system, rows),
        "pg_authid" | "pg_roles" => server::pg_roles(system, rows),
        "pg_class" => classes::pg_class(system, views, rows),
        "pg_collation" => server::pg_collation(rows),
        "pg_constraint" => constraints::pg_constraint(system, rows),
        "pg_database" => server::pg_database(rows),
        "pg_depend" => constraints::pg_depend(system, rows),
        "pg_description" => constraints::pg_description(system, rows),
        "pg_get_keywords" => server::pg_get_keywords(rows),
        "pg_group" => server::pg_group(system, rows),
        "pg_index" => indexes::pg_index(system, rows),
        "pg_indexes" => indexes::pg_indexes(system, rows),
        "pg_language" => server::pg_language(rows),
        "pg_namespace" => classes::pg_namespace(system, rows),
        "pg_opclass" => indexes::pg_opclass(rows),
        "pg_opfamily" => indexes::pg_opfamily(rows),
        "pg_rewrite" => views::pg_rewrite(system, rows),
        "pg_sequence" => sequences::pg_sequence(system, rows),
        "pg_sequences" => sequences::pg_sequences(system, rows),
        "pg_settings" => server::pg_settings(system, rows),
        "pg_stat_activity" => server::pg_stat_activity(system, rows),
        "pg_stat_all_indexes" | "pg_stat_user_indexes" => {
            indexes::statistics(system, rows, ["idx_scan", "idx_tup_read"]);
        }
        "pg_statio_all_indexes" | "pg_statio_user_indexes" => {
            indexes::statistics(system, rows, ["idx_blks_read", "idx_blks_hit"]);
        }
        "pg_stat_all_tables" | "pg_stat_user_tables" => server::pg_stat_tables(system, rows),
        "pg_stat_progress_create_index" => indexes::progress(system, rows),
        "pg_tables" => classes::pg_tables(system, rows),
        "pg_tablespace" => server::pg_tablespace(rows),
        "pg_type" => types::pg_type(rows),
        "pg_shadow" | "pg_user" => server::pg_user(system, rows),
        "pg_views" => classes::pg_views(system, rows),
        _ => {}
    }
}
