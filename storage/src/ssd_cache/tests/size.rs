//! size
