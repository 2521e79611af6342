//! Runs of committed tail records sorted by row id. (Owner: table.)
