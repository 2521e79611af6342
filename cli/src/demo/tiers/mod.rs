//! `strandline demo --tiers`: the same data and work on an emulated hard disk without and with the
//! SSD cache, then a process killed in mid-work and a warm restart.
//!
//! The capacity tier is an emulated disk over a directory, and every read and sync of it waits as
//! long as that disk would. The fast tier is a directory. The key's index is on pages of the
//! capacity tier and many times larger than the memory for pages, as of a large database on a small
//! machine.

mod work;

pub use work::Data;

use super::place::{Place, megabytes};
use super::results::median;
use super::victim::{Victim, report};
use super::{heading, wrapped};
use crate::args::DemoArgs;
use crate::session::{Error, Result, SqlState};
use std::path::Path;
use std::time::{Duration, Instant};
use work::{Cache, Disk, Second, Tiers};

/// Acknowledged commits before the kill.
const PROMISES: usize = 500;
/// Seconds of requests after the kill.
const RESTART_SECONDS: u64 = 5;

/// Runs the demo. Returns false if a result was not as promised; the output then says which.
pub fn run(args: &DemoArgs) -> Result<bool> {
    let place = Place::new(args.path.as_deref())?;
    let path = place.path();
    heading(&format!(
        "Strandline demo of tiers: fast tier in {}, capacity tier on an emulated disk ({})",
        path.display(),
        Disk::LABEL
    ))?;
    let data = stage_load(path, args.rows)?;
    let time = Duration::from_secs(args.seconds);
    let without = stage_work(path, args.seed, time, data, Cache::Off)?;
    let with = stage_work(path, args.seed, time, data, Cache::On)?;
    let (acknowledged, restart, opening) = stage_kill(path, args.seed, data)?;
    let is_sound = stage_check(path, data)?;
    heading("What this showed")?;
    if is_sound {
        let (cold, warm) = (steady(&without), steady(&with));
        let text = format!(
            "The index of {} keys ({}) lies on an emulated hard disk, and memory has {} for its \
             pages. Without the SSD cache {cold:.0} requests a second were served, with a cache \
             of a quarter of the index {warm:.0}: {:.1} times as many. A process that was killed \
             lost none of its {acknowledged} acknowledged commits; the database was open again \
             after {:.2} seconds, and in its first second the cache had {:.0} % of the pages that \
             memory lacked ({} requests; {:.0} % and {} when it began empty). All delays of the \
             disk are emulated: {}.",
            data.rows,
            megabytes(data.index_bytes),
            megabytes(data.page_memory()),
            warm / cold.max(1.0),
            opening.as_secs_f64(),
            100.0 * first(&restart).hits.unwrap_or(0.0),
            first(&restart).requests,
            100.0 * first(&with).hits.unwrap_or(0.0),
            first(&with).requests,
            Disk::LABEL
        );
        say!("{}", wrapped(&text));
    } else {
        say!("Not everything was as promised; see DAMAGE above.");
    }
    Ok(is_sound)
}

/// Loads the table.
fn stage_load(path: &Path, rows: u64) -> Result<Data> {
    heading("1. Load")?;
    let begin = Instant::now();
    let data = work::load(path, rows)?;
    say!(
        "{rows} rows in {:.1} s, without the disk's delays. The key's index takes {} on the \
         capacity tier; memory for its pages: {}; SSD cache: {}.",
        begin.elapsed().as_secs_f64(),
        megabytes(data.index_bytes),
        megabytes(data.page_memory()),
        megabytes(data.cache_bytes())
    );
    Ok(data)
}

fn stage_work(
    path: &Path,
    seed: u64,
    time: Duration,
    data: Data,
    cache: Cache,
) -> Result<Vec<Second>> {
    heading(match cache {
        Cache::Off => "2. Reads and inserts without the SSD cache",
        Cache::On => "3. The same with the SSD cache, which begins empty",
    })?;
    let tiers = Tiers::open(path, data, cache)?;
    let seconds = serve(&tiers, seed, time)?;
    tiers.close()?;
    Ok(seconds)
}

/// Serves requests and prints what each second has brought.
fn serve(tiers: &Tiers, seed: u64, time: Duration) -> Result<Vec<Second>> {
    say!(
        "{} clients; of ten requests nine read a row and one inserts one; of ten keys nine are of \
         the newest tenth.",
        work::CLIENTS
    );
    let mut number = 0;
    tiers.serve(seed, time, &mut |second| {
        number += 1;
        let hits = second.hits.map_or_else(String::new, |share| {
            format!(
                ", {:>3.0} % of the pages that memory lacked were in the cache",
                share * 100.0
            )
        });
        say!(
            "  second {number:>3}: {:>7} requests{hits}",
            second.requests
        );
        Ok(())
    })
}

fn stage_kill(path: &Path, seed: u64, data: Data) -> Result<(usize, Vec<Second>, Duration)> {
    heading("4. Kill and warm restart")?;
    let arguments = [
        format!("--seed={seed}"),
        format!("--tiers={}", data.index_bytes),
        format!("--rows={}", data.rows),
    ];
    let victim = Victim::start(path, &arguments)?;
    let mut keys = Vec::new();
    while keys.len() < PROMISES {
        keys.push(key_of(&victim.next_line()?)?);
    }
    for line in victim.kill()? {
        keys.push(key_of(&line)?);
    }
    let begin = Instant::now();
    let tiers = Tiers::open(path, data, Cache::On)?;
    let opening = begin.elapsed();
    if let Some(lost) = tiers.first_missing(&keys)? {
        let message = format!("row {lost} was acknowledged and is gone");
        return Err(Error::invalid(SqlState::DATA_CORRUPTED, message));
    }
    say!(
        "A second process inserted rows and was killed (SIGKILL). The database was open again \
         after {:.2} s; all {} acknowledged rows are there.",
        opening.as_secs_f64(),
        keys.len()
    );
    let seconds = serve(&tiers, seed + 1, Duration::from_secs(RESTART_SECONDS))?;
    tiers.close()?;
    Ok((keys.len(), seconds, opening))
}

fn key_of(line: &str) -> Result<i64> {
    let key = line
        .trim()
        .strip_prefix("ack ")
        .and_then(|key| key.parse().ok());
    key.ok_or_else(|| Error::internal(format!("the process to be killed says {line:?}")))
}

fn stage_check(path: &Path, data: Data) -> Result<bool> {
    heading("5. Check")?;
    let begin = Instant::now();
    let tiers = Tiers::open(path, data, Cache::On)?;
    let damage = tiers.check()?;
    for line in &damage {
        say!("  DAMAGE:  {line}");
    }
    say!(
        "{} in {:.1} s.",
        match damage.is_empty() {
            true => "Both tiers and the cache verified, no damage",
            false => "Damage found",
        },
        begin.elapsed().as_secs_f64()
    );
    tiers.close()?;
    Ok(damage.is_empty())
}

/// Requests per second in the second half.
fn steady(seconds: &[Second]) -> f64 {
    let half = &seconds[seconds.len() / 2..];
    let requests: Vec<f64> = half.iter().map(|second| second.requests as f64).collect();
    median(&requests)
}

fn first(seconds: &[Second]) -> Second {
    seconds.first().copied().unwrap_or_default()
}

/// The process that the demo kills: it inserts rows for ever and reports each one.
pub fn victim(path: &Path, seed: u64, data: Data) -> Result<()> {
    let tiers = Tiers::open(path, data, Cache::On)?;
    tiers.insert_durably(seed, &mut |key| report(format_args!("ack {key}")))
}
