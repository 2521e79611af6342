//! Queries by indexes give the rows that scans give: random tables, indexes over columns and
//! expressions and with predicates, rows and conditions, between changes, merges, rollbacks and
//! reopenings, in old snapshots, in the past, and for parameters.
//!
//! `INDEX_USE_SEEDS=3-9 cargo test -p strandline-tests --test index_use` runs other seeds.

use std::sync::Arc;
use strandline::{Connection, Database, QueryResult, cell};
use strandline_base::rng::Rng;
use strandline_base::{Clock, ManualClock};
use strandline_device::MemoryDevice;

const START_US: u64 = 1_704_067_200_000_000;
const ROWS: u64 = 400;
const STEPS: u64 = 24;

/// Name, type, and how a value of it is made.
type Column = (&'static str, &'static str, fn(&mut Rng) -> String);

const COLUMNS: [Column; 11] = [
    ("i", "integer", |r| small(r, 40)),
    ("b", "bigint", |r| small(r, 9)),
    ("h", "smallint", |r| small(r, 300)),
    ("n", "numeric(9,2)", |r| {
        format!("{}.{}", small(r, 20), r.below(4) * 25)
    }),
    ("s", "text", |r| format!("'{}'", word(r))),
    ("v", "varchar(8)", |r| format!("'{}'", word(r))),
    ("d", "date", |r| {
        format!("date '2024-01-{:02}'", 1 + r.below(28))
    }),
    ("z", "timestamptz", |r| {
        format!("timestamptz '2024-01-{:02} 10:00:00+00'", 1 + r.below(28))
    }),
    ("f", "double precision", |r| {
        let values = ["0", "-0.0", "1.5", "-2.25", "1e300", "'NaN'"];
        format!("{}::double precision", pick(r, &values))
    }),
    ("t", "boolean", |r| pick(r, &["true", "false"]).to_string()),
    ("c", "char(4)", |r| {
        format!("'{}'", pick(r, &["", "a", "ab", "ab  ", "abab", "z"]))
    }),
];

/// Expressions, which conditions and indexes are about as they are about columns, and the columns
/// that they read.
const EXPRESSIONS: [(&[&str], Column); 10] = [
    (&["s"], ("lower(s)", "text", |r| format!("'{}'", word(r)))),
    (
        &["s", "v"],
        ("(s || v)", "text", |r| format!("'{}'", word(r))),
    ),
    (
        &["v"],
        ("coalesce(v, 'zz')", "text", |r| format!("'{}z'", word(r))),
    ),
    (
        &["c"],
        ("(c || 'x')", "text", |r| {
            format!("'{}x'", pick(r, &["", "a", "ab", "abab"]))
        }),
    ),
    (&["i", "b"], ("(i + b)", "bigint", |r| small(r, 40))),
    (&["i"], ("(i % 7)", "integer", |r| small(r, 8))),
    (
        &["n"],
        ("(n * 2)", "numeric(9,2)", |r| {
            format!("{}.50", small(r, 40))
        }),
    ),
    (
        &["d"],
        ("(d + 3)", "date", |r| {
            format!("date '2024-01-{:02}'", 1 + r.below(28))
        }),
    ),
    (
        &["f", "i"],
        ("(f * i)", "double precision", |r| {
            pick(
                r,
                &[
                    "0::double precision",
                    "'NaN'::double precision",
                    "3::double precision",
                ],
            )
            .to_string()
        }),
    ),
    (
        &["t", "i"],
        ("(t AND i > 3)", "boolean", |r| {
            pick(r, &["true", "false"]).to_string()
        }),
    ),
];

fn pick<'a>(r: &mut Rng, words: &[&'a str]) -> &'a str {
    words[r.below(words.len() as u64) as usize]
}

fn small(r: &mut Rng, below: u64) -> String {
    let value = r.below(below) as i64 - below as i64 / 4;
    value.to_string()
}

fn word(r: &mut Rng) -> String {
    (0..r.below(4))
        .map(|_| pick(r, &["a", "b", "ab", "z"]))
        .collect::<String>()
}

/// A column's value; NULL once in 8.
fn value(r: &mut Rng, column: &Column) -> String {
    match r.one_in(8) {
        true => "NULL".to_string(),
        false => (column.2)(r),
    }
}

