//! A table's indexes as PostgreSQL shows them: indexes of PRIMARY KEY and UNIQUE constraints, and
//! indexes of CREATE INDEX.

use super::oid::Object;
use crate::parse;
use crate::parse::index_names;
use strandline_base::{ColumnId, SqlType};
use strandline_engine::catalog::index::{
    ConstraintTiming, IndexDef, IndexExpression, IndexMethod, IndexPart, IndexState, IndexValue,
};
use strandline_engine::catalog::{KeyDef, TableDef};

/// The access method `btree`.
pub const BTREE: i32 = 403;
/// The access method `hash`.
pub const HASH: i32 = 405;
/// The access method `gist`, as which R-trees are shown.
pub const GIST: i32 = 783;

/// An index of a table.
#[derive(Clone, Copy, Debug)]
pub enum Index<'a> {
    /// of a PRIMARY KEY or UNIQUE constraint
    Key(&'a KeyDef),
    /// of CREATE INDEX
    Secondary(&'a IndexDef),
}

/// One part of an index's key.
#[derive(Debug)]
pub struct Part<'a> {
    /// the column's position from 1; 0: an expression
    pub position: i64,
    /// the column's name
    pub column: Option<&'a str>,
    /// the expression
    pub expression: Option<&'a IndexExpression>,
    /// its type
    pub sql_type: SqlType,
    /// DESC
    pub descending: bool,
    /// NULLS FIRST
    pub nulls_first: bool,
    /// the operator class, if it is not the type's own
    pub operator_class: Option<&'a str>,
}

impl Part<'_> {
    /// `pg_index.indoption`: 1 DESC, 2 NULLS FIRST.
    pub fn option(&self) -> i64 {
        i64::from(self.descending) | (i64::from(self.nulls_first) << 1)
    }
}

/// The indexes of a table, the keys' indexes first.
pub fn of(table: &TableDef) -> impl Iterator<Item = Index<'_>> {
    let keys = table.keys.iter().map(Index::Key);
    let secondary = table.indexes.iter().map(|index| Index::Secondary(index));
    keys.chain(secondary)
}

impl<'a> Index<'a> {
    /// Unique among the relations of its schema.
    pub fn name(self) -> &'a str {
        match self {
            Self::Key(key) => &key.name,
            Self::Secondary(index) => &index.name,
        }
    }
    /// The object that its oid is computed from.
    pub fn object(self, table: &TableDef) -> Object {
        match self {
            Self::Key(key) => Object::KeyIndex(table.id, key.name.clone()),
            Self::Secondary(index) => Object::Index(table.id, index.id),
        }
    }
    /// UNIQUE or PRIMARY KEY.
    pub fn is_unique(self) -> bool {
        match self {
            Self::Key(_) => true,
            Self::Secondary(index) => index.unique,
        }
    }
    /// PRIMARY KEY.
    pub fn is_primary(self) -> bool {
        matches!(self, Self::Key(key) if key.primary)
    }
    /// NULLS NOT DISTINCT.
    pub fn nulls_not_distinct(self) -> bool {
        match self {
            Self::Key(key) => key.nulls_not_distinct,
            Self::Secondary(index) => index.nulls_not_distinct,
        }
    }
    /// Uniqueness is never deferred.
    pub fn is_immediate(self) -> bool {
        match self {
            Self::Key(key) => key.timing == ConstraintTiming::Immediate,
            Self::Secondary(_) => true,
        }
    }
    /// Readers may use it.
    pub fn is_valid(self) -> bool {
        match self {
            Self::Key(_) => true,
            Self::Secondary(index) => index.state == IndexState::Valid,
        }
    }
    /// The oid of its access method. The index of a key is shown as a btree.
    pub fn method(self) -> i32 {
        match self {
            Self::Key(_) => BTREE,
            Self::Secondary(index) => match index.method {
                IndexMethod::Ordered => BTREE,
                IndexMethod::Hash => HASH,
                IndexMethod::Spatial => GIST,
            },
        }
    }
    /// COMMENT ON INDEX.
    pub fn comment(self) -> Option<&'a String> {
        match self {
            Self::Key(_) => None,
            Self::Secondary(index) => index.comment.as_ref(),
        }
    }
    /// WHERE.
    pub fn predicate(self) -> Option<&'a IndexExpression> {
        match self {
            Self::Key(_) => None,
            Self::Secondary(index) => index.predicate.as_ref(),
        }
    }
    /// WITH, as `pg_class.reloptions` has it.
    pub fn options(self) -> Vec<String> {
        let Self::Secondary(index) = self else {
            return Vec::new();
        };
        let options = storage_parameters(index).into_iter();
        options
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }
    /// The positions of INCLUDE's columns from 1.
    pub fn included(self, table: &TableDef) -> Vec<i64> {
        match self {
            Self::Key(_) => Vec::new(),
            Self::Secondary(index) => positions(table, &index.include),
        }
    }
    /// The parts of its key.
    pub fn parts(self, table: &'a TableDef) -> Vec<Part<'a>> {
        match self {
            Self::Key(key) => {
                let columns = key.columns.iter();
                columns
                    .filter_map(|id| column_part(table, *id, false, false))
                    .collect()
            }
            Self::Secondary(index) => {
                let parts = index.parts.iter();
                parts.filter_map(|part| part_of(table, part)).collect()
            }
        }
    }
    /// The names of its columns as a relation: of the parts of its key, then of INCLUDE's.
    pub fn attributes(self, table: &'a TableDef) -> Vec<(String, SqlType)> {
        let parts = self.parts(table);
        let mut names: Vec<String> = Vec::new();
        let mut types = Vec::new();
        for part in &parts {
            let name = match (part.column, part.expression) {
                (Some(column), _) => column.to_string(),
                (None, Some(expression)) => expression_name(&expression.sql),
                (None, None) => continue,
            };
            names.push(index_names::distinct(&names, name));
            types.push(part.sql_type);
        }
        if let Self::Secondary(index) = self {
            for column in index
                .include
                .iter()
                .filter_map(|id| table.column_by_id(*id))
            {
                names.push(index_names::distinct(&names, column.name.clone()));
                types.push(column.sql_type);
            }
        }
        names.into_iter().zip(types).collect()
    }
}

