//! The tables that statements are about, and their rows.

use super::generator::Generator;
use super::scope::Kind;
use strandline_base::rng::Rng;

/// A table; `id` is its key.
pub(super) struct Table {
    pub name: &'static str,
    /// name, type of expressions over it, declaration
    pub columns: &'static [(&'static str, Kind, &'static str)],
    rows: u64,
}

/// Their columns have names in common for USING and NATURAL, and keys of three integer types.
pub(super) const TABLES: [Table; 5] = [
    Table {
        name: "t1",
        columns: &[
            ("id", Kind::Integer, "integer PRIMARY KEY"),
            ("k", Kind::Integer, "integer"),
            ("x", Kind::Integer, "integer"),
            ("n", Kind::Numeric, "numeric(8,2)"),
            ("s", Kind::Text, "text"),
            ("d", Kind::Date, "date"),
            ("f", Kind::Boolean, "boolean"),
        ],
        rows: 12,
    },
    Table {
        name: "t2",
        columns: &[
            ("id", Kind::Bigint, "bigint PRIMARY KEY"),
            ("k", Kind::Bigint, "bigint"),
            ("y", Kind::Integer, "integer"),
            ("n", Kind::Numeric, "numeric(10,3)"),
            ("s", Kind::Text, "text"),
            ("d", Kind::Date, "date NOT NULL"),
            ("g", Kind::Boolean, "boolean"),
        ],
        rows: 9,
    },
    Table {
        name: "t3",
        columns: &[
            ("id", Kind::Integer, "integer PRIMARY KEY"),
            ("k", Kind::Integer, "smallint"),
            ("z", Kind::Bigint, "bigint"),
            ("m", Kind::Numeric, "numeric(6,1)"),
            ("w", Kind::Text, "varchar(10)"),
        ],
        rows: 8,
    },
    Table {
        name: "t4",
        columns: &[
            ("id", Kind::Integer, "integer PRIMARY KEY"),
            ("k", Kind::Integer, "integer NOT NULL"),
            ("x", Kind::Integer, "integer NOT NULL"),
            ("s", Kind::Text, "text NOT NULL"),
        ],
        rows: 10,
    },
    Table {
        name: "t0",
        columns: &[
            ("id", Kind::Integer, "integer PRIMARY KEY"),
            ("k", Kind::Integer, "integer"),
            ("s", Kind::Text, "text"),
        ],
        rows: 0,
    },
];

impl Table {
    fn create(&self) -> String {
        let columns = self.columns.iter();
        let columns: Vec<String> = columns
            .map(|(name, _, declared)| format!("{name} {declared}"))
            .collect();
        format!("CREATE TABLE {} ({})", self.name, columns.join(", "))
    }

    fn insert(&self, generator: &mut Generator) -> Option<String> {
        let rows: Vec<String> = (1..=self.rows)
            .map(|id| {
                let others = self.columns[1..].iter();
                let others = others.map(|(_, kind, declared)| generator.value(*kind, declared));
                let values: Vec<String> = std::iter::once(id.to_string()).chain(others).collect();
                format!("({})", values.join(", "))
            })
            .collect();
        let values = rows.join(", ");
        (!rows.is_empty()).then(|| format!("INSERT INTO {} VALUES {values}", self.name))
    }
}

impl Generator {
    /// A value for a column; NULL once in 6 if the column may hold it.
    pub(super) fn value(&mut self, kind: Kind, declared: &str) -> String {
        if !declared.contains("NOT NULL") && self.rng.one_in(6) {
            return "NULL".to_string();
        }
        match kind {
            Kind::Integer | Kind::Bigint => match self.rng.one_in(5) {
                true => format!("-{}", 1 + self.rng.below(4)),
                false => self.rng.below(7).to_string(),
            },
            Kind::Numeric => {
                let sign = *self.pick(&["", "", "-"]);
                format!("{sign}{}.{}", self.rng.below(7), self.rng.below(4) * 25)
            }
            Kind::Text => format!("'{}'", self.pick(&["a", "b", "ab", "c", "x", "", "B"])),
            Kind::Date => format!("'2024-01-{:02}'", 1 + self.rng.below(9)),
            Kind::Boolean => (*self.pick(&["true", "false"])).to_string(),
        }
    }
}

/// The statements that make the tables of a seed.
pub fn setup(seed: u64) -> Vec<String> {
    let mut generator = Generator::new(Rng::new(seed));
    let mut statements = Vec::new();
    for table in &TABLES {
        statements.push(table.create());
        statements.extend(table.insert(&mut generator));
    }
    statements
}

/// Indexes on every column of the tables, in both directions, and on pairs of columns.
pub fn indexes() -> Vec<String> {
    let mut statements = Vec::new();
    for table in &TABLES {
        let names: Vec<&str> = table.columns.iter().map(|(name, _, _)| *name).collect();
        for (number, pair) in names.windows(2).enumerate() {
            let [first, second] = pair else { continue };
            let (name, options) = match number % 2 {
                0 => (table.name, ""),
                _ => (table.name, " DESC NULLS LAST"),
            };
            statements.push(format!("CREATE INDEX ON {name} ({second}{options})"));
            statements.push(format!(
                "CREATE INDEX ON {name} ({second}{options}, {first})"
            ));
        }
    }
    statements
}
