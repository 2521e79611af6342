//! Meta commands: lines that start with `\`.

use super::interpreter::{Failure, Flow, Interpreter, Output};
use super::{describe, help};
use crate::render::{Expanded, Format};
use crate::session::{Error, SqlState};
use crate::statements::Splitter;
use clap::ValueEnum;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

/// Runs the meta command `line` (with its `\`).
pub fn run(interpreter: &mut Interpreter, line: &str) -> Result<Flow, Failure> {
    let (name, rest) = match line.find(char::is_whitespace) {
        Some(at) => (&line[..at], line[at..].trim()),
        None => (line, ""),
    };
    // A trailing `;` is a habit and not a part of a name.
    let rest = if name == "\\copy" {
        rest
    } else {
        rest.trim_end_matches(';').trim_end()
    };
    match name {
        "\\q" => return Ok(Flow::Quit),
        "\\?" => interpreter.writer().write_all(help::META.as_bytes())?,
        "\\h" => {
            let text = help::statement(rest)?;
            interpreter.writer().write_all(text.as_bytes())?;
        }
        "\\d" if rest.is_empty() => describe::relations(interpreter, true, true)?,
        "\\d" => describe::relation(interpreter, rest)?,
        "\\dt" => describe::relations(interpreter, true, false)?,
        "\\dv" => describe::relations(interpreter, false, true)?,
        "\\di" => describe::indexes(interpreter)?,
        "\\dn" => describe::schemas(interpreter)?,
        "\\l" => describe::database(interpreter)?,
        "\\timing" => timing(interpreter, rest)?,
        "\\x" => expanded(interpreter, rest)?,
        "\\format" => format(interpreter, rest)?,
        "\\null" => interpreter.style.null = unquote(rest).to_string(),
        "\\echo" => writeln!(interpreter.writer(), "{}", unquote(rest))?,
        "\\g" => return again(interpreter),
        "\\e" => edit(interpreter, rest)?,
        "\\i" | "\\ir" => {
            let file = required(name, "a file", rest)?;
            return interpreter
                .run_file(Path::new(unquote(file)))
                .map_err(Failure::Stop);
        }
        "\\o" => output(interpreter, unquote(rest))?,
        "\\copy" => interpreter.run_statement(line[1..].trim_end_matches(';'))?,
        "\\conninfo" => describe::database(interpreter)?,
        _ => return Err(invalid(format!("there is no meta command {name}")).into()),
    }
    Ok(Flow::Continue)
}

fn invalid(message: String) -> Error {
    Error::invalid(SqlState::SYNTAX_ERROR, message).with_hint("\\? lists them all.")
}

fn required<'a>(name: &str, what: &str, rest: &'a str) -> Result<&'a str, Error> {
    if rest.is_empty() {
        return Err(invalid(format!("{name} needs {what}")));
    }
    Ok(rest)
}

/// `'a b'` without its quotes.
fn unquote(text: &str) -> &str {
    text.strip_prefix('\'')
        .and_then(|t| t.strip_suffix('\''))
        .unwrap_or(text)
}

/// The new state of a switch: `on`, `off`, or without an argument the opposite of `now`.
fn switch(name: &str, argument: &str, now: bool) -> Result<bool, Error> {
    match argument.to_ascii_lowercase().as_str() {
        "" => Ok(!now),
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(invalid(format!("{name} is on or off, not {argument:?}"))),
    }
}

fn timing(interpreter: &mut Interpreter, rest: &str) -> Result<(), Failure> {
    interpreter.timing = switch("\\timing", rest, interpreter.timing)?;
    let state = if interpreter.timing { "on" } else { "off" };
    interpreter.print_tag(&format!("Timing is {state}."))?;
    Ok(())
}

fn expanded(interpreter: &mut Interpreter, rest: &str) -> Result<(), Failure> {
    let now = interpreter.style.expanded;
    let (new, text) = match rest {
        "auto" => (
            Expanded::Auto,
            "used when a table does not fit the terminal",
        ),
        _ if switch("\\x", rest, now == Expanded::On)? => (Expanded::On, "on"),
        _ => (Expanded::Off, "off"),
    };
    interpreter.style.expanded = new;
    interpreter.print_tag(&format!("Expanded display is {text}."))?;
    Ok(())
}

fn format(interpreter: &mut Interpreter, rest: &str) -> Result<(), Failure> {
    interpreter.style.format = Format::from_str(required("\\format", "a format", rest)?, true)
        .map_err(|_| {
            let names = "table, csv, json, jsonlines and markdown";
            invalid(format!(
                "there is no format {rest:?}; the formats are {names}"
            ))
        })?;
    Ok(())
}

fn output(interpreter: &mut Interpreter, path: &str) -> Result<(), Failure> {
    interpreter.writer().flush()?;
    interpreter.output = if path.is_empty() {
        Output::Stdout
    } else {
        Output::File(BufWriter::new(
            File::create(path).map_err(|e| Error::io(path, &e))?,
        ))
    };
    Ok(())
}

fn again(interpreter: &mut Interpreter) -> Result<Flow, Failure> {
    let statement = interpreter.last_statement.clone();
    if statement.is_empty() {
        return Err(invalid("there is no statement to run again".to_string()).into());
    }
    interpreter.run_statement(&statement)?;
    Ok(Flow::Continue)
}

/// Opens a file (or the last statement) in an editor, and then runs its content.
fn edit(interpreter: &mut Interpreter, rest: &str) -> Result<(), Failure> {
    let temporary;
    let path = if rest.is_empty() {
        let file = tempfile::Builder::new()
            .prefix("strandline-")
            .suffix(".sql")
            .tempfile()?;
        temporary = file.into_temp_path();
        std::fs::write(&temporary, format!("{};\n", interpreter.last_statement))?;
        &*temporary
    } else {
        Path::new(unquote(rest))
    };
    let variable = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
    let editor = variable("VISUAL")
        .or_else(|| variable("EDITOR"))
        .unwrap_or_else(|| "vi".into());
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let status = Command::new(program)
        .args(words)
        .arg(path)
        .status()
        .map_err(|error| Error::io(format_args!("editor {editor}"), &error))?;
    if !status.success() {
        return Err(invalid(format!("the editor {editor} ended with {status}")).into());
    }
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path.display(), &e))?;
    let mut splitter = Splitter::default();
    splitter.push(&text);
    let mut pieces: Vec<_> = std::iter::from_fn(|| splitter.next_piece()).collect();
    pieces.extend(splitter.finish());
    for piece in pieces {
        writeln!(interpreter.writer(), "{};", piece.text)?;
        interpreter.run_statement(&piece.text)?;
    }
    Ok(())
}
