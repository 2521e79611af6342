//! Clients that make requests at the same time.

use crate::Result;
use crate::ours::{Ours, Worker};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// Requests per second of so many clients on the column `a` of table `t`, whose transactions are
/// durable or not. Each makes one `request` after the other for `time`.
pub fn rate(
    ours: &Ours,
    (clients, is_durable): (u64, bool),
    time: Duration,
    seed: u64,
    request: &(impl Fn(&mut Worker, &mut Rng) -> Result<()> + Sync),
) -> Result<f64> {
    let begun = Instant::now();
    let client = |number: u64| {
        let worker = ours.worker("t", &["a"], is_durable);
        let mut worker = worker.map_err(|e| e.to_string())?;
        let mut rng = Rng::new(seed ^ (number << 32));
        let mut requests = 0_u64;
        while begun.elapsed() < time {
            request(&mut worker, &mut rng).map_err(|e| e.to_string())?;
            requests += 1;
        }
        Ok::<u64, String>(requests)
    };
    let client = &client;
    let requests = std::thread::scope(|scope| {
        let spawn = |number| scope.spawn(move || client(number));
        let threads: Vec<_> = (0..clients).map(spawn).collect();
        let joined = threads.into_iter().map(|t| t.join().expect("no panic"));
        joined.sum::<std::result::Result<u64, String>>()
    })?;
    Ok(requests as f64 / begun.elapsed().as_secs_f64())
}
