//! Declarations of FOREIGN KEY and REFERENCES, their addition to a table's definition, and the
//! effects on foreign keys when an object that they need is dropped.

use super::constraint_names::{constraint_name, is_constraint, undefined_constraint};
use super::relation_names;
use crate::catalogs::lookup;
use crate::parse::names;
use crate::planning::context::StatementContext;
use datafusion::sql::sqlparser::ast::{
    ConstraintCharacteristics, ConstraintReferenceMatchKind, DeferrableInitial,
    ForeignKeyConstraint, Ident, ObjectName, ReferentialAction as Written,
};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Error, ErrorKind, Result, SqlState, TableId};
use strandline_engine::access::Privileges;
use strandline_engine::catalog::foreign_keys::{Comparability, comparability};
use strandline_engine::catalog::index::{
    ConstraintTiming, ForeignKeyDef, IndexDef, IndexId, IndexMethod, IndexPart, IndexState,
    IndexStorage, IndexValue, ReferentialAction,
};
use strandline_engine::catalog::{Catalog, KeyDef, TableDef};

/// The hint of every error about dependent objects.
const DROP_CASCADE: &str = "Use DROP ... CASCADE to drop the dependent objects too.";

/// A declared foreign key.
#[derive(Clone, Debug)]
pub struct ForeignKey {
    name: Option<String>,
    columns: Vec<String>,
    parent: ObjectName,
    parent_columns: Vec<String>,
    match_full: bool,
    on_delete: ReferentialAction,
    on_update: ReferentialAction,
    delete_sets: Vec<String>,
    timing: ConstraintTiming,
    /// NOT VALID
    pub not_valid: bool,
}

/// Reads a foreign key; `column`: the column that REFERENCES is declared with.
pub fn declare(
    written: &ForeignKeyConstraint,
    name: Option<String>,
    column: Option<&str>,
) -> Result<ForeignKey> {
    if written.match_kind == Some(ConstraintReferenceMatchKind::Partial) {
        return Err(Error::unsupported("MATCH PARTIAL not yet implemented"));
    }
    let (parent, delete_sets) = crate::parse::foreign_keys::referenced(written)?;
    let fold = |list: &[Ident]| list.iter().map(names::fold).collect::<Vec<_>>();
    Ok(ForeignKey {
        name: name.or_else(|| written.name.as_ref().map(names::fold)),
        columns: match column {
            Some(column) => vec![column.to_string()],
            None => fold(&written.columns),
        },
        parent,
        parent_columns: fold(&written.referred_columns),
        match_full: written.match_kind == Some(ConstraintReferenceMatchKind::Full),
        on_delete: action(written.on_delete.as_ref()),
        on_update: action(written.on_update.as_ref()),
        delete_sets,
        timing: timing(written.characteristics.as_ref())?,
        not_valid: false,
    })
}

fn action(written: Option<&Written>) -> ReferentialAction {
    match written {
        None | Some(Written::NoAction) => ReferentialAction::NoAction,
        Some(Written::Restrict) => ReferentialAction::Restrict,
        Some(Written::Cascade) => ReferentialAction::Cascade,
        Some(Written::SetNull) => ReferentialAction::SetNull,
        Some(Written::SetDefault) => ReferentialAction::SetDefault,
    }
}

/// The time of a constraint's check by its characteristics.
pub fn timing(written: Option<&ConstraintCharacteristics>) -> Result<ConstraintTiming> {
    let Some(written) = written else {
        return Ok(ConstraintTiming::Immediate);
    };
    if written.enforced == Some(false) {
        return Err(Error::unsupported("NOT ENFORCED is not supported"));
    }
    match (&written.deferrable, &written.initially) {
        (Some(false), Some(DeferrableInitial::Deferred)) => Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "constraint declared INITIALLY DEFERRED must be DEFERRABLE",
        )),
        (_, Some(DeferrableInitial::Deferred)) => Ok(ConstraintTiming::Deferred),
        (Some(true), _) => Ok(ConstraintTiming::DeferrableImmediate),
        _ => Ok(ConstraintTiming::Immediate),
    }
}