fn column<'a>(r: &mut Rng, columns: &'a [Column]) -> &'a Column {
    &columns[r.below(columns.len() as u64) as usize]
}

/// A condition over some columns.
fn condition(r: &mut Rng, columns: &[Column], depth: u64) -> String {
    if depth > 0 && r.below(3) > 0 {
        let (left, right) = (
            condition(r, columns, depth - 1),
            condition(r, columns, depth - 1),
        );
        return format!("({left} {} {right})", pick(r, &["AND", "AND", "OR"]));
    }
    let column = column(r, columns);
    let (name, kind, make) = *column;
    match r.below(9) {
        0 => format!("{name} IS NULL"),
        1 => format!("{name} IS NOT NULL"),
        2 => format!("{name} IN ({}, {}, {})", make(r), make(r), value(r, column)),
        3 => format!("{name} BETWEEN {} AND {}", make(r), make(r)),
        4 if matches!(kind, "text" | "varchar(8)" | "char(4)") => match r.one_in(3) {
            true => format!("starts_with({name}, '{}')", word(r)),
            false => format!("{name} LIKE '{}%{}'", word(r), pick(r, &["", "", "b"])),
        },
        5 if matches!(kind, "integer" | "bigint" | "smallint") => {
            let constants = ["3.5", "4.0", "3000000000", "-70000", "7::smallint"];
            let op = pick(r, &["=", "<", "<=", ">", ">="]);
            format!("{name} {op} {}", pick(r, &constants))
        }
        6 => format!("NOT ({name} = {})", make(r)),
        7 => format!("({name} IS NOT DISTINCT FROM {})", value(r, column)),
        _ => format!(
            "{name} {} {}",
            pick(r, &["=", "=", "<", "<=", ">", ">=", "<>"]),
            make(r)
        ),
    }
}

/// A query that the row executor may take.
fn short_query(r: &mut Rng, columns: &[Column]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| column.0).collect();
    let tests: Vec<String> = (0..r.below(3))
        .map(|_| {
            let column = column(r, columns);
            let (name, _, make) = *column;
            match r.below(5) {
                0 => format!("{name} IN ({}, {}, {})", make(r), make(r), value(r, column)),
                1 => format!("{name} BETWEEN {} AND {}", make(r), make(r)),
                2 => format!("{name} {} {}", pick(r, &["<", "<=", ">", ">="]), make(r)),
                _ => format!("{name} = {}", make(r)),
            }
        })
        .collect();
    let filter = match tests.is_empty() {
        true => String::new(),
        false => format!("WHERE {}", tests.join(" AND ")),
    };
    let by = |r: &mut Rng| {
        let (name, direction) = (pick(r, &names), pick(r, &["", " DESC"]));
        (
            name,
            format!(
                "{name}{direction}{}",
                pick(r, &["", " NULLS FIRST", " NULLS LAST"])
            ),
        )
    };
    let ((a, by_a), (b, by_b)) = (by(r), by(r));
    match r.below(4) {
        0 => format!("SELECT min({a}), max({b}) FROM x {filter}").replace("(t)", "(i)"),
        1 => format!("SELECT * FROM x {filter} ORDER BY id"),
        2 => format!(
            "SELECT {a} FROM x {filter} ORDER BY {by_a} LIMIT {}",
            1 + r.below(20)
        ),
        _ => format!(
            "SELECT {a}, {b} FROM x {filter} ORDER BY {by_a}, {by_b} LIMIT {} OFFSET {}",
            1 + r.below(20),
            r.below(4)
        ),
    }
}

