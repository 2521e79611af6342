//! Definitions of secondary indexes and of foreign keys.
//!
//! An index is over columns, or over immutable expressions of a row's columns. The engine knows no
//! SQL, so it keeps expressions as text beside the columns that they read. The caller that opens
//! the database supplies the evaluator.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use strandline_base::{ColumnId, CommitTs, SqlType, TableId};

/// The number of an index: unique within its table, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IndexId(pub u32);

/// A secondary index, made by CREATE INDEX.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexDef {
    /// stable for life
    pub id: IndexId,
    /// unique among the relations of the table's schema
    pub name: String,
    /// the access method
    pub method: IndexMethod,
    /// the parts of the key, in order; at least one
    pub parts: Vec<IndexPart>,
    /// INCLUDE: further columns for the readers of the index
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<ColumnId>,
    /// no two rows have the same key
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unique: bool,
    /// NULLS NOT DISTINCT: two NULLs are the same key
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nulls_not_distinct: bool,
    /// WHERE: rows for which it is not true have no entry
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<IndexExpression>,
    /// whether readers may use it
    pub state: IndexState,
    /// the index has an entry for every version that was visible at this moment or later
    pub complete_since: CommitTs,
    /// WITH: storage parameters as declared, for example fillfactor; displayed, without effect
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// COMMENT ON INDEX
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// the place of its entries
    #[serde(default, skip_serializing_if = "IndexStorage::is_memory")]
    pub storage: IndexStorage,
    /// WITH (storage = 'memory'): one in memory stays there though memory is short. Others move
    /// into levels then (`transaction::index_move`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays_in_memory: bool,
    /// in levels though nobody has asked for it: it has moved there from memory
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_moved: bool,
    /// the number of its file, which the engine gives; None: it has none, and gets one when the
    /// database is opened if `storage` is not memory
    #[serde(rename = "page_file", default, skip_serializing_if = "Option::is_none")]
    pub file_number: Option<u32>,
}

/// The place of an index's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexStorage {
    /// in memory; built from the rows when the database is opened
    #[default]
    Memory,
    /// on the pages of a file, which is kept
    Pages,
    /// in the levels of a file, which is kept
    Levels,
    /// as `Pages`, with LIDBlocks in a second file on the fast tier
    Blocks(LidBlocks),
}

/// The form of an index's LIDBlocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LidBlocks {
    /// what a block's entries have in common
    pub kind: LidBlockKind,
    /// the entries of a block, 1 to [`LidBlocks::ENTRIES_MAX`]
    pub entries: u16,
}

impl LidBlocks {
    /// The entries of a block unless another number is given.
    pub const ENTRIES: u16 = 32;
    /// The most entries of a block: it has to fit into a page.
    pub const ENTRIES_MAX: u16 = 128;
}

/// What the entries of a LIDBlock have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LidBlockKind {
    /// a value: for values with many rows
    Dense,
    /// a leaf of the tree
    Sparse,
}

impl LidBlockKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Dense, Self::Sparse];

    /// Its name as a storage parameter has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Sparse => "sparse",
        }
    }
}

impl IndexStorage {
    /// All of them, without LIDBlocks.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Pages, Self::Levels];

    /// Its name as the storage parameter `storage` has it, which does not say anything of blocks.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pages | Self::Blocks(_) => "pages",
            Self::Levels => "levels",
        }
    }

    /// The form of its LIDBlocks; None: it has none.
    pub fn blocks(self) -> Option<LidBlocks> {
        match self {
            Self::Blocks(blocks) => Some(blocks),
            Self::Memory | Self::Pages | Self::Levels => None,
        }
    }

    /// Whether it is memory.
    pub fn is_memory(&self) -> bool {
        *self == Self::Memory
    }
}

impl IndexDef {
    /// Whether a column is one of the index's parts, or is used by its expressions, its predicate
    /// or INCLUDE.
    pub fn reads(&self, column: ColumnId) -> bool {
        self.include.contains(&column) || self.key_columns().contains(&column)
    }

    /// Renumbers the columns.
    pub fn renumber(&mut self, renumber: &dyn Fn(&mut Vec<ColumnId>)) {
        renumber(&mut self.include);
        for part in &mut self.parts {
            match &mut part.value {
                IndexValue::Column(id) => {
                    let mut one = vec![*id];
                    renumber(&mut one);
                    one.into_iter().for_each(|new| *id = new);
                }
                IndexValue::Expression(expression) => renumber(&mut expression.columns),
            }
        }
        if let Some(predicate) = &mut self.predicate {
            renumber(&mut predicate.columns);
        }
    }

    /// Whether the key consists of columns only, and every row has an entry.
    pub fn is_plain(&self) -> bool {
        let is_column = |part: &IndexPart| matches!(part.value, IndexValue::Column(_));
        self.predicate.is_none() && self.parts.iter().all(is_column)
    }

