//! Runs statements and meta commands, prints their results, and reports their errors. The shell and
//! scripts share this module.

use super::report::report;
use crate::interrupt::Cancellable;
use crate::progress::Spinner;
use crate::render::{self, Batches, Expanded, Format, PrintError, Style};
use crate::session::{
    Connection, Database, Error, Outcome, Result as EngineResult, Stored, Summary,
};
use crate::statements::{Piece, PieceKind, Splitter};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use std::fs::File;
use std::io::{self, BufRead, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The maximum depth of scripts that include scripts.
const MAX_INCLUDE_DEPTH: usize = 16;
/// Columns of a terminal whose width is unknown.
const DEFAULT_WIDTH: usize = 80;

/// Whether the interpreter goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    Quit,
}

/// The reason why the interpreter stopped. A statement's error has been reported already.
#[derive(Debug)]
pub enum Stop {
    /// a statement or meta command failed
    Statement,
    /// an input file cannot be read
    Input { file: PathBuf, error: io::Error },
    /// the output cannot be written
    Output(io::Error),
}

/// The source of a statement, for error messages.
#[derive(Clone, Debug)]
pub enum Origin {
    /// the prompt or -c
    Terminal,
    /// standard input that is not a terminal
    Stdin,
    /// a file
    File(PathBuf),
}

impl Origin {
    /// `file:line: `, or nothing at the prompt.
    fn prefix(&self, line: usize) -> String {
        match self {
            Origin::Terminal => String::new(),
            Origin::Stdin => format!("<stdin>:{line}: "),
            Origin::File(path) => format!("{}:{line}: ", path.display()),
        }
    }
}

/// The destination of results.
pub enum Output {
    Stdout,
    File(BufWriter<File>),
}

impl Output {
    fn writer(&mut self) -> Box<dyn Write + '_> {
        match self {
            Output::Stdout => Box::new(BufWriter::new(io::stdout().lock())),
            Output::File(file) => Box::new(file),
        }
    }
}

/// Runs a meta command. The text is a line with its `\\`.
pub type RunMeta = fn(&mut Interpreter, &str) -> Result<Flow, Failure>;

/// Runs the input of the shell or of a script; see the module's header.
pub struct Interpreter {
    run_meta: RunMeta,
    database: Database,
    connection: Connection,
    pub style: Style,
    pub timing: bool,
    pub quiet: bool,
    pub output: Output,
    /// The last statement that ran, for `\e` and `\g`.
    pub last_statement: String,
    keep_going: bool,
    include_depth: usize,
}

impl Interpreter {
    pub fn new(database: Database, style: Style, keep_going: bool, run_meta: RunMeta) -> Self {
        Self {
            run_meta,
            connection: database.connect(),
            database,
            style,
            timing: false,
            quiet: false,
            output: Output::Stdout,
            last_statement: String::new(),
            keep_going,
            include_depth: 0,
        }
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The connection, for statements that the shell runs itself.
    pub fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Whether scripts go on after an error.
    pub fn keeps_going(&self) -> bool {
        self.keep_going
    }

    /// Closes the database; an open transaction is rolled back.
    pub fn close(self) -> EngineResult<()> {
        drop(self.connection);
        self.database.close()
    }

    /// Runs one piece of input; reports its error, if any.
    pub fn run(&mut self, piece: &Piece, origin: &Origin) -> Result<Flow, Stop> {
        let result = match piece.kind {
            PieceKind::Statement => self.run_statement(&piece.text).map(|()| Flow::Continue),
            PieceKind::Meta => (self.run_meta)(self, &piece.text),
        };
        result.map_err(|failure| match failure {
            Failure::Print(PrintError::Query(error)) => {
                let statement = (piece.kind == PieceKind::Statement).then_some(piece.text.as_str());
                report(&error, &origin.prefix(piece.line), statement);
                Stop::Statement
            }
            Failure::Print(PrintError::Output(error)) => Stop::Output(error),
            Failure::Stop(stop) => stop,
        })
    }

    /// Runs a statement and prints its result.
    pub fn run_statement(&mut self, sql: &str) -> Result<(), Failure> {
        self.last_statement = sql.to_string();
        let begin = Instant::now();
        let printed = self.execute_and_print(sql);
        let elapsed = begin.elapsed();
        self.print_notices();
        if printed.is_ok() && self.timing {
            writeln!(self.output.writer(), "Time: {}", milliseconds(elapsed))?;
        }
        self.output.writer().flush()?;
        Ok(printed?)
    }

    fn execute_and_print(&mut self, sql: &str) -> Result<(), PrintError> {
        let style = self.effective_style();
        let _cancellable = Cancellable::new(self.connection.cancel_handle());
        let spinner = Spinner::start();
        self.connection.on_progress(spinner.hook());
        let summary = match self.connection.run(sql, ())? {
            Outcome::Rows(rows) => {
                let mut rows = Watched {
                    rows,
                    spinner: Some(spinner),
                };
                render::print(&mut rows, &style, &mut *self.output.writer())?;
                return Ok(());
            }
            Outcome::Done(summary) => summary,
        };
        drop(spinner);
        self.print_notices();
        self.print_summary(summary, &style)
    }

    fn print_notices(&mut self) {
        for notice in self.connection.take_notices() {
            eprintln!("NOTICE:  {}", render::printable(notice.message()));
        }
    }

    /// Prints the rows that a statement other than a query returned (RETURNING, SHOW, EXPLAIN). The
    /// tag follows only for statements that write.
    fn print_summary(&mut self, summary: Summary, style: &Style) -> Result<(), PrintError> {
        let tag = summary.command_tag().to_string();
        let Some(result) = summary.into_result() else {
            return Ok(self.print_tag(&tag)?);
        };
        render::print(&mut Stored::new(result), style, &mut *self.output.writer())?;
        let writes = ["INSERT", "UPDATE", "DELETE", "MERGE"];
        if writes.iter().any(|name| tag.starts_with(name)) {
            self.print_tag(&tag)?;
        }
        Ok(())
    }

    /// Prints a command tag such as `INSERT 0 1`, unless the output is for programs.
    pub fn print_tag(&mut self, tag: &str) -> io::Result<()> {
        if !self.quiet && self.style.format == Format::Table {
            writeln!(self.output.writer(), "{tag}")?;
        }
        Ok(())
    }

    /// The style with the terminal's width, if results go to one.
    pub fn effective_style(&self) -> Style {
        let mut style = self.style.clone();
        if matches!(self.output, Output::Stdout) && io::stdout().is_terminal() {
            let size = terminal_size::terminal_size();
            style.width = Some(size.map_or(DEFAULT_WIDTH, |(width, _)| width.0.into()));
        } else if style.expanded == Expanded::Auto {
            style.expanded = Expanded::Off;
        }
        style
    }

    /// The writer for results.
    pub fn writer(&mut self) -> Box<dyn Write + '_> {
        self.output.writer()
    }

