//! `strandline demo`: load TPC-H; run transactions and analytical queries over the same data at
//! the same time; ask the past; kill a process in mid-transaction; recover; check.
//!
//! Every printed figure was measured in this run, on this machine. The queries have the same share
//! of the machine in both measurements: all processors but one. That one is left to the
//! transactions, and is idle while the queries run alone.

/// Prints a line; an error if the output has no reader any more.
macro_rules! say {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout(), $($argument)*)
            .map_err(|error| crate::session::Error::io("output", &error))?
    }};
}

mod crash;
mod load;
mod mixed;
mod orders;
mod place;
mod results;
mod schema;
mod tiers;
mod victim;

pub use crash::victim;
pub use tiers::{Data as TiersData, victim as tiers_victim};

use crate::args::DemoArgs;
use crate::render::{self, PrintError, Style};
use crate::session::{self, Connection, Database, Error, Result};
use crash::LastCommit;
use load::Loaded;
use mixed::{Alone, Answers, Mixed, TABLE_COLUMNS};
use orders::Kind;
use place::{OnDisk, Place, megabytes};
use results::{median, percentile, rows};
use schema::QUERIES;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs the demo. Returns false if a result was not as promised; the output then says which.
pub fn run(args: &DemoArgs) -> Result<bool> {
    if args.tiers {
        return tiers::run(args);
    }
    let place = Place::new(args.path.as_deref())?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    heading(&format!(
        "Strandline demo: TPC-H at scale factor {}, seed {}, {cpus} processors, in {}",
        args.sf,
        args.seed,
        place.path().display()
    ))?;
    let builder = session::configure(Database::builder(place.path()), args.open);
    let database = builder.query_threads(cpus.saturating_sub(1)).build()?;
    let mut connection = database.connect();
    let loaded = stage_load(&mut connection, args.sf, place.path())?;
    orders::open_ledger(&mut connection)?;
    let alone = stage_alone(&mut connection)?;
    let before = connection.query("SELECT now()", ())?.single::<String>()?;
    let merges_before = merges(&database);
    let mixed = stage_mixed(&database, args, &alone)?;
    let merges = merges(&database) - merges_before;
    let on_disk = stage_sizes(&database, place.path(), &loaded, merges)?;
    let same = stage_past(&mut connection, &before, &alone.answers)?;
    drop(connection);
    database.close()?;
    drop(database);
    let (recovered, database) = stage_crash(place.path(), args)?;
    let sound = stage_check(&database)?;
    database.close()?;
    let all = Summary {
        loaded,
        alone,
        mixed,
        merges,
        on_disk,
        recovered,
    };
    heading("What this showed")?;
    if same && sound {
        say!("{}", wrapped(&all.paragraph()));
    } else {
        say!("Not everything was as promised; see DIFFERENT and DAMAGE above.");
    }
    if let Place::Given(path) = &place {
        say!(
            "\nThe database stays in {0}: strandline {0}",
            path.display()
        );
    }
    Ok(same && sound)
}

fn heading(text: &str) -> Result<()> {
    say!(
        "\n{text}\n{}",
        "=".repeat(render::display_width(text).min(100))
    );
    Ok(())
}

fn stage_load(connection: &mut Connection, sf: f64, path: &Path) -> Result<Loaded> {
    heading("1. Load")?;
    let loaded = load::run(connection, sf)?;
    for (name, rows) in &loaded.tables {
        say!("  {name:10} {rows:>12} rows");
    }
    let seconds = loaded.elapsed.as_secs_f64();
    say!(
        "{} rows generated, loaded and durable in {seconds:.1} s: {:.0} rows/s; {} of values take \
         {} on disk",
        loaded.rows(),
        loaded.rows() as f64 / seconds,
        megabytes(loaded.raw_bytes),
        OnDisk::measure(path)?
    );
    Ok(loaded)
}

