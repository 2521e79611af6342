//! What the groups with TPC-C share: the image, plans by size, measured windows and their config.

use super::Bench;
use crate::Result;
use crate::report::config;
use serde_json::{Map, Value, json};
use std::time::Duration;
use strandline_bench_tpcc::Scale;
use strandline_bench_tpcc::experiment::{Image, Plan, Running, Setting, Window};
use strandline_storage::ssd_cache::Mode;

pub const PC: Setting = Setting::Cached(Mode::Pc);
pub const PC2: Setting = Setting::Cached(Mode::Pc2);
pub const LC: Setting = Setting::Cached(Mode::Lc);
pub const FOYER: Setting = Setting::Foyer;

/// The checkpoints that a window has at least.
const CHECKPOINTS_MIN: usize = 2;

/// Of 20, 50 and 80 % the threshold of fresh slots at which `lc` did most.
const CLEANING_PERCENT: u8 = 80;

impl Bench {
    /// The loaded database: 5 warehouses, with --quick one.
    pub fn image(&mut self) -> Result<&Image> {
        if self.image.is_none() {
            let warehouses = if self.is_quick { 1 } else { 5 };
            eprintln!("loading {warehouses} warehouses ...");
            self.image = Some(Image::load(Scale::of(warehouses), self.seed)?);
        }
        self.image
            .as_ref()
            .ok_or_else(|| "the image was not loaded".into())
    }

    /// The plan of a setting, with the best cleaner for `lc`.
    pub fn plan(&self, setting: Setting, cache_percent: f64) -> Plan {
        let mut plan = Plan {
            seed: self.seed,
            cleaning_percent: CLEANING_PERCENT,
            warm_up: Duration::from_secs(8),
            ..Plan::new(setting, cache_percent)
        };
        if self.is_quick {
            // The same transactions per second and byte of the database, from fewer terminals.
            plan.terminals /= 5;
            plan.wait /= 5;
            plan.warm_up = Duration::from_secs(2);
            plan.checkpoint_every = Duration::from_secs(2);
        }
        plan
    }

    /// The time of a measured window: two intervals of checkpoints or more.
    pub fn window_time(&self, plan: &Plan) -> Duration {
        let least = Duration::from_secs(self.sized(12, 4));
        least.max(plan.checkpoint_every * CHECKPOINTS_MIN as u32)
    }

    /// The warm database of a plan after one interval with delays.
    pub fn warm(&mut self, plan: Plan) -> Result<Running> {
        let mut running = Running::warm(self.image()?, plan)?;
        running.measure(plan.checkpoint_every, true)?;
        Ok(running)
    }

    /// The window of a plan and what was emulated, measured on first use; afterwards the conditions
    /// of clause 3.3.2 are checked.
    pub fn window(&mut self, plan: Plan) -> Result<(Window, String)> {
        let key = format!("{plan:?}");
        if let Some(known) = self.windows.get(&key) {
            return Ok(known.clone());
        }
        let time = self.window_time(&plan);
        let mut running = self.warm(plan)?;
        let window = running.measure(time, true)?;
        running.check()?;
        let measured = (window, running.label());
        self.windows.insert(key, measured.clone());
        Ok(measured)
    }
}

/// Why a window with checkpoints says nothing; None if it counts.
pub fn void(window: &Window) -> Option<String> {
    let checkpoints = window.checkpoints.len();
    let is_short = checkpoints < CHECKPOINTS_MIN;
    let short = is_short.then(|| format!("void: {checkpoints} checkpoints"));
    window.void().or(short)
}

/// The config of a figure from a window.
pub fn describe(plan: &Plan, window: &Window, label: &str) -> Map<String, Value> {
    let rounded = |share: f64| json!((share * 1_000.0).round() / 1_000.0);
    config([
        ("devices", json!(label)),
        ("time_scale", json!(plan.time_scale)),
        ("cache_percent", json!(plan.cache_percent)),
        ("memory_percent", json!(plan.memory_percent)),
        ("terminals", json!(plan.terminals)),
        (
            "wait_ms",
            json!(plan.wait.as_millis() as u64 / plan.time_scale),
        ),
        ("seconds", json!(window.seconds)),
        ("checkpoints", json!(window.checkpoints.len())),
        ("checkpoint_seconds", json!(longest(window))),
        ("response_ms", rounded(window.timeline.response_ms())),
        ("processor_busy", rounded(window.processor_busy)),
        ("ssd_busy", rounded(window.ssd_busy)),
        ("hdd_busy", rounded(window.hdd_busy)),
        ("threads_late_ms", rounded(window.late_ms)),
        ("cache_hits", rounded(window.cache_hits)),
        ("void", json!(void(window))),
    ])
}

/// Seconds of the longest checkpoint.
fn longest(window: &Window) -> f64 {
    let lengths = window.checkpoints.iter().map(|(from, to)| to - from);
    (lengths.fold(0.0, f64::max) * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_with_two_checkpoints_and_an_idle_machine() {
        let window = |checkpoints, processor_busy| Window {
            checkpoints: vec![(0.0, 1.0); checkpoints],
            processor_busy,
            ..Window::default()
        };
        assert_eq!(void(&window(2, 0.5)), None);
        assert_eq!(void(&window(1, 0.5)), Some("void: 1 checkpoints".into()));
        let busy = void(&window(2, 0.7)).expect("busy");
        assert!(busy.contains("processor"), "{busy}");
    }

    #[test]
    fn a_window_is_as_long_as_two_intervals_of_checkpoints() {
        let bench = |quick| Bench::new(std::path::Path::new("."), quick, 1);
        for quick in [false, true] {
            let plan = bench(quick).plan(PC, 25.0);
            let slow = Plan {
                checkpoint_every: Duration::from_secs(10),
                ..plan
            };
            for plan in [plan, slow] {
                let time = bench(quick).window_time(&plan);
                assert!(time >= 2 * plan.checkpoint_every, "{plan:?}");
            }
        }
    }
}
