//! crash_cases