fn stage_alone(connection: &mut Connection) -> Result<Alone> {
    heading("2. Four analytical queries, nothing else running")?;
    let alone = mixed::alone(connection)?;
    for (i, query) in QUERIES.iter().enumerate() {
        let latencies = &alone.latencies[i];
        say!(
            "  {:4} {:>8.1} ms, median of {}",
            query.name,
            median(latencies),
            latencies.len()
        );
    }
    mixed::audit(connection)?;
    say!("Every order's total is the sum of its lines.");
    Ok(alone)
}

fn stage_mixed(database: &Database, args: &DemoArgs, alone: &Alone) -> Result<Mixed> {
    heading("3. The same queries while orders are entered, changed and cancelled")?;
    let mixed = mixed::run(database, args.seed, Duration::from_secs(args.seconds))?;
    let written = &mixed.written;
    let kinds: Vec<String> = Kind::ALL
        .iter()
        .zip(written.kinds)
        .map(|(kind, count)| format!("{count} {}", kind.label()))
        .collect();
    say!(
        "One thread made {} transactions in {:.1} s: {:.0} per second ({}); from the first \
         statement to the {} commit {:.3} ms in the median, {:.3} ms for 99 %.",
        written.transactions(),
        written.elapsed.as_secs_f64(),
        written.per_second(),
        kinds.join(", "),
        if args.open.is_synchronous() {
            "durable"
        } else {
            "asynchronous"
        },
        median(&written.latencies),
        percentile(&written.latencies, 0.99)
    );
    say!("Another ran the queries (milliseconds):\n");
    let table = mixed::table(alone, &mixed.read);
    print_table(&TABLE_COLUMNS, &table)?;
    say!(
        "\nAge is that of the newest transaction in the query's snapshot (its row in table \
         demo_ledger\nsays when it was entered), when the query began and when its answer was \
         there.\nIn {} audits between the queries, each in one snapshot, every order's total was \
         the sum of its\nlines, and orders and lines were exactly as many as the ledger said.",
        mixed.read.audits
    );
    Ok(mixed)
}

/// Ranges whose updates have been merged into their columns since the database was opened.
fn merges(database: &Database) -> u64 {
    let counters = database.counters();
    counters
        .iter()
        .find(|(name, _)| *name == "merged_ranges")
        .map_or(0, |(_, count)| *count)
}

/// Measures and prints the files' sizes after the transactions, before and after a checkpoint.
fn stage_sizes(database: &Database, path: &Path, loaded: &Loaded, merges: u64) -> Result<OnDisk> {
    let before = OnDisk::measure(path)?;
    database.checkpoint()?;
    let after = OnDisk::measure(path)?;
    say!(
        "{merges} ranges were merged meanwhile. On disk: {before}, after a checkpoint {after};\n{} \
         of values had been loaded.",
        megabytes(loaded.raw_bytes)
    );
    Ok(after)
}

/// Runs the queries as of the moment before the transactions. Returns true if the answers are the
/// same.
fn stage_past(connection: &mut Connection, moment: &str, answers: &Answers) -> Result<bool> {
    heading("4. The past")?;
    say!("Before the first transaction it was {moment}. The queries AS OF that moment:");
    let mut all_same = true;
    for (query, then) in QUERIES.iter().zip(answers) {
        let past = rows(connection, &query.as_of(moment))?;
        let now = rows(connection, &query.now())?;
        let same = past == *then;
        all_same &= same;
        say!(
            "  {:4} {} (rows: {}); today's answer is {}",
            query.name,
            if same {
                "OK, exactly the answer given then"
            } else {
                "DIFFERENT"
            },
            past.len(),
            if now == *then {
                "the same"
            } else {
                "another one"
            }
        );
        if !same {
            say!("       then {then:?}\n       as of {past:?}");
        }
    }
    Ok(all_same)
}

