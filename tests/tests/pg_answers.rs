//! Expressions beside PostgreSQL's answers: `tests/pg_answers/*.tsv`, which `make.py` there asks a
//! PostgreSQL 15 for. Every expression ends as PostgreSQL's answer or as an error. What is refused,
//! and every answer that differs on purpose, stands in `tests/pg_answers/known.tsv`; the list of
//! functions in `docs/sql-reference.md` is made from both.
//!
//! `PG_ANSWERS_WRITE=1 cargo test -p strandline-tests --test pg_answers` writes both files, to be
//! reviewed. `PG_ANSWERS=math` asks the topics whose name contains the text, and compares only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strandline::wire_format::ColumnType;
use strandline::{Connection, Database, cell};
use strandline_device::MemoryDevice;
use strandline_tests::pg_types::{common_name, type_name};

/// What one system says to an expression.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Rows { kind: String, text: String },
    Error(String),
}

struct Question {
    topic: String,
    group: String,
    expression: String,
    wanted: Answer,
}

/// How our answer stands to PostgreSQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// the same answer, or both an error
    Same,
    /// PostgreSQL has an answer, we have an error
    Refused,
    /// PostgreSQL has an error, we have an answer
    Accepted,
    /// both have an answer
    Differs,
    /// a fault of ours
    Broken,
}

impl Standing {
    fn word(self) -> &'static str {
        match self {
            Standing::Same => "same",
            Standing::Refused => "refused",
            Standing::Accepted => "accepted",
            Standing::Differs => "differs",
            Standing::Broken => "broken",
        }
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("pg_answers")
}

fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => out.push(match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            }),
            c => out.push(c),
        }
    }
    out
}

fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    text.replace('\t', "\\t").replace('\r', "\\r")
}

fn questions() -> Vec<Question> {
    let wanted = std::env::var("PG_ANSWERS").unwrap_or_default();
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory())
        .expect("the directory of the answers")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "tsv"))
        .filter(|path| path.file_stem().is_some_and(|s| s != "known"))
        .collect();
    files.sort();
    let mut questions = Vec::new();
    for file in files {
        let topic = file
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if !topic.contains(&wanted) {
            continue;
        }
        let mut group = String::new();
        for line in std::fs::read_to_string(&file).expect("a text").lines() {
            if let Some(name) = line.strip_prefix("# ") {
                group = name.to_string();
                continue;
            }
            let (expression, answer) = line.split_once('\t').expect("an answer");
            questions.push(Question {
                topic: topic.clone(),
                group: group.clone(),
                expression: plain(expression),
                wanted: match (answer.strip_prefix('!'), answer.split_once('\t')) {
                    (Some(code), None) => Answer::Error(code.to_string()),
                    (_, Some((kind, text))) => Answer::Rows {
                        kind: kind.to_string(),
                        text: text.to_string(),
                    },
                    _ => panic!("no answer: {line}"),
                },
            });
        }
    }
    questions
}

fn ask(connection: &mut Connection, expression: &str) -> Result<Answer, String> {
    let sql = format!("SELECT {expression}");
    let asked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| connection.query(&sql, ())));
    let result = match asked {
        Err(_) => return Err("panic".to_string()),
        Ok(Err(error)) => {
            let code = error.sqlstate().0.to_string();
            return match code.as_str() {
                "XX000" => Err(error.to_string()),
                _ => Ok(Answer::Error(code)),
            };
        }
        Ok(Ok(result)) => result,
    };
    let schema = result.schema();
    let Some(field) = schema.fields().first() else {
        return Ok(Answer::Rows {
            kind: String::new(),
            text: "(no columns)".to_string(),
        });
    };
    let mut texts = Vec::new();
    for batch in result.batches() {
        for row in 0..batch.num_rows() {
            let text = cell(batch.column(0), row);
            texts.push(text.map_or("\\N".to_string(), |text| escaped(&text)));
        }
    }
    if texts.is_empty() {
        texts.push("(no rows)".to_string());
    }
    Ok(Answer::Rows {
        kind: type_name(ColumnType::of(field).oid),
        text: texts.join("|"),
    })
}

fn same_type(ours: &str, wanted: &str) -> bool {
    common_name(ours) == common_name(wanted)
}

/// Whether an answer in double precision is PostgreSQL's up to its last digits, which hang on the
/// library that computes it, or on its being a numeric there.
fn same_double(ours: &str, wanted: &str) -> bool {
    let (ours, wanted): (Vec<_>, Vec<_>) = (ours.split('|').collect(), wanted.split('|').collect());
    let near = |ours: &str, wanted: &str| match (ours.parse::<f64>(), wanted.parse::<f64>()) {
        (Ok(ours), Ok(wanted)) => (ours - wanted).abs() <= 2e-15 * wanted.abs(),
        _ => false,
    };
    ours.len() == wanted.len()
        && ours
            .iter()
            .zip(&wanted)
            .all(|(ours, wanted)| ours == wanted || near(ours, wanted))
}

