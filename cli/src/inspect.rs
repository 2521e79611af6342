//! `strandline inspect PATH`: the contents of a database.

use crate::render::{self, Format, PrintError, Style};
use crate::session::Database;
use std::io::Write;

/// Prints the sections of the database's inspection as tables.
pub fn run(database: &Database, format: Format, out: &mut dyn Write) -> Result<(), PrintError> {
    let inspection = database.inspect()?;
    let style = Style {
        format,
        ..Style::table()
    };
    for section in &inspection.sections {
        let columns: Vec<&str> = section.columns.iter().map(String::as_str).collect();
        let is_number = |i: usize| {
            let number = |row: &Vec<String>| row.get(i).is_some_and(|text| looks_like_number(text));
            !section.rows.is_empty() && section.rows.iter().all(number)
        };
        let numbers: Vec<bool> = (0..columns.len()).map(is_number).collect();
        let title = Some(section.title.as_str());
        render::print_text(title, &columns, &numbers, &section.rows, &style, out)?;
    }
    Ok(())
}

/// Whether the text is a number, perhaps with a unit, or is empty. Either is aligned to the right.
fn looks_like_number(text: &str) -> bool {
    text.is_empty() || text == "-" || text.starts_with(|c: char| c.is_ascii_digit())
}
