//! Tables with aligned columns, as psql prints them.
//!
//! The widths come from the first page of rows. Later pages keep them, so a longer value further
//! down only widens its own line. On a terminal that is too narrow the widest columns are
//! shortened. If even short columns do not fit, each row becomes a block of lines (see `expanded`).

use super::pages::{Page, Pages};
use super::text::ALIGN_RIGHT;
use super::{
    Batches, Expanded, PrintError, Style, display_width, expanded, fit, is_number, printable,
    row_count,
};
use arrow::datatypes::{Field, SchemaRef};
use std::io::Write;

/// Columns are not shortened below this width.
const SHORTEST: usize = 8;

/// One column of the table.
struct Column {
    name: String,
    right: bool,
    width: usize,
}

pub(super) fn print(
    batches: &mut dyn Batches,
    style: &Style,
    out: &mut dyn Write,
) -> Result<u64, PrintError> {
    let schema = batches.schema();
    let mut pages = Pages::new(batches);
    let first = pages.next_page()?;
    if style.expanded == Expanded::On {
        return expanded::print(&schema, first, &mut pages, style, out);
    }
    let mut columns = columns(&schema, &first, style);
    let shortened = match style.width {
        Some(width) => match shorten(&mut columns, width) {
            Some(shortened) => shortened,
            None if style.expanded == Expanded::Auto && !first.is_empty() => {
                return expanded::print(&schema, first, &mut pages, style, out);
            }
            None => 0,
        },
        None => 0,
    };
    if style.header {
        print_header(&columns, out)?;
    }
    let mut rows = 0;
    let mut page = first;
    while !page.is_empty() {
        rows += page.len() as u64;
        for row in &page {
            print_row(row, &columns, style, out)?;
        }
        page = pages.next_page()?;
    }
    if style.row_count {
        let note = match shortened {
            0 => String::new(),
            1 => " 1 column shortened, \\x shows all".to_string(),
            n => format!(" {n} columns shortened, \\x shows all"),
        };
        writeln!(out, "{}{note}", row_count(rows))?;
        writeln!(out)?;
    }
    Ok(rows)
}

fn columns(schema: &SchemaRef, page: &Page, style: &Style) -> Vec<Column> {
    schema
        .fields()
        .iter()
        .enumerate()
        .map(|(i, field)| {
            let name = printable(field.name()).replace('\n', " ");
            let header = if style.header {
                display_width(&name)
            } else {
                0
            };
            let cells = page.iter().map(|row| match &row[i] {
                Some(text) => text.split('\n').map(display_width).max().unwrap_or(0),
                None => display_width(&style.null),
            });
            Column {
                right: aligns_right(field),
                width: cells.max().unwrap_or(0).max(header),
                name,
            }
        })
        .collect()
}

fn aligns_right(field: &Field) -> bool {
    is_number(field.data_type()) || field.metadata().contains_key(ALIGN_RIGHT)
}

/// Shortens the widest columns until the table fits `width`. Returns how many were shortened, or
/// None (and changes nothing) if they would become unreadable. Numbers are never shortened.
fn shorten(columns: &mut [Column], width: usize) -> Option<usize> {
    let borders = 3 * columns.len();
    let total: usize = columns.iter().map(|c| c.width).sum::<usize>() + borders;
    if total <= width {
        return Some(0);
    }
    // The limit is the largest width that, applied to all columns of text, makes the table fit.
    let fits = |limit: usize| {
        let needed = |c: &Column| if c.right { c.width } else { c.width.min(limit) };
        columns.iter().map(needed).sum::<usize>() + borders <= width
    };
    let limit = (SHORTEST..width).rev().find(|&limit| fits(limit))?;
    let mut shortened = 0;
    for column in columns.iter_mut().filter(|c| !c.right && c.width > limit) {
        column.width = limit;
        shortened += 1;
    }
    Some(shortened)
}

fn print_header(columns: &[Column], out: &mut dyn Write) -> std::io::Result<()> {
    let mut names = String::new();
    let mut rule = String::new();
    for (i, column) in columns.iter().enumerate() {
        if i > 0 {
            names.push('|');
            rule.push('+');
        }
        let name = fit(&column.name, column.width);
        let blank = column.width - display_width(&name);
        let left = blank / 2;
        names.push_str(&" ".repeat(left + 1));
        names.push_str(&name);
        names.push_str(&" ".repeat(blank - left + 1));
        rule.push_str(&"-".repeat(column.width + 2));
    }
    writeln!(out, "{}", names.trim_end())?;
    writeln!(out, "{rule}")
}

/// Prints a row. A value of several lines takes several output lines, marked with `+` as in psql.
fn print_row(
    row: &[Option<String>],
    columns: &[Column],
    style: &Style,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let cells: Vec<Vec<&str>> = row
        .iter()
        .map(|cell| cell.as_deref().unwrap_or(&style.null).split('\n').collect())
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(1);
    for line in 0..height {
        let mut text = String::new();
        for (i, (column, cell)) in columns.iter().zip(&cells).enumerate() {
            if i > 0 {
                text.push('|');
            }
            let shown = cell.get(line).copied().unwrap_or("");
            let limited = style.width.is_some() && !column.right;
            let shown = if limited {
                fit(shown, column.width)
            } else {
                shown.to_string()
            };
            let blank = " ".repeat(column.width.saturating_sub(display_width(&shown)));
            text.push(' ');
            let (before, after) = if column.right {
                (blank, String::new())
            } else {
                (String::new(), blank)
            };
            text.push_str(&before);
            text.push_str(&shown);
            text.push_str(&after);
            text.push(if line + 1 < cell.len() { '+' } else { ' ' });
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}