/// A query whose answer does not depend on how it is found. It is about `terms`, and may have one
/// of `predicates` among its conditions.
fn query(r: &mut Rng, terms: &[Column], predicates: &[String], past: &str) -> String {
    let mut conjuncts = Vec::new();
    if !r.one_in(8) {
        conjuncts.push(condition(r, terms, 2));
    }
    if !predicates.is_empty() && r.one_in(3) {
        let at = r.below(predicates.len() as u64) as usize;
        conjuncts.push(format!("({})", predicates[at]));
    }
    let filter = match conjuncts.is_empty() {
        true => String::new(),
        false => format!("WHERE {}", conjuncts.join(" AND ")),
    };
    let ordered: Vec<Column> = terms
        .iter()
        .filter(|term| term.1 != "boolean")
        .copied()
        .collect();
    let (a, b) = (column(r, &ordered).0, column(r, &ordered).0);
    match r.below(6) {
        0 => {
            let mut by = |name| {
                let direction = pick(r, &["", " DESC"]);
                format!(
                    "{name}{direction}{}",
                    pick(r, &["", " NULLS FIRST", " NULLS LAST"])
                )
            };
            let order = format!("{}, {}", by(a), by(b));
            let limit = 1 + r.below(30);
            let offset = r.below(3) * 5;
            format!(
                "SELECT {a}, {b} FROM x{past} {filter} ORDER BY {order} LIMIT {limit} OFFSET {offset}"
            )
        }
        1 => {
            let order = format!("{a}{}", pick(r, &["", " DESC", " NULLS FIRST"]));
            format!(
                "SELECT {a} FROM x{past} {filter} ORDER BY {order} LIMIT {}",
                1 + r.below(9)
            )
        }
        2 => format!("SELECT min({a}), max({b}) FROM x{past} {filter}"),
        3 => {
            let keys: Vec<String> = (0..r.below(12)).map(|_| small(r, 40)).collect();
            let keys = keys.join("), (");
            let keys = if keys.is_empty() {
                "NULL::int".to_string()
            } else {
                keys
            };
            format!(
                "SELECT x.* FROM (VALUES ({keys})) AS k(k) JOIN x{past} ON i = k {filter} \
                 ORDER BY x.id"
            )
        }
        _ => format!("SELECT * FROM x{past} {filter} ORDER BY id"),
    }
}

fn rows(result: &QueryResult) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in result.batches() {
        for row in 0..batch.num_rows() {
            let cells = batch
                .columns()
                .iter()
                .map(|c| cell(c, row).unwrap_or("NULL".into()));
            rows.push(cells.collect::<Vec<_>>().join("|"));
        }
    }
    rows
}

