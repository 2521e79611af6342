//! The sequences of identity columns: `pg_sequence`, `pg_sequences`, and each as a relation.

use super::catalog_value::CatalogValue;
use super::oid::{self, Object};
use super::relation::Rows;
use super::system::System;
use super::types;
use std::sync::Arc;
use strandline_base::SqlType;
use strandline_engine::catalog::{Catalog, ColumnDef, IdentityDef, TableDef};

/// An identity column, for which PostgreSQL has a sequence.
pub struct Sequence<'a> {
    /// the column's
    pub table: &'a Arc<TableDef>,
    /// the column's in its table, from 0
    pub position: usize,
    /// its definition
    pub column: &'a ColumnDef,
    identity: &'a IdentityDef,
}

impl<'a> Sequence<'a> {
    /// The sequence called `schema.name`.
    pub fn named(catalog: &'a Catalog, schema: &str, name: &str) -> Option<Self> {
        let mut all = of(catalog).filter(|sequence| sequence.table.schema == schema);
        all.find(|sequence| sequence.name() == name)
    }

    /// Its name, without the schema.
    pub fn name(&self) -> String {
        oid::sequence_name(self.table, self.column)
    }

    /// Its number.
    pub fn oid(&self, system: &System) -> i32 {
        system
            .oids()
            .get(&Object::Sequence(self.table.id, self.column.id))
    }

    /// The last value that it has given; None: it has given none.
    pub fn last_value(&self, system: &System) -> Option<i64> {
        let db = system.statement.transaction().db();
        db.last_identity(self.table, self.column.id)
    }

    /// The value that it begins with.
    pub fn start(&self) -> i64 {
        self.identity.start
    }

    /// The least and the greatest value that it gives.
    pub fn bounds(&self) -> (i64, i64) {
        let (least, greatest) = match self.column.sql_type {
            SqlType::SmallInt => (i16::MIN.into(), i16::MAX.into()),
            SqlType::Integer => (i32::MIN.into(), i32::MAX.into()),
            _ => (i64::MIN, i64::MAX),
        };
        match self.identity.increment > 0 {
            true => (1, greatest),
            false => (least, -1),
        }
    }
}

/// The sequences of a catalog.
pub fn of(catalog: &Catalog) -> impl Iterator<Item = Sequence<'_>> {
    catalog.tables.values().flat_map(|table| {
        let columns = table.columns.iter().enumerate();
        columns.filter_map(move |(position, column)| {
            Some(Sequence {
                table,
                position,
                column,
                identity: column.identity.as_ref()?,
            })
        })
    })
}

pub fn pg_sequence(system: &System, rows: &mut Rows) {
    for sequence in of(&system.catalog) {
        let (least, greatest) = sequence.bounds();
        let sql_type = sequence.column.sql_type;
        rows.add([
            ("seqrelid", sequence.oid(system).into()),
            ("seqtypid", types::oid_of(sql_type).0.into()),
            ("seqstart", sequence.start().into()),
            ("seqincrement", sequence.identity.increment.into()),
            ("seqmax", greatest.into()),
            ("seqmin", least.into()),
            ("seqcache", 1.into()),
            ("seqcycle", false.into()),
        ]);
    }
}

pub fn pg_sequences(system: &System, rows: &mut Rows) {
    for sequence in of(&system.catalog) {
        let (least, greatest) = sequence.bounds();
        let owner = strandline_engine::access::Object::Table(sequence.table.id);
        let owner = system.catalog.access.owner(&owner);
        rows.add([
            ("schemaname", sequence.table.schema.as_str().into()),
            ("sequencename", sequence.name().into()),
            (
                "sequenceowner",
                system.catalog.access.role_name(owner).into(),
            ),
            ("start_value", sequence.start().into()),
            ("min_value", least.into()),
            ("max_value", greatest.into()),
            ("increment_by", sequence.identity.increment.into()),
            ("cycle", false.into()),
            ("cache_size", 1.into()),
            (
                "last_value",
                CatalogValue::option(sequence.last_value(system)),
            ),
        ]);
    }
}