/// Adds a foreign key to `table`, which need not be in `catalog` yet.
pub fn add(
    context: &StatementContext,
    catalog: &Catalog,
    table: &mut TableDef,
    declared: &ForeignKey,
) -> Result<()> {
    let columns = columns_of(table, &declared.columns)?;
    let parent = referenced(context, catalog, table, &declared.parent)?;
    let parent = parent.as_deref().unwrap_or(table);
    let parent_columns = match declared.parent_columns.as_slice() {
        [] => primary_key(parent)?,
        names => columns_of(parent, names)?,
    };
    if columns.len() != parent_columns.len() {
        return Err(invalid(
            "number of referencing and referenced columns for foreign key disagree",
        ));
    }
    require_unique(parent, &parent_columns)?;
    let mut delete_sets = Vec::with_capacity(declared.delete_sets.len());
    for name in &declared.delete_sets {
        let id = columns_of(table, std::slice::from_ref(name))?;
        if !columns.contains(&id[0]) {
            return Err(Error::invalid(
                SqlState::INVALID_COLUMN_REFERENCE,
                format!(
                    "column \"{name}\" referenced in ON DELETE SET action must be part of foreign \
                     key"
                ),
            ));
        }
        delete_sets.extend(id);
    }
    let name = match &declared.name {
        Some(name) => constraint_name(table, Some(name.clone()), "")?,
        None => relation_names::choose(&table.name, &declared.columns, "fkey", &|name| {
            is_constraint(table, name)
        }),
    };
    check_types(table, &columns, parent, &parent_columns, &name)?;
    let key = ForeignKeyDef {
        name,
        number: catalog.next_foreign_key().max(next_number(table)),
        columns,
        parent: parent.id,
        parent_columns,
        match_full: declared.match_full,
        on_delete: declared.on_delete,
        on_update: declared.on_update,
        delete_sets,
        timing: declared.timing,
        not_valid: declared.not_valid,
    };
    if table.index_over(&key.columns).is_none() {
        let index = IndexDef {
            storage: context.index_storage.unwrap_or_default(),
            stays_in_memory: context.index_storage == Some(IndexStorage::Memory),
            ..index_for(catalog, table, &key)
        };
        context.notice(format!(
            "FOREIGN KEY creates index \"{}\" on the referencing columns of table \"{}\"",
            index.name, table.name
        ));
        table.indexes.push(Arc::new(index));
        table.next_index += 1;
    }
    table.foreign_keys.push(Arc::new(key));
    Ok(())
}

/// The index over the referencing columns, which finds the rows that reference a changed row. Its
/// name avoids the names that CREATE INDEX chooses.
fn index_for(catalog: &Catalog, table: &TableDef, key: &ForeignKeyDef) -> IndexDef {
    let is_taken = |name: &str| {
        name == table.name
            || relation_names::has_index(table, name)
            || relation_names::is_taken(catalog, &table.schema, name)
    };
    let part = |id: &ColumnId| IndexPart {
        value: IndexValue::Column(*id),
        descending: false,
        nulls_first: false,
        operator_class: None,
    };
    IndexDef {
        id: IndexId(table.next_index),
        name: relation_names::choose(&key.name, &[], "idx", &is_taken),
        method: IndexMethod::Ordered,
        parts: key.columns.iter().map(part).collect(),
        include: Vec::new(),
        unique: false,
        nulls_not_distinct: false,
        predicate: None,
        state: IndexState::Valid,
        // Set when the index is built.
        complete_since: CommitTs::ZERO,
        comment: None,
        storage: Default::default(),
        stays_in_memory: false,
        was_moved: false,
        file_number: None,
        options: Default::default(),
    }
}

/// The next number according to a table that is not in the catalog yet.
fn next_number(table: &TableDef) -> u32 {
    let numbers = table.foreign_keys.iter().map(|key| key.number + 1);
    numbers.max().unwrap_or(1)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::invalid(SqlState::INVALID_FOREIGN_KEY, message)
}

/// The columns' ids.
fn columns_of(table: &TableDef, names: &[String]) -> Result<Vec<ColumnId>> {
    let mut ids = Vec::with_capacity(names.len());
    for name in names {
        let column = table.column(name).ok_or_else(|| {
            Error::invalid(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{name}\" referenced in foreign key constraint does not exist"),
            )
        })?;
        ids.push(column.id);
    }
    Ok(ids)
}

