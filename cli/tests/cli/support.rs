//! Runs the binary and looks at what it printed.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The binary under test.
pub const STRANDLINE: &str = env!("CARGO_BIN_EXE_strandline");

/// What a run of the binary printed, and its exit code.
#[derive(Debug)]
pub struct Ran {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

impl Ran {
    /// The run must have succeeded without a word on standard error.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert_eq!(self.err, "", "{self:?}");
        self.out
    }

    /// The run must have ended with `code`; returns standard error.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.contains("ERROR:  ") || code == 2, "{self:?}");
        self.err
    }
}

/// Runs the binary with standard input closed.
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    run_with_input(arguments, "")
}

/// Runs the binary with `input` on standard input.
pub fn run_with_input<S: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = S>,
    input: impl AsRef<[u8]>,
) -> Ran {
    let mut command = Command::new(STRANDLINE);
    command.args(arguments).env("STRANDLINE_HISTORY", "");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.as_ref().to_vec();
    let writer = std::thread::spawn(move || {
        // A script that stops at an error does not read the rest.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("the binary ends");
    writer.join().expect("the writer does not panic");
    Ran {
        out: String::from_utf8(output.stdout).expect("output is UTF-8"),
        err: String::from_utf8(output.stderr).expect("errors are UTF-8"),
        code: output.status.code(),
    }
}

/// A directory that goes away with the test.
pub struct Scratch(TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_string()
    }
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), content).expect("writable");
        self.text(name)
    }
    /// A database in which `sql` has run.
    pub fn database(&self, name: &str, sql: &str) -> String {
        let path = self.text(name);
        run([path.as_str(), "-q", "-c", sql]).ok();
        path
    }
}

/// The largest file below `directory` whose name starts with `prefix`.
pub fn largest_file(directory: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
            name.is_some_and(|n| n.starts_with(prefix))
        })
        .max_by_key(|path| path.metadata().expect("readable").len())
}

/// Flips a bit in the middle of what has been written of a file (its end may be allocated only).
pub fn flip_written_bit(path: &Path) {
    let mut bytes = std::fs::read(path).expect("readable");
    let written = bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .expect("not all zeros");
    bytes[written / 2] ^= 0x10;
    std::fs::write(path, bytes).expect("writable");
}
