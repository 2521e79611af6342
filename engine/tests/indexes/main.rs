//! Secondary indexes: what is read by them is what a scan finds.

mod builds;
#[path = "../common/mod.rs"]
mod common;
mod covered;
mod crash;
mod definitions;
mod expressions;
mod left_builds;
mod loads;
mod maintenance;
mod model;
mod ordered_keys;
mod reading;
mod references;
mod support;