/// One seed's database.
struct Run {
    rng: Rng,
    seed: u64,
    clock: Arc<ManualClock>,
    device: Arc<MemoryDevice>,
    database: Database,
    connection: Connection,
    /// a transaction that keeps a snapshot
    older: Option<Connection>,
    columns: Vec<Column>,
    /// the columns, and expressions over them
    terms: Vec<Column>,
    /// of partial indexes
    predicates: Vec<String>,
    /// per index the columns that it is over
    indexed: Vec<Vec<Column>>,
    /// plans that read entries only
    index_only: usize,
    moments: Vec<String>,
    next_id: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let clock = Arc::new(ManualClock::new(START_US));
        let device = Arc::new(MemoryDevice::new());
        let database = open(&device, &clock);
        let connection = database.connect();
        let columns: Vec<Column> = COLUMNS
            .into_iter()
            .filter(|column| column.0 == "i" || !rng.one_in(3))
            .collect();
        let has = |name: &&str| columns.iter().any(|column| column.0 == *name);
        let expressions = EXPRESSIONS.iter();
        let expressions = expressions.filter(|(reads, _)| reads.iter().all(has));
        let expressions: Vec<Column> = expressions.map(|(_, expression)| *expression).collect();
        let terms = [&columns[..], &expressions].concat();
        let mut run = Self {
            rng,
            seed,
            clock,
            device,
            database,
            connection,
            older: None,
            columns,
            terms,
            predicates: Vec::new(),
            indexed: Vec::new(),
            index_only: 0,
            moments: Vec::new(),
            next_id: 0,
        };
        let declared = run
            .columns
            .iter()
            .map(|(name, kind, _)| format!("{name} {kind}"));
        let declared = declared.collect::<Vec<_>>().join(", ");
        run.execute(&format!(
            "CREATE TABLE x (id integer PRIMARY KEY, {declared})"
        ));
        run.insert(ROWS / 2);
        for number in 0..6 {
            run.create_index(number);
        }
        run.insert(ROWS / 2);
        run
    }

    fn create_index(&mut self, number: u64) {
        let mut names: Vec<&str> = Vec::new();
        for _ in 0..=self.rng.below(3) {
            let name = column(&mut self.rng, &self.terms).0;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let parts = names.iter().map(|name| {
            let direction = pick(&mut self.rng, &["", " DESC"]);
            let nulls = pick(&mut self.rng, &["", " NULLS FIRST", " NULLS LAST"]);
            format!("{name}{direction}{nulls}")
        });
        let parts = parts.collect::<Vec<_>>().join(", ");
        let mut filter = String::new();
        if self.rng.one_in(3) {
            let predicate = condition(&mut self.rng, &self.terms, 1);
            filter = format!(" WHERE {predicate}");
            self.predicates.push(predicate);
        }
        self.execute(&format!("CREATE INDEX x{number} ON x ({parts}){filter}"));
        let columns = self.columns.iter().filter(|c| names.contains(&c.0));
        let columns: Vec<Column> = columns.copied().collect();
        if !columns.is_empty() {
            self.indexed.push(columns);
        }
    }

    /// A query of nothing but columns of an index, in no order.
    fn covered_query(&mut self, past: &str) -> String {
        let at = self.rng.below(self.indexed.len() as u64) as usize;
        let columns = self.indexed[at].clone();
        let names: Vec<&str> = columns.iter().map(|column| column.0).collect();
        let filter = condition(&mut self.rng, &columns, 1);
        let list = match self.rng.below(3) {
            0 => format!("count(*), count({})", names[0]),
            1 => names[0].to_string(),
            _ => names.join(", "),
        };
        format!("SELECT {list} FROM x{past} WHERE {filter}")
    }

    fn execute(&mut self, sql: &str) {
        let done = self.connection.execute(sql, ());
        done.unwrap_or_else(|e| panic!("seed {}: {sql}: {e}", self.seed));
    }

    fn insert(&mut self, count: u64) {
        let rows: Vec<String> = (0..count)
            .map(|_| {
                self.next_id += 1;
                let values: Vec<String> = self
                    .columns
                    .iter()
                    .map(|column| value(&mut self.rng, column))
                    .collect();
                format!("({}, {})", self.next_id, values.join(", "))
            })
            .collect();
        self.execute(&format!("INSERT INTO x VALUES {}", rows.join(", ")));
    }

    fn change(&mut self) {
        let filter = condition(&mut self.rng, &self.terms, 1);
        match self.rng.below(4) {
            0 => self.insert(10),
            1 => {
                let id = self.rng.below(self.next_id);
                let sql =
                    format!("DELETE FROM x WHERE ({filter}) AND id BETWEEN {id} AND {id} + 9");
                self.execute(&sql);
            }
            _ => {
                let column = *column(&mut self.rng, &self.columns);
                let new = value(&mut self.rng, &column);
                let id = self.rng.below(self.next_id);
                let range = format!("id BETWEEN {id} AND {id} + 60");
                let name = column.0;
                let sql = format!("UPDATE x SET {name} = {new} WHERE ({filter}) AND {range}");
                self.execute(&sql);
            }
        }
    }

    /// The answers with indexes wherever they serve, with scans only, and as is chosen.
    fn compare(&mut self, in_older: bool) {
        let past = match (in_older, self.moments.is_empty(), self.rng.one_in(4)) {
            (false, false, true) => {
                let at = self.rng.below(self.moments.len() as u64) as usize;
                format!(" FOR SYSTEM_TIME AS OF '{}'", self.moments[at])
            }
            _ => String::new(),
        };
        let is_covered = !self.indexed.is_empty() && self.rng.one_in(3);
        let sql = match past.is_empty() && self.rng.below(3) == 0 {
            _ if is_covered => self.covered_query(&past),
            true => short_query(&mut self.rng, &self.columns),
            false => query(&mut self.rng, &self.terms, &self.predicates, &past),
        };
        let seed = self.seed;
        let connection = match &mut self.older {
            Some(older) if in_older => older,
            _ => &mut self.connection,
        };
        let mut answer = |indexes: &str, scans: &str| {
            connection.use_row_executor(indexes == "on");
            let set = format!("SET enable_indexscan = {indexes}; SET enable_seqscan = {scans}");
            connection.execute_script(&set).expect("settings");
            let result = connection.query(&sql, ());
            let result = result.unwrap_or_else(|e| panic!("seed {seed}: {sql}: {e}"));
            let mut found = rows(&result);
            if is_covered {
                found.sort();
            }
            if is_covered && (indexes, scans) == ("on", "off") {
                let plan = connection.query(&format!("EXPLAIN {sql}"), ());
                let plan = rows(&plan.expect("a plan")).join("");
                self.index_only += usize::from(plan.contains("IndexOnlyScan"));
            }
            found
        };
        let wanted = answer("off", "on");
        assert_eq!(answer("on", "off"), wanted, "seed {seed}, by index: {sql}");
        assert_eq!(answer("on", "on"), wanted, "seed {seed}, as chosen: {sql}");
    }

    fn compare_parameters(&mut self) {
        let sql = "SELECT id FROM x WHERE i = $1 OR i BETWEEN $2 AND $3 ORDER BY id";
        let prepared = self.connection.prepare(sql).expect("prepared");
        for _ in 0..4 {
            let values =
                [(); 3].map(|()| small(&mut self.rng, 40).parse::<i32>().expect("a number"));
            let values = (values[0], values[1], values[2]);
            let mut answers = ["on", "off"].map(|indexes| {
                let set = format!("SET enable_indexscan = {indexes}; SET enable_seqscan = off");
                self.connection.execute_script(&set).expect("settings");
                rows(
                    &self
                        .connection
                        .query_prepared(&prepared, values)
                        .expect("rows"),
                )
            });
            let [by_index, by_scan] = &mut answers;
            assert_eq!(by_index, by_scan, "seed {}, {values:?}", self.seed);
        }
    }

    fn step(&mut self) {
        self.clock.advance(1_000_000);
        match self.rng.below(12) {
            0 => drop(self.database.merge_all().expect("merged")),
            1 => drop(self.database.checkpoint().expect("a checkpoint")),
            2 => {
                let now = self.connection.query("SELECT CAST(now() AS text)", ());
                self.moments.extend(rows(&now.expect("now")));
                self.clock.advance(1_000_000);
            }
            3 => {
                // Changes of its own that a transaction sees and takes back.
                self.execute("BEGIN");
                self.change();
                self.compare(false);
                self.execute("SAVEPOINT s");
                self.change();
                self.compare(false);
                self.execute("ROLLBACK TO s");
                self.compare(false);
                let end = pick(&mut self.rng, &["COMMIT", "ROLLBACK"]);
                self.execute(end);
            }
            4 => {
                let mut older = self.database.connect();
                older
                    .execute("BEGIN ISOLATION LEVEL REPEATABLE READ", ())
                    .expect("begun");
                older
                    .query("SELECT count(*) FROM x", ())
                    .expect("a snapshot");
                self.older = Some(older);
            }
            5 if self.rng.one_in(3) => {
                self.older = None;
                self.connection = self.database.connect();
                let closed = std::mem::replace(
                    &mut self.database,
                    Database::in_memory().expect("another database"),
                );
                self.connection = self.database.connect();
                closed.close().expect("closed");
                self.database = open(&self.device, &self.clock);
                self.connection = self.database.connect();
            }
            6 => self.compare_parameters(),
            _ => self.change(),
        }
        for _ in 0..3 {
            self.compare(false);
        }
        if self.older.is_some() {
            self.compare(true);
        }
    }
}

fn open(device: &Arc<MemoryDevice>, clock: &Arc<ManualClock>) -> Database {
    let builder = Database::on_device(device.clone()).clock(clock.clone() as Arc<dyn Clock>);
    builder.build().expect("a database")
}

#[test]
fn indexes_find_what_scans_find() {
    let text = std::env::var("INDEX_USE_SEEDS").unwrap_or_else(|_| "1-2".to_string());
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let seed = |text: &str| text.parse::<u64>().expect("a seed");
    for seed in seed(first)..=seed(last) {
        let mut run = Run::new(seed);
        for _ in 0..STEPS {
            run.step();
        }
        assert!(
            run.index_only > 0,
            "seed {seed}: no plan reads entries only"
        );
    }
}
