//! Processor time of this process.

/// Clock ticks per second of `/proc`, which Linux fixes.
const TICKS: f64 = 100.0;

/// Processor seconds of all threads so far; 0 where `/proc` is missing.
pub fn seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The fields behind the name, which stands in parentheses: user time is the 12th, system time
    // the 13th.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .filter_map(|field| field.parse::<f64>().ok())
        .sum::<f64>()
        / TICKS
}

/// Processors of this machine.
pub fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