/// The name that PostgreSQL gives an expression's column.
fn expression_name(sql: &str) -> String {
    match parse::expression(sql) {
        Ok(expression) => index_names::of_expression(&expression),
        Err(_) => index_names::EXPRESSION.to_string(),
    }
}

fn part_of<'a>(table: &'a TableDef, part: &'a IndexPart) -> Option<Part<'a>> {
    let shown = match &part.value {
        IndexValue::Column(id) => column_part(table, *id, part.descending, part.nulls_first),
        IndexValue::Expression(expression) => Some(Part {
            position: 0,
            column: None,
            expression: Some(expression),
            sql_type: expression.sql_type,
            descending: part.descending,
            nulls_first: part.nulls_first,
            operator_class: None,
        }),
    };
    shown.map(|shown| Part {
        operator_class: part.operator_class.as_deref(),
        ..shown
    })
}

fn column_part(
    table: &TableDef,
    id: ColumnId,
    descending: bool,
    nulls_first: bool,
) -> Option<Part<'_>> {
    let at = table.position(id)?;
    let column = table.columns.get(at)?;
    Some(Part {
        position: at as i64 + 1,
        column: Some(&column.name),
        expression: None,
        sql_type: column.sql_type,
        descending,
        nulls_first,
        operator_class: None,
    })
}

/// The positions of columns in their table, from 1.
pub fn positions(table: &TableDef, columns: &[ColumnId]) -> Vec<i64> {
    let positions = columns.iter().filter_map(|id| table.position(*id));
    positions.map(|at| at as i64 + 1).collect()
}

/// The storage parameters of a secondary index in WITH, in order. The storage is named if it was
/// asked for.
pub fn storage_parameters(index: &IndexDef) -> Vec<(&str, String)> {
    let given = index.options.iter();
    let mut all: Vec<(&str, String)> = given.map(|(n, v)| (n.as_str(), v.clone())).collect();
    // An R-tree has no other storage.
    let is_given = index.stays_in_memory || (index.is_on_device() && !index.was_moved);
    if is_given && index.method != IndexMethod::Spatial {
        all.push(("storage", index.storage.name().to_string()));
    }
    if let Some(blocks) = index.storage.blocks() {
        all.push(("lid_block", blocks.kind.name().to_string()));
        all.push(("lid_block_entries", blocks.entries.to_string()));
    }
    all
}
