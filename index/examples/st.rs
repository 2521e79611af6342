#[path = "/work/wt/bench/src/index/fd_tree/experiment.rs"]
#[allow(dead_code)]
mod experiment;
use experiment::{Keys, Run, in_files};
use std::path::Path;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let entries: u64 = a[2].parse().unwrap();
    let rounds: u64 = a[3].parse().unwrap();
    for _ in 0..rounds {
        let run = Run {
            keys: Keys::Random,
            entries,
            requests: if a[1] == "cached" {
                entries
            } else {
                entries / 2
            },
            lookups: if a[1] == "cached" { 100 } else { 50 },
            deletes: 0,
            ..Run::scaled(1.0)
        };
        let memory = entries * 16 / 10;
        let run = if a[1] == "cached" {
            Run {
                cache_bytes: (entries * 64) as usize,
                ..run
            }
        } else {
            let hb: u64 = a.get(4).map_or(4, |t| t.parse().unwrap());
            Run {
                head_bytes: (memory / 4) as usize,
                head_blocks: memory / 4 / hb / 4096,
                cache_bytes: (memory - memory / 4) as usize,
                ..run
            }
        };
        let dir = Path::new("/var/tmp/b/st");
        let _ = std::fs::remove_dir_all(dir);
        std::fs::create_dir_all(dir).unwrap();
        let d = in_files(run, dir).unwrap();
        println!(
            "{:.1} k/s  ins p999 {:.4} mean {:.2} look p999 {:.4} mean {:.2} written {:.0} reads {}",
            d.per_second() / 1e3,
            d.modifications.p999_ms(),
            d.modifications.mean_us(),
            d.lookups.p999_ms(),
            d.lookups.mean_us(),
            d.written_bytes(),
            d.counts.reads.load(std::sync::atomic::Ordering::Relaxed)
        );
    }
}