fn stage_crash(path: &Path, args: &DemoArgs) -> Result<(crash::Recovered, Database)> {
    heading("5. Kill")?;
    let (recovered, database) = crash::run(path, args.open, args.seed.wrapping_add(1))?;
    let last = match recovered.last {
        LastCommit::NoneUnderWay => "No commit was under way at that moment.",
        LastCommit::Survived => "The commit under way at that moment is there, whole.",
        LastCommit::Lost => "The commit under way at that moment left nothing behind.",
    };
    say!(
        "A second process entered transactions, one of which stayed open with half an order \
         written, and was\nkilled (SIGKILL). The database was open again after {:.3} s. All {} \
         acknowledged commits are there ({}\norders compared), the half order is not. {last}",
        recovered.recovery.as_secs_f64(),
        recovered.acknowledged,
        recovered.orders
    );
    Ok((recovered, database))
}

fn stage_check(database: &Database) -> Result<bool> {
    heading("6. Check")?;
    let begin = Instant::now();
    let damage = database.check()?;
    for line in &damage {
        say!("  DAMAGE:  {line}");
    }
    say!(
        "{} in {:.1} s.",
        if damage.is_empty() {
            "Every checksum, row-map entry, index entry and constraint verified, no damage"
        } else {
            "Damage found"
        },
        begin.elapsed().as_secs_f64()
    );
    Ok(damage.is_empty())
}

fn print_table(columns: &[&str], table: &[Vec<String>]) -> Result<()> {
    let style = Style {
        row_count: false,
        ..Style::table()
    };
    let numbers = vec![true; columns.len()];
    let mut out = io::stdout().lock();
    render::print_text(None, columns, &numbers, table, &style, &mut out).map_err(
        |error| match error {
            PrintError::Query(error) => error,
            PrintError::Output(error) => Error::io("output", &error),
        },
    )
}

/// The values that the closing paragraph quotes.
struct Summary {
    loaded: Loaded,
    alone: Alone,
    mixed: Mixed,
    merges: u64,
    on_disk: OnDisk,
    recovered: crash::Recovered,
}

impl Summary {
    fn paragraph(&self) -> String {
        let ratios: Vec<String> = QUERIES
            .iter()
            .enumerate()
            .map(|(i, query)| {
                let (before, during) = (
                    median(&self.alone.latencies[i]),
                    median(&self.mixed.read.latencies[i]),
                );
                format!("{} {:.2}x", query.name, during / before)
            })
            .collect();
        let ages: Vec<f64> = self.mixed.read.ages_at_answer.concat();
        format!(
            "One database, one copy of the data: {} rows were loaded at {:.0} rows a second. \
             Then {:.0} transactions a second inserted, updated and deleted orders for {:.0} \
             seconds while TPC-H queries ran over the very same tables, in {} of the time they \
             take alone; in the median an answer's newest transaction was {:.0} ms old when the \
             answer was there. {} merges of ranges folded changes into the columns \
             meanwhile; {} audits found every snapshot consistent. Asked for the moment \
             before the first transaction, the queries gave exactly the answers they had \
             given then. A process killed in mid-transaction lost none of its {} acknowledged \
             commits, recovery took {:.2} seconds, and a check of the whole database found no \
             damage. It takes {} on disk, with {} of loaded values and the history of every \
             change.",
            self.loaded.rows(),
            self.loaded.rows() as f64 / self.loaded.elapsed.as_secs_f64(),
            self.mixed.written.per_second(),
            self.mixed.written.elapsed.as_secs_f64(),
            ratios.join(", "),
            median(&ages),
            self.merges,
            self.mixed.read.audits,
            self.recovered.acknowledged,
            self.recovered.recovery.as_secs_f64(),
            self.on_disk,
            megabytes(self.loaded.raw_bytes)
        )
    }
}

/// `text` in lines of at most 100 columns.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let length = render::display_width(word);
        if width > 0 && width + 1 + length > 100 {
            out.push('\n');
            width = 0;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
    out
}
