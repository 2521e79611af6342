//! The tables and views of schema `pg_catalog`, and their columns. The list is PostgreSQL 15's,
//! with its names, types and oids; tables about features that do not exist here are empty.

use super::catalog_value::{self, CatalogValue};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit, Schema, SchemaRef, TimeUnit};
use datafusion::common::Result;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

pub use strandline_semantics::types::PG_TYPE_KEY;

/// A table or view of `pg_catalog`.
#[derive(Debug)]
pub struct Relation {
    /// PostgreSQL's
    pub oid: i32,
    /// `r` or `v`; `f`: a function without arguments that gives rows
    pub kind: &'static str,
    /// without schema
    pub name: &'static str,
    /// names and types
    pub columns: Vec<(&'static str, &'static str)>,
    schema: SchemaRef,
}

/// The tables and views, by oid.
pub fn listed() -> Vec<&'static Relation> {
    let mut listed: Vec<_> = RELATIONS.values().filter(|r| r.kind != "f").collect();
    listed.sort_by_key(|relation| relation.oid);
    listed
}

/// All of them, by name.
pub static RELATIONS: LazyLock<HashMap<&'static str, Relation>> = LazyLock::new(|| {
    let lines = include_str!("relations.txt").lines();
    let relations = lines.filter_map(Relation::parse);
    relations
        .map(|relation| (relation.name, relation))
        .collect()
});

impl Relation {
    /// A line of the list: `oid kind name column:type …`.
    fn parse(line: &'static str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let oid = words.next()?.parse().ok()?;
        let (kind, name) = (words.next()?, words.next()?);
        let columns: Vec<_> = words.filter_map(|word| word.split_once(':')).collect();
        let fields = columns.iter().map(|(name, pg_type)| field(name, pg_type));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Some(Self {
            oid,
            kind,
            name,
            columns,
            schema,
        })
    }
}

/// A column of one of PostgreSQL's types.
pub fn field(name: &str, pg_type: &str) -> Field {
    let field = Field::new(name, arrow_type(pg_type), true);
    match pg_type {
        "bool" | "int2" | "int4" | "int8" | "float4" | "float8" | "text" | "timestamptz"
        | "text[]" | "int2[]" | "int4[]" => field,
        other => field.with_metadata([(PG_TYPE_KEY.into(), other.into())].into()),
    }
}

fn arrow_type(pg_type: &str) -> DataType {
    if let Some(item) = pg_type.strip_suffix("[]") {
        return DataType::List(Arc::new(Field::new_list_field(arrow_type(item), true)));
    }
    match pg_type {
        "bool" => DataType::Boolean,
        "int2" => DataType::Int16,
        "int4" | "oid" | "xid" | "regclass" | "regtype" | "regrole" | "regnamespace" => {
            DataType::Int32
        }
        "int8" | "numeric" => DataType::Int64,
        "float4" => DataType::Float32,
        "float8" => DataType::Float64,
        "timestamptz" => DataType::Timestamp(
            TimeUnit::Microsecond,
            Some(strandline_semantics::types::UTC.into()),
        ),
        "interval" => DataType::Interval(IntervalUnit::MonthDayNano),
        "bytea" => DataType::BinaryView,
        "int2vector" => arrow_type("int2[]"),
        "oidvector" => arrow_type("oid[]"),
        _ => DataType::Utf8View,
    }
}

/// The rows of a relation as they are listed.
pub struct Rows {
    relation: &'static Relation,
    positions: HashMap<&'static str, usize>,
    columns: Vec<Vec<CatalogValue>>,
    count: usize,
}

impl Rows {
    /// No rows yet.
    pub fn of(relation: &'static Relation) -> Self {
        let positions = relation.columns.iter().enumerate();
        Self {
            positions: positions.map(|(i, (name, _))| (*name, i)).collect(),
            columns: vec![Vec::new(); relation.columns.len()],
            relation,
            count: 0,
        }
    }

    /// Adds a row; columns that are not named are NULL.
    pub fn add<const N: usize>(&mut self, values: [(&str, CatalogValue); N]) {
        self.count += 1;
        self.set(values);
        for column in &mut self.columns {
            column.resize(self.count, CatalogValue::Null);
        }
    }

    /// Sets more columns of the row that was added last.
    pub fn set<const N: usize>(&mut self, values: [(&str, CatalogValue); N]) {
        for (name, value) in values {
            debug_assert!(self.positions.contains_key(name), "{name}");
            if let Some(column) = self.positions.get(name).map(|i| &mut self.columns[*i]) {
                column.truncate(self.count - 1);
                column.push(value);
            }
        }
    }

    /// All rows as one batch.
    pub fn into_batch(self) -> Result<RecordBatch> {
        let fields = self.relation.schema.fields().iter();
        let arrays = fields
            .zip(&self.columns)
            .map(|(field, cells)| catalog_value::array(cells, field.data_type()))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.count));
        let schema = self.relation.schema.clone();
        Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
    }
}
