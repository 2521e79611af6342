//! The source of random bytes: salts of passwords, secrets of sessions.

use std::fmt;

/// A source of unpredictable random bytes.
pub trait RandomSource: fmt::Debug + Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// The operating system's source.
#[derive(Debug)]
pub struct SystemRandom;

impl RandomSource for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            // Six bits of a UUID are fixed, all in the bytes that are left out here.
            let random = uuid::Uuid::new_v4().into_bytes();
            let usable = [
                random[0], random[1], random[2], random[3], random[4], random[5], random[7],
                random[9],
            ];
            piece.copy_from_slice(&usable[..piece.len()]);
        }
    }
}
