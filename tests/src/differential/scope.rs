//! What an expression may refer to.

/// The types of generated expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// smallint counts as it: beside anything else it is an integer
    Integer,
    Bigint,
    Numeric,
    Text,
    Date,
    Boolean,
}

impl Kind {
    pub const ALL: [Self; 6] = [
        Self::Integer,
        Self::Bigint,
        Self::Numeric,
        Self::Text,
        Self::Date,
        Self::Boolean,
    ];

    /// The type's name in SQL.
    pub fn sql(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Bigint => "bigint",
            Self::Numeric => "numeric",
            Self::Text => "text",
            Self::Date => "date",
            Self::Boolean => "boolean",
        }
    }
}

/// An expression that a query may name: a column, or a grouped expression.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub sql: String,
    pub kind: Kind,
}

/// The columns that are visible at one place of a statement.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// of the query itself
    pub columns: Vec<Column>,
    /// of the queries around it
    pub outer: Vec<Column>,
    /// columns by whose values no two different rows of the query are equal
    pub keys: Vec<String>,
    /// below a GROUP BY: what aggregate functions may refer to
    pub grouped_rows: Option<Box<Scope>>,
    /// how deep subqueries may nest here
    pub subqueries: u32,
}

impl Scope {
    /// What a subquery at this place sees before it has a FROM of its own: neither the columns that
    /// a join has merged, whose names have no qualifier, nor grouped expressions, which PostgreSQL
    /// does not recognise within a subquery.
    pub fn inner(&self) -> Self {
        let columns = self.columns.iter().chain(&self.outer);
        let is_plain = |column: &&Column| column.sql.starts_with('r') && !column.sql.contains('(');
        Self {
            outer: columns.filter(is_plain).cloned().collect(),
            subqueries: self.subqueries.saturating_sub(1),
            ..Self::default()
        }
    }

    /// The query's own columns, for places that may hold neither outer columns nor subqueries.
    pub fn own(&self) -> Self {
        Self {
            columns: self.columns.clone(),
            keys: self.keys.clone(),
            ..Self::default()
        }
    }
}
