//! Secondary indexes: what is read by them is what a scan finds.

#[path = "../common/mod.rs"]
mod common;
mod definitions;
mod maintenance;
mod model;
mod support;
