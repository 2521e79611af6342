//! Ids of databases, copies and pairs of directories: drawn from the operating system, and no
//! decision of the engine depends on their value.

use std::hash::{BuildHasher, RandomState};

/// 128 bits that differ from those of every other call, in this process and in others.
pub fn unique_id() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(()));
    (half() << 64) | half()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ() {
        let ids: std::collections::HashSet<u128> = (0..1_000).map(|_| unique_id()).collect();
        assert_eq!(ids.len(), 1_000);
    }
}
