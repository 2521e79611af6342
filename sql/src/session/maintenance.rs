//! VACUUM, ANALYZE and LOCK TABLE. Background work already merges tails and keeps statistics
//! current. VACUUM runs a checkpoint, which merges the ranges that are due (FULL: all ranges with
//! updates), VACUUM INDEX moves the LIDBlocks of an index. ANALYZE has nothing to do.

use super::Session;
use crate::backends::acting::Acting;
use crate::catalogs::lookup;
use crate::parse::names;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{Lock, LockTableMode, ObjectName};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::access::Object;
use strandline_engine::catalog::{Catalog, TableDef};

impl Session {
    /// VACUUM. The checkpoint covers the whole database, also for a single `table`.
    pub(super) async fn vacuum(
        &mut self,
        table: Option<&ObjectName>,
        full: bool,
    ) -> Result<Summary> {
        self.require_no_transaction("VACUUM")?;
        if self.may_maintain(table, "vacuum")? {
            self.checkpoint(full).await?;
        }
        Ok(Summary::tag("VACUUM"))
    }

    /// VACUUM INDEX: moves the entries of the index's LIDBlocks to its tree, and removes those that
    /// no snapshot needs.
    pub(super) async fn vacuum_index(&mut self, name: Option<&ObjectName>) -> Result<Summary> {
        self.require_no_transaction("VACUUM INDEX")?;
        let name = name.ok_or_else(|| Error::internal("VACUUM INDEX without a name"))?;
        let (schema, name) = lookup::existing(name, &self.settings.search_path)?;
        let catalog = self.catalog();
        let mut tables = catalog.tables.values().filter(|t| t.schema == schema);
        let has_index = |table: &TableDef| {
            table.indexes.iter().any(|index| index.name == name)
                || table.keys.iter().any(|key| key.name == name)
        };
        let Some(table) = tables.find(|table| has_index(table)).cloned() else {
            let is_relation =
                catalog.table(&schema, &name).is_some() || catalog.view(&schema, &name).is_some();
            return Err(match is_relation {
                true => {
                    let message = format!("\"{name}\" is not an index");
                    Error::invalid(SqlState::WRONG_OBJECT_TYPE, message)
                        .with_hint(format!("VACUUM {name} vacuums a table."))
                }
                false => {
                    let message = format!("index \"{name}\" does not exist");
                    Error::invalid(SqlState::UNDEFINED_OBJECT, message)
                }
            });
        };
        let acting = Acting::of(&self.template, &catalog);
        if acting.is_some_and(|acting| !acting.owns(&Object::Table(table.id))) {
            let skipped =
                format!("skipping \"{name}\" --- only table or database owner can vacuum it");
            self.notice(SqlState("01000"), skipped);
            return Ok(Summary::tag("VACUUM"));
        }
        // The hash index of a constraint has nothing that waits.
        let mut indexes = table.readable_indexes();
        let id = indexes.find(|def| def.name == name).map(|def| def.id);
        drop(indexes);
        if let Some(id) = id {
            self.maintain("vacuum", move |db| db.vacuum_index(&table, id))
                .await?;
        }
        Ok(Summary::tag("VACUUM"))
    }

    fn require_no_transaction(&self, what: &str) -> Result<()> {
        if self.open.is_none() {
            return Ok(());
        }
        let message = format!("{what} cannot run inside a transaction block");
        Err(Error::invalid(SqlState::ACTIVE_SQL_TRANSACTION, message))
    }

    /// ANALYZE of `table`, or of all tables.
    pub(super) fn analyze(&mut self, table: Option<&ObjectName>) -> Result<Summary> {
        self.may_maintain(table, "analyze")?;
        Ok(Summary::tag("ANALYZE"))
    }

    /// LOCK TABLE in ACCESS SHARE, the mode of plain reads. It blocks nothing here: a snapshot
    /// keeps a dropped table readable.
    pub(super) fn lock_tables(&self, lock: &Lock) -> Result<Summary> {
        if self.open.is_none() || self.is_implicit() {
            return Err(Error::invalid(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "LOCK TABLE can only be used in transaction blocks",
            ));
        }
        if lock.lock_mode != Some(LockTableMode::AccessShare) {
            return Err(
                Error::unsupported("LOCK TABLE knows only the mode ACCESS SHARE").with_hint(
                    "SELECT … FOR UPDATE locks rows; definitions change only beside no writer.",
                ),
            );
        }
        for table in &lock.tables {
            self.relation(&table.name)?;
        }
        Ok(Summary::tag("LOCK TABLE"))
    }

    /// Whether the user may have `table` maintained, as its owner, or everything, as a superuser.
    /// Others are warned.
    fn may_maintain(&mut self, table: Option<&ObjectName>, verb: &str) -> Result<bool> {
        let found = table.map(|name| self.relation(name)).transpose()?;
        let Some(acting) = Acting::of(&self.template, &self.catalog()) else {
            return Ok(true);
        };
        let skipped = match found {
            None => format!("skipping the database --- only a superuser can {verb} it"),
            Some((object, _)) if acting.owns(&object) => return Ok(true),
            Some((_, name)) => {
                format!("skipping \"{name}\" --- only table or database owner can {verb} it")
            }
        };
        self.notice(SqlState("01000"), skipped);
        Ok(false)
    }

    /// Whether nobody checks the user's rights.
    pub(crate) fn is_superuser(&self) -> bool {
        Acting::of(&self.template, &self.catalog()).is_none()
    }

    fn catalog(&self) -> Arc<Catalog> {
        match &self.open {
            Some(open) => open.transaction.catalog(),
            None => self.shared.db.catalog(),
        }
    }

    /// The table or view that a name means, and its name.
    fn relation(&self, name: &ObjectName) -> Result<(Object, String)> {
        let (schema, name) = lookup::existing(name, &self.settings.search_path)?;
        let catalog = self.catalog();
        if let Some(table) = catalog.table(&schema, &name) {
            return Ok((Object::Table(table.id), name));
        }
        match catalog.view(&schema, &name) {
            Some(_) => Ok((Object::View(schema, name.clone()), name)),
            None => {
                lookup::refuse_system(&schema, &name)?;
                Err(names::undefined_table(&schema, &name))
            }
        }
    }
}