/// The table of a name in REFERENCES; None: the referencing table itself.
fn referenced(
    context: &StatementContext,
    catalog: &Catalog,
    table: &TableDef,
    name: &ObjectName,
) -> Result<Option<Arc<TableDef>>> {
    let (schema, parent) = lookup::existing(name, &context.default_schema)?;
    if schema == table.schema && parent == table.name {
        return Ok(None);
    }
    let Some(found) = catalog.table(&schema, &parent) else {
        lookup::refuse_system(&schema, &parent)?;
        return Err(match catalog.view(&schema, &parent) {
            Some(_) => Error::invalid(
                SqlState::WRONG_OBJECT_TYPE,
                format!("referenced relation \"{parent}\" is not a table"),
            ),
            None if catalog.schemas.contains_key(&schema) => {
                names::undefined_table(&schema, &parent)
            }
            None => names::undefined_schema(&schema),
        });
    };
    if let Some(acting) = &context.acting {
        acting.require_on(found, Privileges::REFERENCES)?;
    }
    Ok(Some(found.clone()))
}

fn primary_key(parent: &TableDef) -> Result<Vec<ColumnId>> {
    let key = parent.primary_key().ok_or_else(|| {
        Error::invalid(
            SqlState::UNDEFINED_OBJECT,
            format!(
                "there is no primary key for referenced table \"{}\"",
                parent.name
            ),
        )
    })?;
    match key.is_deferrable() {
        true => Err(Error::invalid(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "cannot use a deferrable primary key for referenced table \"{}\"",
                parent.name
            ),
        )),
        false => Ok(key.columns.clone()),
    }
}

/// An error unless `parent` has a key of exactly these columns.
fn require_unique(parent: &TableDef, columns: &[ColumnId]) -> Result<()> {
    let repeats = columns.iter().enumerate();
    if repeats.clone().any(|(at, id)| columns[..at].contains(id)) {
        return Err(invalid(
            "foreign key referenced-columns list must not contain duplicates",
        ));
    }
    if parent.unique_over(columns).is_some() {
        return Ok(());
    }
    let is_same = |key: &&KeyDef| {
        key.columns.len() == columns.len() && columns.iter().all(|id| key.columns.contains(id))
    };
    Err(match parent.keys.iter().find(is_same) {
        Some(_) => Error::invalid(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "cannot use a deferrable unique constraint for referenced table \"{}\"",
                parent.name
            ),
        ),
        None => invalid(format!(
            "there is no unique constraint matching given keys for referenced table \"{}\"",
            parent.name
        )),
    })
}

fn check_types(
    table: &TableDef,
    columns: &[ColumnId],
    parent: &TableDef,
    parent_columns: &[ColumnId],
    name: &str,
) -> Result<()> {
    let missing = || Error::internal("a column of a foreign key is missing");
    for (child, referenced) in columns.iter().zip(parent_columns) {
        let child = table.column_by_id(*child).ok_or_else(missing)?;
        let referenced = parent.column_by_id(*referenced).ok_or_else(missing)?;
        let message = format!("foreign key constraint \"{name}\" cannot be implemented");
        let error = match comparability(child.sql_type, referenced.sql_type) {
            Comparability::Comparable => continue,
            Comparability::Incompatible => Error::invalid(SqlState::DATATYPE_MISMATCH, message),
            Comparability::Unsupported => Error::unsupported(message)
                .with_hint("Give the referencing column the type of the referenced one."),
        };
        return Err(error.with_detail(format!(
            "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
            child.name,
            referenced.name,
            type_name(child.sql_type),
            type_name(referenced.sql_type)
        )));
    }
    Ok(())
}

/// The name of a type in messages, without length or precision.
fn type_name(sql_type: strandline_base::SqlType) -> String {
    let text = sql_type.to_string();
    match text.split_once('(') {
        Some((name, _)) => name.to_string(),
        None => text,
    }
}

/// A foreign key whose referenced key is missing in a catalog.
pub struct Broken {
    child: TableId,
    table: String,
    name: String,
    parent: TableId,
}

