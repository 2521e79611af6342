//! Throughput over cache size: one line per setting and size.
//! `cargo run --release -p strandline-bench-tpcc --example cache_size -- pc:25 lc:25:80 ...`;
//! `foyer:25` needs `--features foyer`.

use std::time::Duration;

use strandline_bench_tpcc::Scale;
use strandline_bench_tpcc::experiment::{Image, Plan, Running, Setting};
use strandline_storage::ssd_cache::Mode;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = Image::load(Scale::of(5), 1)?;
    println!("database: {} MB", image.size().bytes >> 20);
    for argument in std::env::args().skip(1) {
        let parts: Vec<&str> = argument.split(':').collect();
        let number = |at: usize, default: f64| {
            let part = parts.get(at).and_then(|part| part.parse().ok());
            part.unwrap_or(default)
        };
        let setting = match parts.first().copied().unwrap_or_default() {
            "pc" => Setting::Cached(Mode::Pc),
            "pc2" => Setting::Cached(Mode::Pc2),
            "lc" => Setting::Cached(Mode::Lc),
            "all-ssd" => Setting::AllSsd,
            "foyer" => Setting::Foyer,
            _ => Setting::AllHdd,
        };
        let mut plan = Plan::new(setting, number(1, 0.0));
        plan.cleaning_percent = number(2, 50.0) as u8;
        plan.wait = Duration::from_millis(number(3, 1_200.0) as u64);
        let mut running = Running::warm(&image, plan)?;
        running.measure(Duration::from_secs(4), true)?;
        let window = running.measure(Duration::from_secs(20), true)?;
        running.check()?;
        println!(
            "{argument}: {:.0} tpmC, response {:.1} ms, hits {:.2}, busy: processor {:.2}, \
             ssd {:.2}, hdd {:.2}, late {:.2} ms, checkpoints {:.1?}, {:?}, {:?}",
            window.tpmc(),
            window.timeline.response_ms(),
            window.cache_hits,
            window.processor_busy,
            window.ssd_busy,
            window.hdd_busy,
            window.late_ms,
            window.checkpoints,
            window.void(),
            window.cache,
        );
        let by_second: Vec<u64> = window
            .timeline
            .by_second()
            .iter()
            .map(|n| *n as u64)
            .collect();
        println!("  {by_second:?}");
    }
    Ok(())
}
