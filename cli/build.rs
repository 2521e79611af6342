//! Lets the linker fold identical functions of the release binary into one.
//!
//! Every crate compiles its own copies of the generic and derived code of the crates below it, of
//! which `sqlparser`'s and DataFusion's trees have megabytes. Functions of one layout are identical
//! too, such as the kernels of bigint and timestamp. Folded functions have one address: nothing
//! here may tell functions apart by theirs, and a profile shows one name for all of them.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name| env::var(name).unwrap_or_default();
    // The target on which LLD, which knows the option, is rustc's own linker.
    let is_lld = variable("TARGET") == "x86_64-unknown-linux-gnu";
    let is_default = variable("RUSTC_LINKER").is_empty();
    if is_lld && is_default && variable("PROFILE") == "release" {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}
