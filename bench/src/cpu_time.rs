//! Processor time by thread, from `/proc/self/task`.
//!
//! A scan's cost while writers run is the processor time of the threads that scan: everything of
//! this process except the threads whose names say that they write or maintain.

use crate::Result;
use std::collections::HashMap;

/// Nanoseconds on a processor by thread.
pub struct Sample(HashMap<u64, (String, u64)>);

impl Sample {
    /// The clocks of all threads of this process now.
    pub fn take() -> Result<Self> {
        let mut threads = HashMap::new();
        for entry in std::fs::read_dir("/proc/self/task")? {
            let folder = entry?.path();
            let id = folder
                .file_name()
                .and_then(|n| n.to_str())
                .and_then(|n| n.parse().ok());
            // A thread may end between listing and reading.
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

    /// Seconds that threads chosen by name have run since `earlier`.
    pub fn seconds_since(&self, earlier: &Self, chosen: impl Fn(&str) -> bool) -> f64 {
        let nanos = |(id, (name, now)): (&u64, &(String, u64))| {
            let before = earlier.0.get(id).map_or(0, |(_, before)| *before);
            if chosen(name) {
                now.saturating_sub(before)
            } else {
                0
            }
        };
        self.0.iter().map(nanos).sum::<u64>() as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_under_the_name_of_its_thread() {
        let before = Sample::take().unwrap();
        let worker = std::thread::Builder::new()
            .name("busy".into())
            .spawn(move || {
                let mut x = 1_u64;
                loop {
                    for i in 0..1_000_000 {
                        x = std::hint::black_box(x.wrapping_mul(i | 1));
                    }
                    let now = Sample::take().unwrap();
                    let seconds = now.seconds_since(&before, |name| name == "busy");
                    if seconds > 0.0 {
                        return now.seconds_since(&before, |name| name == "nobody");
                    }
                }
            });
        assert_eq!(worker.unwrap().join().unwrap(), 0.0);
    }
}
