//! Edits, generations, damage.