    /// Runs a file.
    pub fn run_file(&mut self, path: &Path) -> Result<Flow, Stop> {
        if self.include_depth == MAX_INCLUDE_DEPTH {
            let message = format!("{}: scripts include each other too deeply", path.display());
            report(&Error::unsupported(message), "", None);
            return Err(Stop::Statement);
        }
        let input = |error| Stop::Input {
            file: path.to_path_buf(),
            error,
        };
        let file = File::open(path).map_err(input)?;
        self.include_depth += 1;
        let origin = Origin::File(path.to_path_buf());
        let result = self.run_script(io::BufReader::new(file), &origin);
        self.include_depth -= 1;
        result
    }

    /// Runs a script to its end, or to its first error unless it is told to keep going.
    pub fn run_script(&mut self, mut input: impl BufRead, origin: &Origin) -> Result<Flow, Stop> {
        let mut splitter = Splitter::default();
        let mut failed = false;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = input.read_until(b'\n', &mut bytes);
            let text = read.and_then(|_| {
                str::from_utf8(&bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
            });
            let text = text.map_err(|error| Stop::Input {
                file: origin.file(),
                error,
            })?;
            splitter.push(text);
            while let Some(piece) = splitter.next_piece() {
                if self.run_piece(&piece, origin, &mut failed)? == Flow::Quit {
                    return end(failed, Flow::Quit);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        if let Some(piece) = splitter.finish() {
            let flow = self.run_piece(&piece, origin, &mut failed)?;
            return end(failed, flow);
        }
        end(failed, Flow::Continue)
    }

    fn run_piece(
        &mut self,
        piece: &Piece,
        origin: &Origin,
        failed: &mut bool,
    ) -> Result<Flow, Stop> {
        match self.run(piece, origin) {
            Err(Stop::Statement) if self.keep_going => {
                *failed = true;
                Ok(Flow::Continue)
            }
            other => other,
        }
    }
}

impl Origin {
    fn file(&self) -> PathBuf {
        match self {
            Origin::File(path) => path.clone(),
            Origin::Terminal | Origin::Stdin => PathBuf::from("standard input"),
        }
    }
}

fn end(failed: bool, flow: Flow) -> Result<Flow, Stop> {
    if failed {
        Err(Stop::Statement)
    } else {
        Ok(flow)
    }
}

/// The reason why a piece of input failed, before it is reported.
#[derive(Debug)]
pub enum Failure {
    Print(PrintError),
    Stop(Stop),
}

impl From<PrintError> for Failure {
    fn from(error: PrintError) -> Self {
        Self::Print(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Print(PrintError::Output(error))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Print(PrintError::Query(error))
    }
}

/// A result whose spinner goes away with its first batch.
struct Watched<B> {
    rows: B,
    spinner: Option<Spinner>,
}

impl<B: Batches> Batches for Watched<B> {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
    fn next_batch(&mut self) -> EngineResult<Option<RecordBatch>> {
        let batch = self.rows.next_batch();
        self.spinner = None;
        batch
    }
}

/// `12.345 ms`, and from a second on also `(00:01.234)` as in psql.
fn milliseconds(elapsed: Duration) -> String {
    let text = format!("{:.3} ms", elapsed.as_secs_f64() * 1e3);
    if elapsed < Duration::from_secs(1) {
        return text;
    }
    let seconds = elapsed.as_secs();
    format!(
        "{text} ({:02}:{:02}.{:03})",
        seconds / 60,
        seconds % 60,
        elapsed.subsec_millis()
    )
}
