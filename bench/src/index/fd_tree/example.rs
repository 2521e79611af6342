//! Single points of the group `fdtree` without building the other benchmarks:
//!
//! `cargo run --release -p strandline-index --example fd_tree -- [entries] [requests] [lookups of
//! 100] [random|ascending] [modes] [directory]`, modes joined by commas, such as `fc,ds`; in files
//! of the directory, if one is given, else on the throttled device.
//!
//! Prints a line a run, with counts of what passed to the device.

mod experiment;

use experiment::{Keys, MODES, PAPER_ENTRIES, Run};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use strandline_base::Result;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default| {
        let text = arguments.get(at).and_then(|text| text.parse().ok());
        text.unwrap_or(default)
    };
    let (entries, requests, lookups) = (number(1, 1_000_000), number(2, 1_000_000), number(3, 20));
    let keys = match arguments.get(4).map(String::as_str) {
        Some("ascending") => Keys::Ascending,
        _ => Keys::Random,
    };
    let is_wanted = |name: &&str| match arguments.get(5) {
        Some(modes) => modes.split(',').any(|mode| mode == *name),
        None => true,
    };
    let mut out = std::io::stdout().lock();
    let directory = arguments.get(6).map(Path::new);
    let device = match directory {
        Some(directory) => directory.display().to_string(),
        None => experiment::device(),
    };
    let scale = PAPER_ENTRIES as f64 / entries as f64;
    let divided_by = Run::scaled(scale).scale();
    writeln!(out, "{device}, the paper's head divided by {divided_by:.1}").ok();
    let title = "mode kreq/s worst-modify-ms p999 mean-us worst-lookup-ms reads/req written/modify \
                 syncs images image-KB space before";
    writeln!(out, "{title}").ok();
    for (name, mode) in MODES.into_iter().filter(|(name, _)| is_wanted(name)) {
        let run = Run {
            mode,
            keys,
            requests,
            lookups,
            ..Run::scaled(scale)
        };
        let done = match directory {
            Some(directory) => experiment::in_files(run, &directory.join(name))?,
            None => experiment::run(run)?,
        };
        let counts = &done.counts;
        let images = counts.images.load(Relaxed);
        let line = format!(
            "{name} {:.1} {:.2} {:.3} {:.1} {:.2} {:.3} {:.0} {} {images} {} {} {}",
            done.per_second() / 1e3,
            done.modifications.worst_ms(),
            done.modifications.p999_ms(),
            done.modifications.mean_us(),
            done.lookups.worst_ms(),
            counts.reads.load(Relaxed) as f64 / requests as f64,
            done.written_bytes(),
            counts.syncs.load(Relaxed),
            counts.image_bytes.load(Relaxed) / images.max(1) / 1000,
            done.space_bytes().1,
            done.space_bytes().0,
        );
        writeln!(out, "{line}").ok();
    }
    Ok(())
}
