//! Progress on the terminal: a spinner for long statements, a bar for loads. Both write to
//! standard error and only if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Statements that finish sooner show no spinner.
const PATIENCE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(100);

/// Whether standard error is a terminal.
pub fn on_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// A spinner with the time elapsed; appears when a statement takes long, goes away when dropped.
pub struct Spinner {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Spinner {
    /// Starts to wait. Shows nothing if standard error is no terminal.
    pub fn start() -> Self {
        if !on_terminal() {
            return Self {
                done: None,
                thread: None,
            };
        }
        let (done, finished) = channel();
        // Without the thread there is no spinner, which is no reason to fail.
        let thread = std::thread::Builder::new()
            .name("spinner".into())
            .spawn(move || spin(&finished))
            .ok();
        Self {
            done: Some(done),
            thread,
        }
    }
}

fn spin(finished: &Receiver<()>) {
    if finished.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let style = ProgressStyle::with_template("{spinner} running for {elapsed} (Ctrl-C cancels)")
        .expect("the template is valid");
    let bar = ProgressBar::new_spinner().with_style(style);
    bar.enable_steady_tick(TICK);
    // Ends when the sender is dropped.
    let _ = finished.recv();
    bar.finish_and_clear();
}

impl Drop for Spinner {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the spinner must not hide the statement's result.
            let _ = thread.join();
        }
    }
}

/// A bar of `total` rows, hidden if standard error is no terminal.
pub fn rows_bar(total: u64, label: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{msg:10} {bar:40} {human_pos:>10}/{human_len} rows  {per_sec}  {eta}",
    )
    .expect("the template is valid");
    let bar = if on_terminal() {
        ProgressBar::new(total)
    } else {
        ProgressBar::hidden()
    };
    bar.with_style(style).with_message(label.to_string())
}
