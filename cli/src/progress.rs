//! Progress on the terminal: a spinner for long statements, a bar for loads. Both write to
//! standard error and only if that is a terminal.

use crate::session::{Progress, ProgressHook};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Statements that finish sooner show no spinner.
const PATIENCE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(100);
const SPINNER: &str = "{spinner} {msg} for {elapsed} (Ctrl-C cancels)";
const FILE_BAR: &str = "{bar:30} {percent:>3} %  {msg}  {elapsed} (Ctrl-C cancels)";
const ROWS_BAR: &str = "{msg:10} {bar:40} {human_pos:>10}/{human_len} rows  {per_sec}  {eta}";

const BYTES_BAR: &str = "{msg:10} {bar:40} {binary_bytes:>10}/{binary_total_bytes}  \
                         {binary_bytes_per_sec}  {eta} (Ctrl-C ends it)";

/// Whether standard error is a terminal.
pub fn on_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// A spinner with the elapsed time, or a bar for a statement that reads a file. It appears when the
/// statement takes long, and goes away when dropped.
pub struct Spinner {
    reached: Arc<Reached>,
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The progress that the statement reported last.
#[derive(Default)]
struct Reached {
    rows: AtomicU64,
    bytes: AtomicU64,
    /// 0: unknown
    total_bytes: AtomicU64,
}

impl Spinner {
    /// Starts to wait. Shows nothing if standard error is not a terminal.
    pub fn start() -> Self {
        let reached = Arc::<Reached>::default();
        if !on_terminal() {
            return Self {
                reached,
                done: None,
                thread: None,
            };
        }
        let (done, finished) = channel();
        let shown = reached.clone();
        // Without the thread there is no spinner; the statement still runs.
        let thread = std::thread::Builder::new()
            .name("spinner".into())
            .spawn(move || spin(&finished, &shown))
            .ok();
        Self {
            reached,
            done: Some(done),
            thread,
        }
    }

    /// The hook to which the statement reports its progress; None if nothing is shown.
    pub fn hook(&self) -> Option<ProgressHook> {
        self.thread.as_ref()?;
        let reached = self.reached.clone();
        Some(Arc::new(move |progress: Progress| {
            reached.rows.store(progress.rows, Ordering::Relaxed);
            reached.bytes.store(progress.bytes, Ordering::Relaxed);
            reached
                .total_bytes
                .store(progress.total_bytes.unwrap_or(0), Ordering::Relaxed);
        }))
    }
}

/// Shows the spinner once the statement takes long, until the sender is dropped.
fn spin(finished: &Receiver<()>, reached: &Reached) {
    if finished.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let bar = ProgressBar::new_spinner().with_style(style(SPINNER));
    bar.set_message("running");
    loop {
        let rows = reached.rows.load(Ordering::Relaxed);
        let total = reached.total_bytes.load(Ordering::Relaxed);
        if rows > 0 {
            bar.set_message(format!("{} rows", HumanCount(rows)));
        }
        if total > 0 && bar.length().is_none() {
            bar.set_style(style(FILE_BAR));
            bar.set_length(total);
        }
        if total > 0 {
            bar.set_position(reached.bytes.load(Ordering::Relaxed));
        }
        bar.tick();
        if finished.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    bar.finish_and_clear();
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is valid")
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

/// A progress bar in bytes, whose total is set later; hidden if standard error is not a terminal.
pub fn bytes_bar(label: &str) -> ProgressBar {
    let bar = if on_terminal() {
        ProgressBar::new(0)
    } else {
        ProgressBar::hidden()
    };
    bar.with_style(style(BYTES_BAR))
        .with_message(label.to_string())
}

/// A progress bar of `total` rows; hidden if standard error is not a terminal.
pub fn rows_bar(total: u64, label: &str) -> ProgressBar {
    let bar = if on_terminal() {
        ProgressBar::new(total)
    } else {
        ProgressBar::hidden()
    };
    bar.with_style(style(ROWS_BAR))
        .with_message(label.to_string())
}
