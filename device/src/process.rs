//! Figures of this process from the operating system.

use std::fs;

/// The process's bytes that are in memory; None where the system does not say it as Linux does.
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes: u64 = line?.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_is_written_is_resident() {
        const BYTES: usize = 64 << 20;
        let held = vec![1_u8; BYTES];
        assert!(resident_bytes() > Some(BYTES as u64));
        assert_eq!(held[BYTES / 2], 1);
    }
}
