//! Random typed statements beside PostgreSQL (`tests/src/differential`).
//!
//! `stored_answers_are_given` needs no PostgreSQL: `tests/differential/answers.tsv` holds
//! statements and what PostgreSQL 15 answers. `beside_postgresql` starts a server of its own and
//! compares any number of statements:
//!
//! ```text
//! DIFFERENTIAL_SEEDS=3-9 DIFFERENTIAL_UNITS=2000 \
//!     cargo test -p strandline-tests --test differential -- --ignored --nocapture
//! ```
//!
//! `DIFFERENTIAL_UNIT=17` asks one unit of each seed and shows both answers;
//! `DIFFERENTIAL_FILE=queries.sql` asks the queries of a file, one a line, and shows both answers;
//! `DIFFERENTIAL_WRITE=1` writes `answers.tsv` anew. Failures that only we have stand by class in
//! `tests/differential/known.tsv`; wrong answers and internal errors are never known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strandline_tests::differential::{
    Known, Ours, Outcome, Postgres, Standing, Unit, escaped, indexes, plain, setup, standing,
};

/// The seed and the number of the stored statements.
const STORED: (u64, u64) = (1, 400);

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("differential")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(directory().join(name)).unwrap_or_default()
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    let text = std::env::var("DIFFERENTIAL_SEEDS").unwrap_or_else(|_| "2".to_string());
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let parse = |text: &str| {
        text.parse()
            .expect("DIFFERENTIAL_SEEDS is a seed or `first-last`")
    };
    parse(first)..=parse(last)
}

/// What has been compared so far.
struct Tally {
    known: Known,
    counts: BTreeMap<String, u64>,
    failures: Vec<String>,
}

impl Tally {
    fn new() -> Self {
        Self {
            known: Known::parse(&read("known.tsv")),
            counts: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// Counts a unit; `place` says how to run it again.
    fn add(&mut self, place: &str, unit: &Unit, ours: &Outcome, wanted: &(String, String)) {
        let standing = standing(ours, wanted, unit);
        let class = match standing {
            Standing::Refused => self.known.name_of(ours, unit),
            _ => None,
        };
        let name = match class {
            Some(name) => format!("known: {name}"),
            None => format!("{standing:?}").to_lowercase(),
        };
        *self.counts.entry(name).or_default() += 1;
        let is_failure = match standing {
            Standing::Same | Standing::Width | Standing::Accepted => false,
            Standing::Refused => class.is_none(),
            Standing::Differs | Standing::Broken => true,
        };
        if is_failure {
            let answer = match ours.error() {
                Some((state, message)) => format!("{state} {message}"),
                None => format!("{:?}", ours.texts(unit)),
            };
            let change = unit.change.as_deref().map(|c| format!("{c};\n"));
            self.failures.push(format!(
                "{standing:?} {place}\n{}{}\n  ours:       {answer}\n  postgresql: {wanted:?}",
                change.unwrap_or_default(),
                unit.query
            ));
        }
    }

    fn finish(self) {
        let total: u64 = self.counts.values().sum();
        println!("{total} statements: {:#?}", self.counts);
        assert!(
            self.failures.is_empty(),
            "{} failures\n\n{}",
            self.failures.len(),
            self.failures.join("\n\n")
        );
    }
}

#[test]
fn stored_answers_are_given() {
    give_stored_answers(&[]);
}

#[test]
fn stored_answers_are_given_by_indexes() {
    let mut more = indexes();
    more.push("SET enable_seqscan = off".to_string());
    give_stored_answers(&more);
}

/// Asks the stored statements of the stored tables after `more` statements.
fn give_stored_answers(more: &[String]) {
    let text = read("answers.tsv");
    let (setup, units): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| !line.contains('\t'));
    assert!(!units.is_empty(), "nothing is stored");
    let mut setup: Vec<String> = setup.into_iter().map(str::to_string).collect();
    setup.extend_from_slice(more);
    let mut ours = Ours::new(&setup).expect("the tables are made");
    let mut tally = Tally::new();
    for (number, line) in units.into_iter().enumerate() {
        let parts: Vec<&str> = line.split('\t').collect();
        let [change, query, first, second] = parts[..] else {
            panic!("a line has four parts: {line}");
        };
        let unit = Unit {
            change: (!change.is_empty()).then(|| plain(change)),
            query: plain(query),
        };
        let answer = ours.ask(&unit);
        let wanted = (first.to_string(), second.to_string());
        let place = format!("answers.tsv, statement {number}");
        tally.add(&place, &unit, &answer, &wanted);
    }
    tally.finish();
}

#[test]
fn a_seed_gives_the_same_statements() {
    let units = |seed| (0..50).map(|i| Unit::new(seed, i)).collect::<Vec<_>>();
    assert_eq!(units(7), units(7));
    assert_ne!(units(7), units(8));
    assert_eq!(setup(7), setup(7));
}

#[test]
#[ignore = "needs PostgreSQL"]
fn beside_postgresql() {
    let server = Postgres::start().expect("PostgreSQL starts");
    if std::env::var_os("DIFFERENTIAL_WRITE").is_some() {
        return write(&server);
    }
    let count = number("DIFFERENTIAL_UNITS").unwrap_or(1000);
    let file = std::env::var("DIFFERENTIAL_FILE").ok();
    let file = file.map(|path| std::fs::read_to_string(path).expect("a readable file"));
    let numbers: Vec<u64> = match (&file, number("DIFFERENTIAL_UNIT")) {
        (Some(text), _) => (0..text.lines().count() as u64).collect(),
        (None, Some(only)) => vec![only],
        (None, None) => (0..count).collect(),
    };
    let shows = file.is_some() || numbers.len() == 1;
    let mut tally = Tally::new();
    for seed in seeds() {
        let setup = setup(seed);
        let units: Vec<Unit> = match &file {
            Some(text) => text.lines().map(Unit::of_query).collect(),
            None => numbers.iter().map(|n| Unit::new(seed, *n)).collect(),
        };
        let wanted = server.ask(&setup, &units).expect("PostgreSQL answers");
        let mut ours = Ours::new(&setup).expect("the tables are made");
        for ((number, unit), wanted) in numbers.iter().zip(&units).zip(&wanted) {
            let answer = ours.ask(unit);
            let place = format!("DIFFERENTIAL_SEEDS={seed} DIFFERENTIAL_UNIT={number}");
            tally.add(&place, unit, &answer, &wanted.texts(unit));
            if shows {
                println!("{unit:#?}\nours: {answer:?}\nPostgreSQL: {wanted:?}");
            }
        }
    }
    tally.finish();
}

fn write(server: &Postgres) {
    let (seed, count) = STORED;
    let setup = setup(seed);
    let units: Vec<Unit> = (0..count).map(|n| Unit::new(seed, n)).collect();
    let wanted = server.ask(&setup, &units).expect("PostgreSQL answers");
    let mut lines = setup;
    for (unit, wanted) in units.iter().zip(&wanted) {
        let change = escaped(unit.change.as_deref().unwrap_or_default());
        let (first, second) = wanted.texts(unit);
        lines.push(format!(
            "{change}\t{}\t{first}\t{second}",
            escaped(&unit.query)
        ));
    }
    let path = directory().join("answers.tsv");
    std::fs::write(path, lines.join("\n") + "\n").expect("written");
}
