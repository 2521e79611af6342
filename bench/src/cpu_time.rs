//! Processor time by thread, from `/proc/self/task`.
//!
//! Every thread of the process belongs to a [`Class`] by its name. A figure of one class can
//! therefore show the processor time of the other classes beside it. A thread that ends between two
//! samples is missing from the second, so samples are taken while the measured threads live.

use crate::Result;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The kind of a thread's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Short transactions: the benchmark's writers.
    Write,
    /// Queries: every thread that is in no other class.
    Scan,
    /// Dense overlays of pending updates, built for scans.
    Overlay,
    /// Merges and checkpoints, the engine's and the rivals'; bulk loads.
    Maintenance,
    /// Relaxed commits on their way to the log file.
    Log,
}

impl Class {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Write, "writers"),
        (Self::Scan, "scans"),
        (Self::Overlay, "overlays"),
        (Self::Maintenance, "maintenance"),
        (Self::Log, "log"),
    ];

    /// The class of a thread of this name.
    pub fn of(name: &str) -> Self {
        let names = [
            (WRITER, Self::Write),
            (MERGER, Self::Maintenance),
            (OVERLAYS, Self::Overlay),
            ("strandline-maintenance", Self::Maintenance),
            ("strandline-load", Self::Maintenance),
            ("strandline-log", Self::Log),
        ];
        // Linux keeps 15 characters of a thread's name.
        let is_named = |whole: &str| name == &whole[..whole.len().min(15)];
        let found = names.into_iter().find(|(whole, _)| is_named(whole));
        found.map_or(Self::Scan, |(_, class)| class)
    }
}

/// The name of the engine's thread that makes overlays.
pub const OVERLAYS: &str = "strandline-overlays";
/// The name of threads that write.
pub const WRITER: &str = "bench-writer";
/// The name of a rival's merge thread.
pub const MERGER: &str = "bench-merger";

/// Processor seconds by class.
#[derive(Clone, Copy, Default, Debug)]
pub struct CpuSeconds([f64; Class::ALL.len()]);

impl CpuSeconds {
    /// The seconds of one class.
    pub fn of(&self, class: Class) -> f64 {
        let place = Class::ALL.iter().position(|(other, _)| *other == class);
        place.map_or(0.0, |place| self.0[place])
    }

    /// The seconds of all threads that neither write nor scan: the engine's background work.
    pub fn background(&self) -> f64 {
        self.of(Class::Overlay) + self.of(Class::Maintenance) + self.of(Class::Log)
    }

    /// All seconds divided by `n`.
    pub fn per(mut self, n: f64) -> Self {
        self.0.iter_mut().for_each(|seconds| *seconds /= n);
        self
    }

    /// The seconds as JSON, by the classes' names.
    pub fn json(&self) -> Value {
        let named = Class::ALL.iter().zip(self.0);
        named
            .map(|((_, name), seconds)| (name.to_string(), json!((seconds * 1e4).round() / 1e4)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

/// Nanoseconds of processor time by thread.
pub struct Sample(HashMap<u64, (String, u64)>);

impl Sample {
    /// Reads the clocks of all threads of this process.
    pub fn take() -> Result<Self> {
        let mut threads = HashMap::new();
        for entry in std::fs::read_dir("/proc/self/task")? {
            let folder = entry?.path();
            let id = folder
                .file_name()
                .and_then(|n| n.to_str())
                .and_then(|n| n.parse().ok());
            // A thread may end between the listing and the reading.
            let Ok(clock) = std::fs::read_to_string(folder.join("schedstat")) else {
                continue;
            };
            let Ok(name) = std::fs::read_to_string(folder.join("comm")) else {
                continue;
            };
            let nanos = clock.split(' ').next().and_then(|n| n.parse().ok());
            if let (Some(id), Some(nanos)) = (id, nanos) {
                threads.insert(id, (name.trim().to_string(), nanos));
            }
        }
        Ok(Self(threads))
    }

    /// The seconds that threads have run since `earlier`.
    pub fn since(&self, earlier: &Self) -> CpuSeconds {
        let seconds = |class| {
            let of_class = self
                .0
                .iter()
                .filter(|(_, (name, _))| Class::of(name) == class);
            let nanos = |(id, (_, now)): (&u64, &(String, u64))| {
                let before = earlier.0.get(id).map_or(0, |(_, before)| *before);
                now.saturating_sub(before)
            };
            of_class.map(nanos).sum::<u64>() as f64 / 1e9
        };
        CpuSeconds(Class::ALL.map(|(class, _)| seconds(class)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_under_the_name_of_its_thread() {
        let before = Sample::take().unwrap();
        let worker = std::thread::Builder::new()
            .name(WRITER.into())
            .spawn(move || {
                let mut x = 1_u64;
                loop {
                    for i in 0..1_000_000 {
                        x = std::hint::black_box(x.wrapping_mul(i | 1));
                    }
                    let used = Sample::take().unwrap().since(&before);
                    if used.of(Class::Write) > 0.0 {
                        return used.background();
                    }
                }
            });
        assert_eq!(worker.unwrap().join().unwrap(), 0.0);
    }

    #[test]
    fn names_are_known_as_the_system_cuts_them() {
        let classes = [
            ("bench-writer", Class::Write),
            ("strandline-over", Class::Overlay),
            ("strandline-main", Class::Maintenance),
            ("strandline-log", Class::Log),
            ("tokio-rt-worker", Class::Scan),
        ];
        for (name, class) in classes {
            assert_eq!(Class::of(name), class, "{name}");
        }
    }
}
