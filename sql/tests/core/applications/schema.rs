//! Random tables, and values of small domains, so that keys and conditions meet rows.

use datafusion::scalar::ScalarValue;
use strandline_base::rng::Rng;

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Base {
    Int,
    Big,
    Text,
}

/// The type of a column, and the domain of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// part of a key; so many values are in use, a few more are drawn
    Id(Base, u64),
    Int,
    Small,
    Big,
    /// a bigint with many values, for unique columns
    Wide,
    Numeric,
    Text,
    Varchar,
    Stamp,
    Bool,
}

/// Midnight of 2024-01-01, in microseconds since 1970.
const YEAR_US: i64 = 1_704_067_200_000_000;

const WORDS: [&str; 11] = [
    "", "a", "ab", "abc", "abd", "b", "Ab", "it's", "Ünï", "z%", "a_b",
];

pub fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.below(from.len() as u64) as usize]
}

/// A moment of January 2024, as SQL writes it.
pub fn moment(us: i64) -> String {
    let hours = (us - YEAR_US) / 3_600_000_000;
    let (day, hour) = (1 + hours / 24, hours % 24);
    format!("2024-01-{day:02} {hour:02}:00:00")
}

fn number(kind: Kind, rng: &mut Rng) -> i64 {
    let outlier = rng.one_in(60);
    match kind {
        Kind::Id(_, domain) => rng.below(domain * 6 / 5) as i64,
        Kind::Wide => rng.below(400) as i64,
        Kind::Small if outlier => i64::from(i16::MAX),
        Kind::Int if outlier => i64::from(i32::MAX),
        Kind::Big if outlier => i64::MAX,
        _ => rng.below(24) as i64 - 4,
    }
}

impl Kind {
    pub fn sql_type(self) -> &'static str {
        match self {
            Self::Id(Base::Int, _) | Self::Int => "integer",
            Self::Id(Base::Big, _) | Self::Big | Self::Wide => "bigint",
            Self::Small => "smallint",
            Self::Numeric => "numeric(9,2)",
            Self::Id(Base::Text, _) | Self::Text => "text",
            Self::Varchar => "varchar(8)",
            Self::Stamp => "timestamp",
            Self::Bool => "boolean",
        }
    }

    pub fn is_integer(self) -> bool {
        matches!(
            self,
            Self::Id(Base::Int | Base::Big, _) | Self::Int | Self::Small | Self::Big | Self::Wide
        )
    }

    pub fn is_text(self) -> bool {
        matches!(self, Self::Id(Base::Text, _) | Self::Text | Self::Varchar)
    }

    /// A value as a parameter and as it is written.
    pub fn draw(self, rng: &mut Rng) -> (ScalarValue, String) {
        match self {
            Self::Id(Base::Text, _) => {
                let text = format!("k{}", number(self, rng));
                (ScalarValue::Utf8(Some(text.clone())), format!("'{text}'"))
            }
            Self::Text | Self::Varchar => {
                let text = *pick(rng, &WORDS);
                let literal = format!("'{}'", text.replace('\'', "''"));
                (ScalarValue::Utf8(Some(text.to_string())), literal)
            }
            Self::Numeric => {
                let quarters = rng.below(48) as i128 - 8;
                let value = ScalarValue::Decimal128(Some(quarters * 25), 9, 2);
                (value, format!("{:.2}", quarters as f64 / 4.0))
            }
            Self::Stamp => {
                let hours = rng.below(72) as i64;
                let us = YEAR_US + hours * 3_600_000_000;
                let moment = moment(us);
                let literal = match rng.below(3) {
                    0 => format!("timestamp '{moment}'"),
                    1 => format!("'{moment}'::timestamp"),
                    _ => format!("CAST('{moment}' AS timestamp)"),
                };
                (ScalarValue::TimestampMicrosecond(Some(us), None), literal)
            }
            Self::Bool => {
                let value = rng.one_in(2);
                (ScalarValue::Boolean(Some(value)), value.to_string())
            }
            Self::Small => {
                let value = number(self, rng);
                (ScalarValue::Int16(Some(value as i16)), value.to_string())
            }
            Self::Id(Base::Int, _) | Self::Int => {
                let value = number(self, rng);
                (ScalarValue::Int32(Some(value as i32)), value.to_string())
            }
            Self::Id(Base::Big, _) | Self::Big | Self::Wide => {
                let value = number(self, rng);
                (ScalarValue::Int64(Some(value)), value.to_string())
            }
        }
    }
}

pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    definition: String,
}

impl Column {
    fn new(name: &'static str, kind: Kind, constraints: &str) -> Self {
        Self {
            name,
            kind,
            definition: format!("{name} {}{constraints}", kind.sql_type()),
        }
    }
}

/// A table whose key are its first columns.
pub struct Table {
    pub name: &'static str,
    pub columns: Vec<Column>,
    key: usize,
    /// whether its primary key names the columns of the key backwards
    is_reversed: bool,
}

impl Table {
    pub fn key(&self) -> &[Column] {
        &self.columns[..self.key]
    }

    /// The key's columns in the order of the primary key.
    pub fn key_order(&self) -> Vec<&Column> {
        let mut key: Vec<&Column> = self.key().iter().collect();
        if self.is_reversed {
            key.reverse();
        }
        key
    }

    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    fn create(&self) -> String {
        let columns: Vec<&str> = self.columns.iter().map(|c| c.definition.as_str()).collect();
        let key: Vec<&str> = self.key_order().iter().map(|column| column.name).collect();
        let (name, columns, key) = (self.name, columns.join(", "), key.join(", "));
        format!("CREATE TABLE {name} ({columns}, PRIMARY KEY ({key}))")
    }

    fn insert(&self, rng: &mut Rng, rows: &[Vec<String>]) -> String {
        let rows = rows.iter().map(|key| {
            let others = self.columns[self.key..].iter().map(|column| {
                let is_null = rng.one_in(6) && !column.definition.contains("NOT NULL");
                // No parent is left out.
                let is_null = is_null || column.name == "u" && self.name == "parent";
                match is_null {
                    true => "NULL".to_string(),
                    // Within the CHECK constraint.
                    false if column.kind == Kind::Int => rng.below(20).to_string(),
                    false => column.kind.draw(rng).1,
                }
            });
            let values: Vec<String> = key.iter().cloned().chain(others).collect();
            format!("({})", values.join(", "))
        });
        let rows: Vec<String> = rows.collect();
        let (name, rows) = (self.name, rows.join(", "));
        format!("INSERT INTO {name} VALUES {rows} ON CONFLICT DO NOTHING")
    }
}

/// Columns besides keys.
const OTHERS: [(&str, Kind); 8] = [
    ("a", Kind::Int),
    ("s", Kind::Text),
    ("b", Kind::Big),
    ("w", Kind::Small),
    ("m", Kind::Numeric),
    ("v", Kind::Varchar),
    ("d", Kind::Stamp),
    ("f", Kind::Bool),
];

fn others(rng: &mut Rng) -> Vec<Column> {
    let mut columns = Vec::new();
    for (no, (name, kind)) in OTHERS.into_iter().enumerate() {
        if no > 1 && rng.one_in(4) {
            continue;
        }
        let mut constraints = String::new();
        if rng.one_in(3) {
            constraints += &format!(" DEFAULT {}", kind.draw(rng).1);
            if rng.one_in(2) {
                constraints += " NOT NULL";
            }
        }
        if kind == Kind::Int && rng.one_in(2) {
            constraints += &format!(" CHECK ({name} < 25)");
        }
        let at = rng.below(columns.len() as u64 + 1) as usize;
        columns.insert(at, Column::new(name, kind, &constraints));
    }
    if rng.one_in(2) {
        columns.push(Column::new("u", Kind::Wide, " UNIQUE"));
    }
    columns
}

