//! A process of this program that the demo kills, and the lines that it reports before it dies.

use crate::session::{Error, Result};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A victim that prints nothing for this long has failed by itself.
const SILENCE: Duration = Duration::from_secs(60);

/// A child process that does not outlive its owner.
pub struct Victim {
    child: Child,
    lines: Receiver<String>,
}

impl Victim {
    /// Starts `demo-victim` on the (closed) database at `path`.
    pub fn start(path: &Path, arguments: &[String]) -> Result<Self> {
        let program = std::env::current_exe().map_err(|e| Error::io("this program", &e))?;
        let mut command = Command::new(program);
        command.arg("demo-victim").arg(path).args(arguments);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| Error::io("starting a process", &e))?;
        let stdout = child.stdout.take().expect("its output is a pipe");
        let lines = read_in_background(stdout)?;
        Ok(Self { child, lines })
    }

    /// The next line, with its end.
    pub fn next_line(&self) -> Result<String> {
        self.lines
            .recv_timeout(SILENCE)
            .map_err(|_| Error::internal("the process to be killed ended or fell silent by itself"))
    }

    /// Sends SIGKILL and waits until the process is gone. Returns the lines that it wrote before it
    /// died.
    pub fn kill(mut self) -> Result<Vec<String>> {
        self.end().map_err(|e| Error::io("killing a process", &e))?;
        Ok(self.lines.iter().collect())
    }

    fn end(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Needed only on the way out with an error. The process may be gone already.
        let _ = self.end();
    }
}

/// Complete lines of the pipe, until its end.
fn read_in_background(stdout: ChildStdout) -> Result<Receiver<String>> {
    let (sender, receiver) = channel();
    let read = move || {
        let mut reader = BufReader::new(stdout);
        let mut line = String::new();
        // A line without its end was cut off by the kill.
        while matches!(reader.read_line(&mut line), Ok(n) if n > 0 && line.ends_with('\n')) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                break;
            }
        }
    };
    std::thread::Builder::new()
        .name("victim's output".into())
        .spawn(read)
        .map_err(|e| Error::io("starting a thread", &e))?;
    Ok(receiver)
}

/// In the victim: writes a line to the pipe in one write, so that a kill cannot leave it in a
/// buffer of this process.
pub fn report(line: std::fmt::Arguments<'_>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let text = format!("{line}\n");
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| Error::io("output", &e))
}
