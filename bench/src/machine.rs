//! The machine that the figures were measured on.

use crate::Result;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Processor, memory, kernel, file system and version of the code.
pub fn describe(directory: &Path) -> Result<Map<String, Value>> {
    let cores = std::thread::available_parallelism()?.get();
    let kernel = read("/proc/sys/kernel/osrelease");
    let entries = [
        (
            "cpu",
            json!(format!(
                "{cores} x {}",
                field("/proc/cpuinfo", "model name")
            )),
        ),
        ("memory", json!(field("/proc/meminfo", "MemTotal"))),
        ("kernel", json!(kernel.trim())),
        ("file_system", json!(file_system(directory)?)),
        ("commit", json!(commit())),
        (
            "profile",
            json!(if cfg!(debug_assertions) {
                "dev"
            } else {
                "release"
            }),
        ),
    ];
    Ok(crate::report::config(entries))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first line `name : value`.
fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let line = text
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or_default();
    line.split_once(':')
        .map_or("unknown", |(_, value)| value.trim())
        .to_string()
}

/// Type and device of the file system that holds `directory`. A file system in memory is refused,
/// since durable commits would mean nothing there.
fn file_system(directory: &Path) -> Result<String> {
    let directory = directory.canonicalize()?;
    let mounts = read("/proc/self/mounts");
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.next()?, fields.next()?, fields.next()?))
        })
        .filter(|(_, place, _)| directory.starts_with(place))
        .max_by_key(|(_, place, _)| place.len());
    let Some((device, _, kind)) = mount else {
        return Ok("unknown".to_string());
    };
    if matches!(kind, "tmpfs" | "ramfs") {
        let place = directory.display();
        return Err(format!("{place} is in memory: set STRANDLINE_BENCH_DIR to a disk").into());
    }
    Ok(format!("{kind} on {device}"))
}

fn commit() -> String {
    let output = std::process::Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .current_dir(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(".".into()))
        .output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string());
    text.ok()
        .filter(|t| !t.is_empty())
        .unwrap_or("unknown".to_string())
}

/// Resident memory in bytes of a process; `process` is its number, or `self`.
pub fn resident_bytes(process: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: f64 = line
        .and_then(|line| line.split_whitespace().next())
        .ok_or_else(|| format!("no VmRSS in /proc/{process}/status"))?
        .parse()?;
    Ok(kilobytes * 1024.0)
}