    /// Whether a row's entry depends on column `id`.
    pub fn has_key_column(&self, id: ColumnId) -> bool {
        let reads = |expression: &IndexExpression| expression.columns.contains(&id);
        let is_read = |part: &IndexPart| match &part.value {
            IndexValue::Column(column) => *column == id,
            IndexValue::Expression(expression) => reads(expression),
        };
        self.parts.iter().any(is_read) || self.predicate.as_ref().is_some_and(reads)
    }

    /// The columns that determine a row's entry. For an index over columns only these are its parts
    /// in order; for any other index, each column once.
    pub fn key_columns(&self) -> Vec<ColumnId> {
        let mut columns = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            match &part.value {
                IndexValue::Column(id) => columns.push(*id),
                IndexValue::Expression(expression) => {
                    columns.extend_from_slice(&expression.columns)
                }
            }
        }
        if let Some(predicate) = &self.predicate {
            columns.extend_from_slice(&predicate.columns);
        }
        if !self.is_plain() {
            columns.sort_unstable();
            columns.dedup();
        }
        columns
    }
}

/// The access method of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexMethod {
    /// by the order of its keys (`btree`)
    Ordered,
    /// by their hashes (`hash`)
    Hash,
    /// by the position of points or boxes (`rtree`); on pages
    Spatial,
}

impl IndexMethod {
    /// Its name as a storage parameter has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::Hash => "hash",
            Self::Spatial => "spatial",
        }
    }
}

/// One part of an index's key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexPart {
    /// the part's value
    pub value: IndexValue,
    /// DESC
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub descending: bool,
    /// NULLS FIRST
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nulls_first: bool,
    /// the operator class as declared, if it is not the type's own; shown, without effect
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_class: Option<String>,
}

/// The value of an index key's part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexValue {
    /// a column
    Column(ColumnId),
    /// an immutable expression
    Expression(IndexExpression),
}

/// An immutable expression over a table's columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexExpression {
    /// SQL text over the table's column names
    pub sql: String,
    /// the columns that it reads
    pub columns: Vec<ColumnId>,
    /// its type
    pub sql_type: SqlType,
}

/// Whether readers may use an index. Writers always maintain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexState {
    /// it is being filled
    Building,
    /// it has every entry
    Valid,
}

/// A FOREIGN KEY constraint, stored at the referencing table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForeignKeyDef {
    /// constraint name, unique within the table
    pub name: String,
    /// increases from constraint to constraint in the whole catalog, so that checks and actions run
    /// in order of creation
    #[serde(default)]
    pub number: u32,
    /// the referencing columns in order
    pub columns: Vec<ColumnId>,
    /// the referenced table
    pub parent: TableId,
    /// the referenced columns in the same order: the columns of a key or unique index, in any order
    pub parent_columns: Vec<ColumnId>,
    /// MATCH FULL rather than MATCH SIMPLE
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub match_full: bool,
    /// ON DELETE
    pub on_delete: ReferentialAction,
    /// ON UPDATE
    pub on_update: ReferentialAction,
    /// columns that ON DELETE SET NULL or SET DEFAULT sets; empty: all of them
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete_sets: Vec<ColumnId>,
    /// when the constraint is checked
    #[serde(default)]
    pub timing: ConstraintTiming,
    /// rows from before NOT VALID may violate the constraint
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_valid: bool,
}

impl ForeignKeyDef {
    /// A valid constraint with SQL's defaults: MATCH SIMPLE, NO ACTION, not deferrable. It is the
    /// first of its catalog.
    pub fn new(
        name: impl Into<String>,
        columns: Vec<ColumnId>,
        parent: TableId,
        parent_columns: Vec<ColumnId>,
    ) -> Self {
        Self {
            name: name.into(),
            number: 1,
            columns,
            parent,
            parent_columns,
            match_full: false,
            on_delete: ReferentialAction::default(),
            on_update: ReferentialAction::default(),
            delete_sets: Vec::new(),
            timing: ConstraintTiming::default(),
            not_valid: false,
        }
    }
}

/// The referential actions: the effect of a change of a referenced row on the referencing rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferentialAction {
    /// refused at the check if referencing rows still exist
    #[default]
    NoAction,
    /// refused at once
    Restrict,
    /// deleted, or updated likewise
    Cascade,
    /// set to NULL
    SetNull,
    /// set to the columns' defaults
    SetDefault,
}

/// When a constraint is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConstraintTiming {
    /// NOT DEFERRABLE: at the end of each statement
    #[default]
    Immediate,
    /// DEFERRABLE INITIALLY IMMEDIATE
    DeferrableImmediate,
    /// DEFERRABLE INITIALLY DEFERRED: at commit
    Deferred,
}
