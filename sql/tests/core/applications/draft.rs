//! Parts of random statements: values, columns, expressions and conditions.

use super::schema::{self, Column, Kind, Table, pick};
use datafusion::scalar::ScalarValue;
use strandline_base::rng::Rng;

/// A statement, whose parameters are drawn for each execution.
#[derive(Clone, Debug)]
pub struct Statement {
    pub sql: String,
    slots: Vec<Kind>,
    /// whether the order of its rows is determined
    pub is_ordered: bool,
}

/// The values of one execution, as parameters and as they are written.
pub struct Values {
    pub scalars: Vec<ScalarValue>,
    texts: Vec<String>,
}

impl Values {
    /// The values of a statement without parameters.
    pub fn none() -> Self {
        Self {
            scalars: Vec::new(),
            texts: Vec::new(),
        }
    }
}

impl Values {
    /// The values as a program has them that knows integers, floats and texts only.
    pub fn of_a_program(mut self) -> Self {
        for value in &mut self.scalars {
            let other = match &*value {
                ScalarValue::Int16(Some(v)) => ScalarValue::Int64(Some(i64::from(*v))),
                ScalarValue::Int32(Some(v)) => ScalarValue::Int64(Some(i64::from(*v))),
                ScalarValue::Decimal128(Some(v), _, 2) => {
                    ScalarValue::Float64(Some(*v as f64 / 100.0))
                }
                ScalarValue::TimestampMicrosecond(Some(us), None) => {
                    ScalarValue::Utf8(Some(schema::moment(*us)))
                }
                other => other.clone(),
            };
            *value = other;
        }
        self
    }
}

impl Statement {
    pub fn draw(&self, rng: &mut Rng) -> Values {
        let values = self.slots.iter().map(|slot| match rng.one_in(14) {
            true => (ScalarValue::Null, "NULL".to_string()),
            false => slot.draw(rng),
        });
        let (scalars, texts) = values.unzip();
        Values { scalars, texts }
    }

    /// The statement with the values in its text.
    pub fn with_literals(&self, values: &Values) -> String {
        let numbered = values.texts.iter().enumerate().rev();
        numbered.fold(self.sql.clone(), |sql, (no, text)| {
            sql.replace(&format!("${}", no + 1), text)
        })
    }
}

/// A statement that is being written.
pub struct Draft<'a> {
    pub rng: &'a mut Rng,
    tables: &'a [Table],
    slots: Vec<Kind>,
    /// the moment that its tables are read at, as SQL writes it
    past: Option<&'a str>,
    /// whether it is one of the most frequent forms: columns, values and comparisons alone
    pub is_plain: bool,
}

impl<'a> Draft<'a> {
    pub fn new(rng: &'a mut Rng, tables: &'a [Table], past: Option<&'a str>) -> Self {
        let is_plain = rng.one_in(2);
        Self {
            is_plain,
            rng,
            tables,
            slots: Vec::new(),
            past,
        }
    }

    pub fn finish(self, sql: String, is_ordered: bool) -> Statement {
        Statement {
            sql,
            slots: self.slots,
            is_ordered,
        }
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.rng.one_in(n)
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        *pick(self.rng, from)
    }

    /// A part of the statement or, as often, nothing.
    pub fn maybe(&mut self, part: impl FnOnce(&mut Self) -> String) -> String {
        match self.rng.one_in(2) {
            true => part(self),
            false => String::new(),
        }
    }

