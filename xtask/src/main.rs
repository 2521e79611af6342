//! `cargo xtask`: chores of the workspace that are not worth a shell script.
//!
//! `tidy` checks the house rules that neither the compiler, rustfmt nor clippy can check. `docs`
//! checks the links of the documentation. Both only read files. `map` draws the crates' modules and
//! their imports. `soak` builds the server and the benchmarks and runs the suite of that name.

mod docs;
mod map;
mod modules;
mod source;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask tidy [ROOT]
       cargo xtask docs [ROOT]
       cargo xtask map [FILE]
       cargo xtask soak [OPTIONS]

tidy checks the house rules over every crate of the workspace at ROOT (default: this workspace),
docs the links of its documentation. Both print one line per violation; exit code 1: there are some.
CONTRIBUTING.md lists the rules. map prints the modules of every crate with their lines, and which
of them import each other; it draws them into the SVG file FILE (default: target/map.svg). soak runs
a server under every kind of work at once (--help: its options).";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["tidy"] => run_tidy(&workspace_root()),
        ["tidy", root] => run_tidy(Path::new(root)),
        ["docs"] => run_docs(&workspace_root()),
        ["docs", root] => run_docs(Path::new(root)),
        ["map"] => run_map(&workspace_root().join("target/map.svg")),
        ["map", file] => run_map(Path::new(file)),
        ["soak", options @ ..] => run_soak(options),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run_map(file: &Path) -> ExitCode {
    match map::draw(&workspace_root(), file) {
        Ok(text) => {
            println!("{text}{}", file.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("map: {}: {error}", file.display());
            ExitCode::FAILURE
        }
    }
}

/// Builds the binaries for the soak, in release mode, and runs it.
fn run_soak(options: &[&str]) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&cargo);
        command.current_dir(workspace_root()).args(arguments);
        match command.status() {
            Ok(status) => status.success(),
            Err(error) => {
                eprintln!("soak: {}: {error}", cargo.display());
                false
            }
        }
    };
    let packages = [
        "--release",
        "-p",
        "strandline-cli",
        "-p",
        "strandline-bench",
    ];
    let build = [&["build"][..], &packages].concat();
    let soak = ["run", "--release", "-p", "strandline-bench", "--", "soak"];
    if run(&build) && run(&[&soak[..], options].concat()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run_tidy(root: &Path) -> ExitCode {
    let report = match tidy::check_workspace(root) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("tidy: {error}");
            return ExitCode::from(2);
        }
    };
    for note in &report.notes {
        println!("note: {note}");
    }
    for violation in &report.violations {
        println!("{violation}");
    }
    println!(
        "tidy: {} files, {} violations",
        report.files,
        report.violations.len()
    );
    if report.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run_docs(root: &Path) -> ExitCode {
    let (pages, problems) = match docs::check(root) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("docs: {error}");
            return ExitCode::from(2);
        }
    };
    for problem in &problems {
        println!("{problem}");
    }
    println!("docs: {pages} pages, {} problems", problems.len());
    if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The workspace from which `cargo run` was started, since another clone may share the build;
/// otherwise the workspace of the build.
fn workspace_root() -> PathBuf {
    let built = env!("CARGO_MANIFEST_DIR").into();
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(built));
    manifest
        .parent()
        .expect("xtask is a folder of the workspace")
        .to_path_buf()
}
