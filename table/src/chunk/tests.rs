//! Chunks of every type and codec, and damaged ones.
