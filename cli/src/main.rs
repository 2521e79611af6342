//! The `strandline` binary: an interactive SQL shell, a script runner, and the commands `serve`,
//! `inspect`, `check`, `backup`, `restore` and `demo`.

mod args;
mod backup;
mod check;
mod demo;
mod inspect;
mod interrupt;
mod progress;
mod render;
mod serve;
mod session;
mod shell;
mod statements;

use args::{Cli, Command, DatabaseArgs, ShellArgs, exit_code};
use clap::{CommandFactory, FromArgMatches};
use render::{Expanded, Format, PrintError, Style};
use session::{Error, ErrorKind, SqlState};
use shell::interpreter::{Flow, Interpreter, Origin, Stop};
use shell::report::report;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let code = match cli.command {
        None => {
            let inputs = inputs(&cli.shell, &matches);
            run_shell(&cli.shell, &inputs)
        }
        Some(Command::Inspect { database, format }) => run_inspect(&database, format),
        Some(Command::Check { database }) => run_check(&database),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Backup { database, target }) => done(backup::backup(&database, &target)),
        Some(Command::Restore {
            source,
            path,
            capacity,
            as_of,
        }) => done(backup::restore(&source, &path, &capacity, as_of.as_deref())),
        Some(Command::Demo(args)) => ended(demo::run(&args)),
        Some(Command::DemoVictim {
            path,
            seed,
            tiers,
            rows,
            open,
        }) => done(match tiers.zip(rows) {
            Some((index_bytes, rows)) => {
                demo::tiers_victim(&path, seed, demo::TiersData { rows, index_bytes })
            }
            None => demo::victim(&path, open, seed),
        }),
    };
    ExitCode::from(code)
}

/// One input that `-c` or `-f` names.
enum Input {
    Text(String),
    File(PathBuf),
}

/// `-c` and `-f` in the order of the command line.
fn inputs(shell: &ShellArgs, matches: &clap::ArgMatches) -> Vec<Input> {
    let places = |id| matches.indices_of(id).into_iter().flatten();
    let texts = shell.commands.iter().cloned().map(Input::Text);
    let files = shell.files.iter().cloned().map(Input::File);
    let mut inputs: Vec<(usize, Input)> = places("commands").zip(texts).collect();
    inputs.extend(places("files").zip(files));
    inputs.sort_by_key(|(place, _)| *place);
    inputs.into_iter().map(|(_, input)| input).collect()
}

/// Reports the error for a database that cannot be opened; returns the exit code.
fn cannot_open(error: &Error) -> u8 {
    report(error, "", None);
    exit_code::CANNOT_OPEN
}

fn run_shell(arguments: &ShellArgs, inputs: &[Input]) -> u8 {
    interrupt::install();
    let interactive = inputs.is_empty() && io::stdin().is_terminal();
    let database = match session::open(
        arguments.path.as_deref(),
        &arguments.capacity,
        arguments.open,
    ) {
        Ok(database) => database,
        Err(error) => return cannot_open(&error),
    };
    let style = Style {
        format: arguments.format,
        expanded: if interactive {
            Expanded::Auto
        } else {
            Expanded::Off
        },
        header: !arguments.no_header,
        row_count: !arguments.no_header,
        null: arguments.null.clone(),
        width: None,
    };
    let mut interpreter = shell::interpreter(database, style, arguments.keep_going);
    interpreter.quiet = arguments.quiet;
    let result = if interactive {
        shell::run(&mut interpreter, arguments.path.as_deref(), arguments.quiet)
    } else {
        run_inputs(&mut interpreter, inputs)
    };
    let code = result.map_or_else(|stop| code_of(&stop), |()| exit_code::OK);
    match interpreter.close() {
        Ok(()) => code,
        Err(error) => {
            report(&error, "", None);
            code.max(exit_code::FAILED)
        }
    }
}

fn run_inputs(interpreter: &mut Interpreter, inputs: &[Input]) -> Result<(), Stop> {
    if inputs.is_empty() {
        return interpreter
            .run_script(io::stdin().lock(), &Origin::Stdin)
            .map(|_| ());
    }
    let mut failed = None;
    for input in inputs {
        let result = match input {
            Input::Text(text) => interpreter.run_script(text.as_bytes(), &Origin::Terminal),
            Input::File(path) if path.as_os_str() == "-" => {
                interpreter.run_script(io::stdin().lock(), &Origin::Stdin)
            }
            Input::File(path) => interpreter.run_file(path),
        };
        match result {
            Ok(Flow::Continue) => {}
            Ok(Flow::Quit) => break,
            Err(Stop::Statement) if interpreter.keeps_going() => failed = Some(Stop::Statement),
            Err(stop) => return Err(stop),
        }
    }
    failed.map_or(Ok(()), Err)
}

fn code_of(stop: &Stop) -> u8 {
    match stop {
        Stop::Statement => exit_code::FAILED,
        Stop::Input { file, error } => {
            report(&Error::io(file.display(), error), "", None);
            exit_code::CANNOT_OPEN
        }
        Stop::Output(error) => output_failed(error),
    }
}

/// Returns the exit code for an output that cannot be written. Reports the error, except when the
/// output's reader (`head`, say) has gone away.
fn output_failed(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return exit_code::OUTPUT_CLOSED;
    }
    report(&Error::io("output", error), "", None);
    exit_code::FAILED
}

fn print_failed(error: &PrintError) -> u8 {
    match error {
        PrintError::Query(error) => {
            report(error, "", None);
            exit_code::FAILED
        }
        PrintError::Output(error) => output_failed(error),
    }
}

fn run_inspect(database: &DatabaseArgs, format: Format) -> u8 {
    let database = match session::open_existing(database) {
        Ok(database) => database,
        Err(error) => return cannot_open(&error),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = inspect::run(&database, format, &mut out).and_then(|()| Ok(out.flush()?));
    result.map_or_else(|error| print_failed(&error), |()| exit_code::OK)
}

/// The exit code of a command that works on files.
fn done(result: session::Result<()>) -> u8 {
    match result {
        Ok(()) => exit_code::OK,
        Err(error) if CANNOT_OPEN.contains(&error.sqlstate()) => cannot_open(&error),
        Err(error) => ended(Err(error)),
    }
}

/// The errors for a database or a backup that cannot be opened.
const CANNOT_OPEN: [SqlState; 3] = [
    SqlState::OBJECT_IN_USE,
    SqlState::UNDEFINED_FILE,
    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
];

/// The exit code of a command whose result says whether all is well.
fn ended(result: session::Result<bool>) -> u8 {
    match result {
        Ok(true) => exit_code::OK,
        Ok(false) => exit_code::FAILED,
        Err(error) => {
            report(&error, "", None);
            exit_code::FAILED
        }
    }
}

fn run_check(database: &DatabaseArgs) -> u8 {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = match session::open_existing(database) {
        Ok(database) => check::run(&database, &mut out),
        // Damage that keeps a database from being opened counts as damage found.
        Err(error) if error.kind() == ErrorKind::Corrupt => writeln!(out, "DAMAGE:  {error}")
            .map(|()| false)
            .map_err(PrintError::from),
        Err(error) => return cannot_open(&error),
    };
    match result.and_then(|sound| Ok(out.flush().map(|()| sound)?)) {
        Ok(true) => exit_code::OK,
        Ok(false) => exit_code::FAILED,
        Err(error) => print_failed(&error),
    }
}