/// Three tables: `parent`, whose rows have a parent `up`; its `line`s, with a composite key; and
/// `event`s, with a key of some form, that refer to a parent `r`.
pub fn tables(rng: &mut Rng) -> Vec<Table> {
    let base = *pick(rng, &[Base::Int, Base::Big, Base::Text]);
    let size = if rng.one_in(3) {
        300
    } else {
        30 + rng.below(40)
    };
    let id = Kind::Id(base, size);
    let event = match rng.below(3) {
        0 => vec![Column::new("id", Kind::Id(Base::Big, 150), "")],
        1 => vec![
            Column::new("day", Kind::Stamp, ""),
            Column::new("id", Kind::Id(Base::Int, 5), ""),
        ],
        _ => vec![
            Column::new("g", Kind::Id(Base::Text, 5), ""),
            Column::new("day", Kind::Stamp, ""),
            Column::new("id", Kind::Id(Base::Big, 3), ""),
        ],
    };
    let keys = [
        ("parent", vec![Column::new("k", id, "")], "up"),
        (
            "line",
            vec![
                Column::new("k", id, ""),
                Column::new("n", Kind::Id(Base::Int, 6), ""),
            ],
            "",
        ),
        ("event", event, "r"),
    ];
    let mut tables = Vec::new();
    for (name, mut columns, reference) in keys {
        let key = columns.len();
        columns.extend(others(rng));
        if !reference.is_empty() {
            columns.push(Column::new(reference, id, ""));
        }
        tables.push(Table {
            name,
            columns,
            key,
            is_reversed: rng.one_in(4),
        });
    }
    tables
}

/// Columns or expressions of indexes, and the columns that they need.
const INDEXES: [(&str, &[&str]); 12] = [
    ("(a)", &["a"]),
    ("(s)", &["s"]),
    ("(s, a)", &["s", "a"]),
    ("(a DESC, s)", &["s", "a"]),
    ("(up)", &["up"]),
    ("(r)", &["r"]),
    ("(r, a)", &["r", "a"]),
    ("(d)", &["d"]),
    ("(m, w)", &["m", "w"]),
    ("(a) WHERE f", &["a", "f"]),
    ("(lower(s))", &["s"]),
    ("(w, v DESC NULLS LAST)", &["w", "v"]),
];

/// A statement that makes a random index with a number in its name; None: no index fits.
pub fn index(rng: &mut Rng, table: &Table, no: u64) -> Option<String> {
    let (what, columns) = pick(rng, &INDEXES);
    let fits = columns.iter().all(|name| table.column(name).is_some());
    fits.then(|| format!("CREATE INDEX i{no} ON {} {what}", table.name))
}

/// The statements that make and fill the tables.
pub fn script(rng: &mut Rng, tables: &[Table]) -> Vec<String> {
    let mut script: Vec<String> = tables.iter().map(Table::create).collect();
    for (no, table) in tables.iter().enumerate() {
        let first = *pick(rng, &["a", "a, s", "s, a", "a DESC"]);
        script.push(format!("CREATE INDEX f{no} ON {} ({first})", table.name));
        script.extend((0..4).filter_map(|i| index(rng, table, no as u64 * 10 + i)));
    }
    for table in tables {
        let rows = match table.key()[0].kind {
            // Each parent is there, for the foreign keys.
            Kind::Id(base, size) if table.name == "parent" => {
                let id = |n: u64| match base {
                    Base::Text => format!("'k{n}'"),
                    _ => n.to_string(),
                };
                (0..size * 6 / 5).map(|n| vec![id(n)]).collect()
            }
            _ => {
                let row = |_| table.key().iter().map(|c| c.kind.draw(rng).1).collect();
                (0..120).map(row).collect::<Vec<Vec<String>>>()
            }
        };
        script.extend(rows.chunks(40).map(|rows| table.insert(rng, rows)));
    }
    if rng.one_in(2) {
        let action = *pick(rng, &["", " ON DELETE CASCADE"]);
        script.push(format!(
            "ALTER TABLE line ADD FOREIGN KEY (k) REFERENCES parent{action}"
        ));
    }
    if rng.one_in(3) {
        script.push(
            "ALTER TABLE event ADD FOREIGN KEY (r) REFERENCES parent ON DELETE SET NULL".into(),
        );
    }
    script
}