/// The numbers of an array of numerics, each without zeros at its end.
fn without_zeros(text: &str) -> String {
    let items = text
        .trim_matches(['{', '}'])
        .split(',')
        .map(|item| match item.contains('.') {
            true => item.trim_end_matches('0').trim_end_matches('.'),
            false => item,
        });
    items.collect::<Vec<_>>().join(",")
}

/// Whether numerics are equal up to the number of digits that PostgreSQL shows.
fn same_numeric(ours: &str, wanted: &str) -> bool {
    let all = |ours: &str, wanted: &str| {
        let scale = wanted.split_once('.').map_or(0, |(_, digits)| digits.len());
        rounded(ours, scale).is_some_and(|ours| ours == wanted)
    };
    let (ours, wanted): (Vec<_>, Vec<_>) = (ours.split('|').collect(), wanted.split('|').collect());
    ours.len() == wanted.len()
        && ours
            .iter()
            .zip(&wanted)
            .all(|(ours, wanted)| ours == wanted || all(ours, wanted))
}

/// Decimal digits rounded half away from zero to `scale` digits; shorter ones are filled up.
fn rounded(text: &str, scale: usize) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let filled = format!("{fraction:0<scale$}");
    let (kept, lost) = filled.split_at(scale);
    let mut number: Vec<u8> = format!("0{whole}{kept}").into_bytes();
    if lost.bytes().next().is_some_and(|b| b >= b'5') {
        for digit in number.iter_mut().rev() {
            *digit += 1;
            if *digit <= b'9' {
                break;
            }
            *digit = b'0';
        }
    }
    let number = String::from_utf8(number).ok()?;
    let (whole, kept) = number.split_at(number.len() - scale);
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let zero = whole == "0" && kept.bytes().all(|b| b == b'0');
    let sign = if zero { "" } else { sign };
    Some(match scale {
        0 => format!("{sign}{whole}"),
        _ => format!("{sign}{whole}.{kept}"),
    })
}

fn standing(ours: &Result<Answer, String>, wanted: &Answer) -> Standing {
    match (ours, wanted) {
        (Err(_), _) => Standing::Broken,
        (Ok(Answer::Error(_)), Answer::Error(_)) => Standing::Same,
        (Ok(Answer::Error(_)), Answer::Rows { .. }) => Standing::Refused,
        (Ok(Answer::Rows { .. }), Answer::Error(_)) => Standing::Accepted,
        (Ok(Answer::Rows { kind, text }), Answer::Rows { kind: k, text: t }) => {
            let same = match (kind.as_str(), k.as_str()) {
                ("numeric", "numeric") => same_numeric(text, t),
                ("numeric[]", "numeric[]") => without_zeros(text) == without_zeros(t),
                ("double precision", "double precision" | "numeric") => same_double(text, t),
                _ => false,
            };
            match same || same_type(kind, k) && text == t {
                true => Standing::Same,
                false => Standing::Differs,
            }
        }
    }
}

/// The answer with its rows sorted if nothing gives them an order: those of a set operation or of
/// groups come as they are computed.
fn ordered(answer: Answer, expression: &str) -> Answer {
    let expression = expression.to_ascii_lowercase();
    let has = |word: &str| expression.contains(word);
    let unordered = ["union", "intersect", "except", "group by", "distinct"];
    match answer {
        Answer::Rows { kind, text } if unordered.into_iter().any(has) && !has("order by") => {
            let mut rows: Vec<&str> = text.split('|').collect();
            rows.sort_unstable();
            let text = rows.join("|");
            Answer::Rows { kind, text }
        }
        answer => answer,
    }
}

fn shown(answer: &Result<Answer, String>) -> String {
    match answer {
        Ok(Answer::Rows { kind, text }) => format!("{kind} {text}"),
        Ok(Answer::Error(code)) => code.clone(),
        Err(fault) => escaped(fault),
    }
}