/// The foreign keys whose referenced table, columns or key are missing in `catalog`.
pub fn broken(catalog: &Catalog) -> Vec<Broken> {
    let mut found = Vec::new();
    for table in catalog.tables.values() {
        for key in &table.foreign_keys {
            let parent = catalog.tables.get(&key.parent);
            let unique = parent.and_then(|parent| parent.unique_over(&key.parent_columns));
            if unique.is_none() {
                found.push(Broken {
                    child: table.id,
                    table: table.name.clone(),
                    name: key.name.clone(),
                    parent: key.parent,
                });
            }
        }
    }
    found
}

/// Drops the foreign keys whose referenced key has been dropped from `catalog` (CASCADE), or
/// refuses the drop. For messages: `what` is dropped (`table p`), and the foreign keys depend on
/// `needed`; None: on tables.
pub fn settle(
    context: &StatementContext,
    catalog: &mut Catalog,
    (what, needed): (&str, Option<&str>),
    cascade: bool,
) -> Result<()> {
    let broken = broken(catalog);
    if broken.is_empty() {
        return Ok(());
    }
    if !cascade {
        let before = context.statement.transaction().catalog();
        let line = |b: &Broken| {
            let parent = before.tables.get(&b.parent);
            let table = || parent.map_or_else(String::new, |table| format!("table {}", table.name));
            let needed = needed.map_or_else(table, str::to_string);
            format!(
                "constraint {} on table {} depends on {needed}",
                b.name, b.table
            )
        };
        let lines: Vec<String> = broken.iter().map(line).collect();
        return Err(Error::new(
            ErrorKind::Invalid,
            SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
            format!("cannot drop {what} because other objects depend on it"),
        )
        .with_detail(lines.join("\n"))
        .with_hint(DROP_CASCADE));
    }
    for dropped in &broken {
        context.notice(format!(
            "drop cascades to constraint {} on table {}",
            dropped.name, dropped.table
        ));
        if let Some(table) = catalog.tables.get(&dropped.child) {
            let mut table = TableDef::clone(table);
            table.foreign_keys.retain(|key| key.name != dropped.name);
            catalog.put_table(table);
        }
    }
    Ok(())
}

/// ALTER CONSTRAINT: changes the time of a foreign key's check.
pub fn alter(table: &mut TableDef, name: &str, written: &ForeignKeyConstraint) -> Result<()> {
    let timing = timing(written.characteristics.as_ref())?;
    let is_it = |key: &&mut Arc<ForeignKeyDef>| key.name == name;
    if let Some(key) = table.foreign_keys.iter_mut().find(is_it) {
        Arc::make_mut(key).timing = timing;
        return Ok(());
    }
    let mut others = table.keys.iter().map(|key| &key.name);
    let others = others.any(|other| other == name) || table.checks.iter().any(|c| c.name == name);
    Err(match others {
        true => Error::invalid(
            SqlState::WRONG_OBJECT_TYPE,
            format!(
                "constraint \"{name}\" of relation \"{}\" is not a foreign key constraint",
                table.name
            ),
        ),
        false => undefined_constraint(name, &table.name),
    })
}

/// TRUNCATE of `tables`: refuses it if rows of other tables reference them, or adds the other
/// tables (CASCADE).
pub fn truncated_with(
    context: &StatementContext,
    tables: &mut Vec<Arc<TableDef>>,
    cascade: bool,
) -> Result<()> {
    let mut at = 0;
    while let Some(table) = tables.get(at).cloned() {
        at += 1;
        for id in &table.referenced_by {
            if tables.iter().any(|known| known.id == *id) {
                continue;
            }
            let Some(child) = context.catalog.tables.get(id) else {
                continue;
            };
            if !cascade {
                return Err(Error::unsupported(
                    "cannot truncate a table referenced in a foreign key constraint",
                )
                .with_detail(format!(
                    "Table \"{}\" references \"{}\".",
                    child.name, table.name
                ))
                .with_hint(format!(
                    "Truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE.",
                    child.name
                )));
            }
            if let Some(acting) = &context.acting {
                acting.require_on(child, Privileges::TRUNCATE)?;
            }
            context.notice(format!("truncate cascades to table \"{}\"", child.name));
            tables.push(child.clone());
        }
    }
    Ok(())
}
