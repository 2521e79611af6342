//! The block cache between random reads and the capacity tier: which reads it spares, and that no
//! crash, fault or damage of it gives a wrong row or fails a statement.

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod crash;
mod faults;
mod guards;
mod machine;
mod numbers;
mod reads;
mod settings;
mod sizes;