#[test]
fn expressions_answer_as_postgresql_does_or_are_refused() {
    let database = Database::on_device(Arc::new(MemoryDevice::new()))
        .build()
        .expect("opens");
    let mut connection = database.connect();
    let questions = questions();
    assert!(!questions.is_empty(), "no topic matches");
    let all = std::env::var_os("PG_ANSWERS").is_none();
    let write = std::env::var_os("PG_ANSWERS_WRITE").is_some();
    let known: BTreeSet<String> = std::fs::read_to_string(directory().join("known.tsv"))
        .unwrap_or_default()
        .lines()
        .map(str::to_string)
        .collect();
    let mut found = Vec::new();
    let mut standings = Vec::new();
    let mut faults = Vec::new();
    for question in &questions {
        let ours = ask(&mut connection, &question.expression);
        let ours = ours.map(|ours| ordered(ours, &question.expression));
        let wanted = ordered(question.wanted.clone(), &question.expression);
        if ours == Err("panic".to_string()) {
            connection = database.connect();
        }
        let standing = standing(&ours, &wanted);
        standings.push(standing);
        if standing == Standing::Same {
            continue;
        }
        let expression = escaped(&question.expression);
        let ours = shown(&ours);
        let line = format!(
            "{}\t{}\t{expression}\t{ours}",
            standing.word(),
            question.topic
        );
        if !known.contains(&line) {
            faults.push(format!("{line}\n    wanted {}", shown(&Ok(wanted))));
        }
        found.push(line);
    }
    let reference = reference(&questions, &standings);
    if write && all {
        std::fs::write(directory().join("known.tsv"), found.join("\n") + "\n").expect("written");
        write_reference(&reference);
    }
    let count = |wanted| standings.iter().filter(|s| **s == wanted).count();
    println!(
        "{} expressions: {} same, {} refused, {} accepted, {} differ, {} broken",
        questions.len(),
        count(Standing::Same),
        count(Standing::Refused),
        count(Standing::Accepted),
        count(Standing::Differs),
        count(Standing::Broken)
    );
    assert!(faults.is_empty() || write, "{}", faults.join("\n"));
    assert_eq!(count(Standing::Broken), 0, "{}", faults.join("\n"));
    if all {
        let gone: Vec<_> = known.iter().filter(|line| !found.contains(line)).collect();
        assert!(gone.is_empty() || write, "no longer so: {gone:#?}");
        assert!(
            documentation().contains(&reference) || write,
            "docs/sql-reference.md is out of date: run with PG_ANSWERS_WRITE=1"
        );
    }
}

const BEGIN: &str = "<!-- made by tests/tests/pg_answers.rs: begin -->\n";
const END: &str = "<!-- made by tests/tests/pg_answers.rs: end -->\n";

fn documentation_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/sql-reference.md")
}

fn documentation() -> String {
    std::fs::read_to_string(documentation_path()).expect("the documentation")
}

fn write_reference(reference: &str) {
    let text = documentation();
    let (before, rest) = text
        .split_once(BEGIN)
        .expect("the mark where the list begins");
    let (_, after) = rest.split_once(END).expect("the mark where the list ends");
    let text = format!("{before}{BEGIN}{reference}{END}{after}");
    std::fs::write(documentation_path(), text).expect("written");
}

/// Per topic which functions and features are right and which are refused.
fn reference(questions: &[Question], standings: &[Standing]) -> String {
    let mut topics: BTreeMap<&str, BTreeMap<&str, BTreeSet<Standing>>> = BTreeMap::new();
    for (question, standing) in questions.iter().zip(standings) {
        // What PostgreSQL refuses and we refuse too says nothing about what there is.
        if *standing == Standing::Same && matches!(question.wanted, Answer::Error(_)) {
            continue;
        }
        let groups = topics.entry(&question.topic).or_default();
        groups.entry(&question.group).or_default().insert(*standing);
    }
    let mut out = String::new();
    for (topic, groups) in topics {
        let only = |wanted: &[Standing], with: Option<Standing>| {
            let names = groups.iter().filter(|(_, found)| {
                found.iter().all(|s| wanted.contains(s)) && with.is_none_or(|w| found.contains(&w))
            });
            let names: Vec<String> = names.map(|(name, _)| format!("`{name}`")).collect();
            names.join(", ")
        };
        let right = only(&[Standing::Same], None);
        let refused = only(&[Standing::Refused], None);
        let partly = only(
            &[Standing::Same, Standing::Refused],
            Some(Standing::Refused),
        );
        let partly: Vec<&str> = partly
            .split(", ")
            .filter(|name| !refused.split(", ").any(|r| r == *name) && !name.is_empty())
            .collect();
        let others: Vec<String> = groups
            .iter()
            .filter(|(_, found)| {
                found.contains(&Standing::Differs) || found.contains(&Standing::Accepted)
            })
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        out.push_str(&format!("\n### {}\n\n", topic.replace('_', " ")));
        for (title, names) in [
            ("As in PostgreSQL", right),
            (
                "As in PostgreSQL, or refused for some arguments",
                partly.join(", "),
            ),
            ("Refused", refused),
            ("Different for some arguments", others.join(", ")),
        ] {
            if !names.is_empty() {
                out.push_str(&format!("* {title}: {names}.\n"));
            }
        }
    }
    out.push('\n');
    out
}
