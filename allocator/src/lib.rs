//! How long the allocator of the product's binaries keeps freed memory.
//!
//! mimalloc returns freed memory to the system a second later. Blocks of a large table come and go
//! at hundreds of MiB per second, so that a process with 64 MiB had 140 MiB. Here the delay is in
//! proportion to the memory that the database may have: what is kept stays a small part of it, and
//! large databases keep their memory as long as before.
//!
//! A program that embeds the Rust crate has an allocator of its own, and chooses itself.

#![expect(
    unsafe_code,
    reason = "mimalloc has this option only as a function of C, and a variable of the environment"
)]

use libmimalloc_sys::{mi_option_get, mi_option_set, mi_option_t};

/// `mi_option_purge_delay` of mimalloc 3, in milliseconds.
const PURGE_DELAY: mi_option_t = 15;
/// mimalloc's own delay, and the longest one here.
const DELAY_MS_MAX: usize = 1000;
const DELAY_MS_MIN: usize = 10;
/// Memory for which freed memory is kept a millisecond.
const BYTES_PER_MS: usize = (64 << 20) / DELAY_MS_MIN;

/// Lets freed memory go back to the system as early as a database of `memory_bytes` needs it. Of
/// several databases the smallest one counts.
pub fn keep_freed_memory_for(memory_bytes: usize) {
    let delay_ms = (memory_bytes / BYTES_PER_MS).clamp(DELAY_MS_MIN, DELAY_MS_MAX);
    if delay_ms < self::delay_ms() {
        // SAFETY: the function checks the option and stores one aligned word, also when other
        // threads read it.
        unsafe { mi_option_set(PURGE_DELAY, delay_ms as _) };
    }
}

/// How long freed memory is kept, in milliseconds; shorter if the environment says so.
fn delay_ms() -> usize {
    // SAFETY: the function checks the option and reads one aligned word.
    let delay_ms = unsafe { mi_option_get(PURGE_DELAY) };
    usize::try_from(delay_ms).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_database_decides() {
        assert_eq!(delay_ms(), DELAY_MS_MAX, "the option is another one");
        keep_freed_memory_for(64 << 30);
        assert_eq!(delay_ms(), DELAY_MS_MAX);
        keep_freed_memory_for(256 << 20);
        assert_eq!(delay_ms(), 40);
        keep_freed_memory_for(2 << 30);
        assert_eq!(delay_ms(), 40);
        keep_freed_memory_for(0);
        assert_eq!(delay_ms(), DELAY_MS_MIN);
    }
}
