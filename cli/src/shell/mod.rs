//! The interactive shell: line editing, history, completion, and the loop around the interpreter.

mod describe;
mod help;
pub mod interpreter;
mod keywords;
mod line_editor;
mod meta;
mod related;
pub mod report;

use crate::interrupt;
use crate::render::Style;
use crate::session::{Database, TransactionStatus};
use crate::statements::Splitter;
use interpreter::{Flow, Interpreter, Origin, Stop};
use line_editor::{Assistant, Names, history_file};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use std::path::Path;

/// An interpreter that knows the shell's meta commands.
pub fn interpreter(database: Database, style: Style, keep_going: bool) -> Interpreter {
    Interpreter::new(database, style, keep_going, meta::run)
}

/// Runs the shell until `\q` or the end of the input.
pub fn run(interpreter: &mut Interpreter, path: Option<&Path>, quiet: bool) -> Result<(), Stop> {
    interrupt::ignore_when_idle();
    if !quiet {
        banner(path);
    }
    let mut editor = editor().map_err(|error| Stop::Output(std::io::Error::other(error)))?;
    let history = history_file();
    if let Some(file) = &history {
        // The first run has no history, and the shell starts without an unreadable one.
        let _ = editor.load_history(file);
    }
    let name = path
        .and_then(Path::file_stem)
        .map_or("memory".into(), |n| n.to_string_lossy());
    let result = read_loop(&mut editor, interpreter, &name);
    if let Some(file) = &history
        && let Err(error) = save_history(&mut editor, file)
    {
        eprintln!("WARNING:  history not saved in {}: {error}", file.display());
    }
    if interpreter.connection().transaction_status() != TransactionStatus::Idle {
        eprintln!("NOTICE:  the open transaction was rolled back");
    }
    result
}

fn banner(path: Option<&Path>) {
    println!(
        "strandline {} (type \\? for help, \\q to quit)",
        env!("CARGO_PKG_VERSION")
    );
    if path.is_none() {
        println!("The database is in memory and gone when you quit; `strandline PATH` keeps it.");
    }
    println!();
}

fn editor() -> rustyline::Result<Editor<Assistant, FileHistory>> {
    let config = Config::builder()
        .history_ignore_space(true)
        .max_history_size(10_000)?
        .completion_type(CompletionType::List)
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Assistant::default()));
    Ok(editor)
}

fn save_history(editor: &mut Editor<Assistant, FileHistory>, file: &Path) -> rustyline::Result<()> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    editor.append_history(file)
}

fn read_loop(
    editor: &mut Editor<Assistant, FileHistory>,
    interpreter: &mut Interpreter,
    name: &str,
) -> Result<(), Stop> {
    loop {
        if let Some(assistant) = editor.helper_mut() {
            assistant.names = Names::from_catalog(&interpreter.connection().catalog());
        }
        let sign = match interpreter.connection().transaction_status() {
            TransactionStatus::Idle => "=>",
            TransactionStatus::Open => "=*>",
            TransactionStatus::Failed => "=!>",
        };
        match editor.readline(&format!("{name}{sign} ")) {
            Ok(text) => {
                if !text.trim().is_empty() {
                    // A full history is no reason to refuse the statement.
                    let _ = editor.add_history_entry(text.trim_end());
                }
                if run_text(interpreter, &text)? == Flow::Quit {
                    return Ok(());
                }
            }
            // Ctrl-C clears the line.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(Stop::Output(std::io::Error::other(error))),
        }
    }
}

/// Runs the statements of one input. An error drops the remaining statements.
fn run_text(interpreter: &mut Interpreter, text: &str) -> Result<Flow, Stop> {
    let mut splitter = Splitter::default();
    for line in text.split_inclusive('\n') {
        splitter.push(line);
    }
    while let Some(piece) = splitter.next_piece() {
        match interpreter.run(&piece, &Origin::Terminal) {
            Ok(Flow::Continue) => {}
            Ok(Flow::Quit) => return Ok(Flow::Quit),
            Err(Stop::Statement) => return Ok(Flow::Continue),
            Err(stop) => return Err(stop),
        }
    }
    Ok(Flow::Continue)
}