    pub fn parent(&self) -> &'a Table {
        &self.tables[0]
    }

    pub fn line(&self) -> &'a Table {
        &self.tables[1]
    }

    pub fn event(&self) -> &'a Table {
        &self.tables[2]
    }

    pub fn any_table(&mut self) -> &'a Table {
        pick(self.rng, self.tables)
    }

    /// An item of FROM.
    pub fn item(&self, table: &Table, alias: &str) -> String {
        let name = table.name;
        match self.past {
            Some(past) => format!("{name} FOR SYSTEM_TIME AS OF {past} AS {alias}"),
            None => format!("{name} AS {alias}"),
        }
    }

    /// A parameter, or a literal.
    pub fn value(&mut self, kind: Kind) -> String {
        if self.rng.one_in(4) {
            return kind.draw(self.rng).1;
        }
        self.slots.push(kind);
        format!("${}", self.slots.len())
    }

    pub fn column(&mut self, table: &'a Table) -> &'a Column {
        pick(self.rng, &table.columns)
    }

    /// A column that is not of the key.
    pub fn other_column(&mut self, table: &'a Table) -> &'a Column {
        pick(self.rng, &table.columns[table.key().len()..])
    }

    /// Some expression of a column.
    pub fn expression(&mut self, table: &'a Table, alias: &str) -> String {
        let column = self.column(table);
        let (c, kind) = (format!("{alias}.{}", column.name), column.kind);
        let which = self.rng.below(8);
        if kind.is_integer() {
            return self.of_integer(&c, kind, which);
        }
        if kind.is_text() {
            return self.of_text(&c, kind, which);
        }
        match (kind, which) {
            (Kind::Numeric, 0) => format!("round({c}, 1)"),
            (Kind::Numeric, 1) => format!("{c} * 1.5"),
            (Kind::Numeric, 2) => format!("floor({c})"),
            (Kind::Numeric, 3) => format!("{c} + {}", self.value(kind)),
            (Kind::Stamp, 0) => format!("date_trunc('day', {c})"),
            (Kind::Stamp, 1) => format!("extract(day FROM {c})"),
            (Kind::Stamp, 2) => format!("{c} + interval '1 hour'"),
            (Kind::Stamp, 3) => format!("CAST({c} + interval '0 hours' AS date)"),
            (Kind::Bool, 0) => format!("NOT {c}"),
            (Kind::Bool, 1) => format!("{c} AND {}", self.value(kind)),
            (Kind::Bool, 2) => format!("CASE WHEN {c} THEN 1 ELSE 0 END"),
            (_, 4) => format!("coalesce({c}, {})", self.value(kind)),
            (_, 5) => format!("{c} IS NULL"),
            _ => c,
        }
    }

    fn of_integer(&mut self, c: &str, kind: Kind, which: u64) -> String {
        match which {
            0 => format!("{c} + {}", self.value(kind)),
            1 => format!("abs(-{c})"),
            2 => format!("coalesce({c}, {})", self.value(kind)),
            3 => format!(
                "CASE WHEN {c} > {} THEN 'high' WHEN {c} IS NULL THEN 'none' ELSE 'low' END",
                self.value(kind)
            ),
            4 => format!("greatest({c}, {})", self.value(kind)),
            // Named as no column is: the full path takes x.k behind CAST(x.k …) for ambiguous.
            5 => format!("CAST({c} + 0 AS text)"),
            6 if self.rng.one_in(4) => format!("{c} / {}", self.value(kind)),
            6 => format!("nullif({c}, {}) % 7", self.value(kind)),
            _ => c.to_string(),
        }
    }

    fn of_text(&mut self, c: &str, kind: Kind, which: u64) -> String {
        match which {
            0 => format!("upper({c})"),
            1 => format!("length({c})"),
            2 => format!("{c} || {}", self.value(kind)),
            3 => format!("substr({c}, 1, 2)"),
            4 => format!("coalesce({c}, 'none')"),
            5 => format!("replace({c}, 'a', 'xy')"),
            6 => format!("{c} LIKE 'a%'"),
            _ => c.to_string(),
        }
    }

    /// A SELECT list over these tables.
    pub fn list(&mut self, tables: &[(&'a Table, &str)]) -> String {
        if self.rng.one_in(5) {
            return "*".to_string();
        }
        let count = 1 + self.rng.below(4);
        let columns = (0..count).map(|no| {
            let (table, alias) = tables[self.rng.below(tables.len() as u64) as usize];
            let expression = match self.is_plain || self.rng.one_in(2) {
                true => format!("{alias}.{}", self.column(table).name),
                false => self.expression(table, alias),
            };
            match self.rng.below(3) {
                0 => format!("{expression} AS e{no}"),
                _ => expression,
            }
        });
        let columns: Vec<String> = columns.collect();
        columns.join(", ")
    }

    /// The whole key of each of these tables, as an order.
    pub fn order(&mut self, tables: &[(&Table, &str)]) -> String {
        let mut parts = Vec::new();
        for (table, alias) in tables {
            let ends = if self.rng.one_in(3) { " DESC" } else { "" };
            let key = table.key_order();
            parts.extend(key.iter().map(|c| format!("{alias}.{}{ends}", c.name)));
        }
        format!(" ORDER BY {}", parts.join(", "))
    }

    pub fn limit(&mut self) -> String {
        let limit = self.pick(&["1", "2", "3", "21"]);
        let offset = self.pick(&["", "", " OFFSET 1"]);
        format!(" LIMIT {limit}{offset}")
    }

    /// A condition on one column.
    pub fn condition(&mut self, table: &'a Table, alias: &str) -> String {
        // These columns have an index.
        let indexed = self.pick(&["a", "s", ""]);
        let indexed = table.column(indexed).filter(|_| self.is_plain);
        let column = indexed.unwrap_or_else(|| self.column(table));
        self.condition_on(column, alias)
    }

    fn condition_on(&mut self, column: &Column, alias: &str) -> String {
        let (c, kind) = (format!("{alias}.{}", column.name), column.kind);
        let form = match self.is_plain {
            true => self.pick(&[1, 2, 3, 4, 10, 10, 11]),
            false => self.rng.below(13),
        };
        match (kind, form) {
            (Kind::Bool, 0..=2) => c,
            (Kind::Bool, 3..=4) => format!("NOT {c}"),
            (_, 0) => format!("{c} <> {}", self.value(kind)),
            (_, 1) => format!("{c} < {}", self.value(kind)),
            (_, 2) => format!("{c} >= {}", self.value(kind)),
            (_, 3) => format!("{c} BETWEEN {} AND {}", self.value(kind), self.value(kind)),
            (_, 4) => format!("{c} IN ({}, {})", self.value(kind), self.value(kind)),
            (_, 5) => format!("{c} IS NULL"),
            (_, 6) => format!("{c} IS NOT NULL"),
            (_, 7) => format!("{c} IS DISTINCT FROM {}", self.value(kind)),
            (_, 8) if kind.is_text() => format!("{c} LIKE 'a%'"),
            (_, 8) if kind.is_integer() => format!("{c} % 3 = 1"),
            (_, 11) => format!("{c} IS NOT DISTINCT FROM {}", self.value(kind)),
            (_, 12) => format!(
                "{c} = ANY(ARRAY[{}, {}])",
                self.value(kind),
                self.value(kind)
            ),
            (_, 9) if kind.is_text() => format!("lower({c}) = {}", self.value(kind)),
            _ => format!("{c} = {}", self.value(kind)),
        }
    }

    /// A condition that gives values to the key, or to its first columns.
    pub fn by_key(&mut self, table: &'a Table, alias: &str) -> String {
        let key = table.key_order();
        let equal = |draft: &mut Self, columns: &[&Column]| {
            let equal = columns.iter().map(|column| {
                let value = draft.value(column.kind);
                format!("{alias}.{} = {value}", column.name)
            });
            equal.collect::<Vec<_>>().join(" AND ")
        };
        let Some((last, first)) = key.split_last() else {
            return "true".to_string();
        };
        let before = |draft: &mut Self| match first.is_empty() {
            true => String::new(),
            false => equal(draft, first) + " AND ",
        };
        let (c, kind) = (format!("{alias}.{}", last.name), last.kind);
        match self.rng.below(10) {
            0 if !first.is_empty() => equal(self, first),
            1 => {
                let before = before(self);
                let values = [(); 3].map(|()| self.value(kind)).join(", ");
                format!("{before}{c} IN ({values})")
            }
            2 => {
                let before = before(self);
                format!(
                    "{before}{c} = ANY(ARRAY[{}, {}])",
                    self.value(kind),
                    self.value(kind)
                )
            }
            3 => {
                let before = before(self);
                format!(
                    "{before}{c} BETWEEN {} AND {}",
                    self.value(kind),
                    self.value(kind)
                )
            }
            4 => format!("({} OR {})", equal(self, &key), equal(self, &key)),
            _ => equal(self, &key),
        }
    }

    /// A comparison of rows of these columns.
    pub fn row_comparison(&mut self, columns: &[&Column], alias: &str, operator: &str) -> String {
        let names = columns
            .iter()
            .map(|column| format!("{alias}.{}", column.name));
        let names = names.collect::<Vec<_>>().join(", ");
        let values = columns.iter().map(|column| self.value(column.kind));
        let values = values.collect::<Vec<_>>().join(", ");
        match self.rng.one_in(5) {
            true => format!("({values}) {operator} ({names})"),
            false => format!("({names}) {operator} ({values})"),
        }
    }

    /// Columns to compare rows of: the key, or two that often have an index.
    pub fn row_columns(&mut self, table: &'a Table) -> Vec<&'a Column> {
        let key = table.key_order();
        if key.len() > 1 && self.rng.one_in(2) {
            return key;
        }
        let mut columns: Vec<&Column> = ["a", "s"].iter().flat_map(|c| table.column(c)).collect();
        if self.rng.one_in(2) {
            columns.reverse();
        }
        columns
    }

    /// A column equals the value of a subquery.
    fn by_subquery(&mut self, table: &'a Table, alias: &str) -> String {
        let column = match self.rng.one_in(2) {
            true => table.key_order()[0],
            false => table.column("a").unwrap_or_else(|| self.column(table)),
        };
        let (c, item) = (column.name, self.item(table, "q"));
        let filter = match self.rng.one_in(2) {
            true => self.by_key(table, "q"),
            false => self.condition(table, "q"),
        };
        let value = self.pick(&["min", "max", ""]);
        match value {
            // More than one row is an error.
            "" => format!("{alias}.{c} = (SELECT q.{c} FROM {item} WHERE {filter})"),
            end => format!("{alias}.{c} = (SELECT {end}(q.{c}) FROM {item} WHERE {filter})"),
        }
    }

    /// A condition that few rows, or some, fulfil.
    pub fn filter(&mut self, table: &'a Table, alias: &str) -> String {
        match self.rng.below(11) {
            0 => self.condition(table, alias),
            1 => {
                let first = self.condition(table, alias);
                format!("{first} AND {}", self.condition(table, alias))
            }
            2 => {
                let by_key = self.by_key(table, alias);
                format!("{by_key} AND {}", self.condition(table, alias))
            }
            3 => {
                let columns = self.row_columns(table);
                let operator = self.pick(&["<", "<=", ">", ">=", "="]);
                self.row_comparison(&columns, alias, operator)
            }
            4 => {
                let (one, other) = (self.by_key(table, alias), self.condition(table, alias));
                let more = self.maybe(|draft| format!(" AND {}", draft.condition(table, alias)));
                format!("({one} OR {other}{more})")
            }
            5 => self.by_subquery(table, alias),
            _ => self.by_key(table, alias),
        }
    }
}
