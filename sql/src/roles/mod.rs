//! Users and groups: their passwords, their privileges, and the statements that change both.

mod random;

pub use random::{RandomSource, SystemRandom};
