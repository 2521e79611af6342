//! Files of lines, cut into blocks of whole records.
//!
//! A block has about [`BLOCK_BYTES`] and ends with a record, so that blocks can be parsed in
//! parallel. In CSV a line end inside quotes does not end a record, so the cutter counts quotes.
//! Memory is bounded by the blocks in flight, and by [`RECORD_BYTES_MAX`] for one record.

use super::input::Input;
use std::path::PathBuf;
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::text::invalid_sequence;

/// Bytes of a block.
const BLOCK_BYTES: usize = 1 << 20;
/// A line of this ends the data of the text format.
const MARKER: &[u8] = b"\\.";
/// A record longer than this is an error: most likely a quote is missing.
const RECORD_BYTES_MAX: usize = 1 << 28;

/// A block of whole records.
pub(super) struct Block {
    /// the bytes, in UTF-8; the last line end may be missing
    pub text: String,
    /// the number of the first line in the file, from 1
    pub first_line: u64,
    /// bytes of the file up to the end of this block
    pub end: u64,
}

/// The rule for the end of a record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Records {
    /// every line end
    Lines,
    /// line ends outside quotes
    Quoted(Quoting),
    /// line ends without a backslash before them
    Escaped,
}

/// The characters that hide line ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quoting {
    /// opens and closes quotes
    pub quote: u8,
    /// escapes a quote inside quotes
    pub escape: u8,
}

/// Cuts a file into blocks.
pub(super) struct Blocks {
    input: Input,
    path: PathBuf,
    records: Records,
    /// bytes read that are not in a block yet
    rest: Vec<u8>,
    next_line: u64,
    position: u64,
    at_end: bool,
}

impl Blocks {
    /// The blocks of `input`, which is at its start; `path` is its name in errors.
    pub fn new(input: Input, path: PathBuf, records: Records) -> Self {
        Self {
            input,
            path,
            records,
            rest: Vec::new(),
            next_line: 1,
            position: 0,
            at_end: false,
        }
    }

    /// The next block; `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<Block>> {
        let mut scan = RecordEnds::new(self.records);
        let mut searched = 0;
        loop {
            if !self.at_end {
                self.fill()?;
                if let Records::Escaped = self.records {
                    self.stop_at_marker(searched)?;
                    // A line end may still come behind what may be a marker.
                    searched = self.rest.len().saturating_sub(MARKER.len() + 1);
                }
            }
            scan.advance(&self.rest);
            if self.at_end {
                if scan.is_quoted {
                    return Err(self.bad_record(
                        scan.line_of_quote(&self.rest) + self.next_line,
                        "unterminated CSV quoted field",
                    ));
                }
                let whole = std::mem::take(&mut self.rest);
                return if whole.is_empty() {
                    Ok(None)
                } else {
                    self.block(whole).map(Some)
                };
            }
            if let Some(end) = scan.last_end {
                let rest = self.rest.split_off(end);
                let whole = std::mem::replace(&mut self.rest, rest);
                return self.block(whole).map(Some);
            }
            if self.rest.len() > RECORD_BYTES_MAX {
                return Err(self
                    .bad_record(self.next_line, "a record is longer than 256 MiB")
                    .with_hint("Is a quote or a line end missing?"));
            }
        }
    }

    /// Reads another block's worth, or up to the end.
    fn fill(&mut self) -> Result<()> {
        let enough = self.rest.len() + BLOCK_BYTES;
        while self.rest.len() < enough {
            if !self.input.read(&mut self.rest)? {
                self.at_end = true;
                break;
            }
        }
        Ok(())
    }

    /// Ends the data before a line of `\.`, looking for it from `from` on. What a client sends
    /// behind it is thrown away.
    fn stop_at_marker(&mut self, from: usize) -> Result<()> {
        let bytes = &self.rest;
        let is_marker = |at: &usize| {
            let begins = *at == 0 || bytes[at - 1] == b'\n' && !is_escaped(bytes, at - 1);
            begins
                && match &bytes[at + MARKER.len()..] {
                    [] | [b'\r'] => self.at_end,
                    rest => rest.starts_with(b"\n") || rest.starts_with(b"\r\n"),
                }
        };
        let mut found = memchr::memmem::find_iter(&bytes[from..], MARKER).map(|at| from + at);
        let Some(end) = found.find(is_marker) else {
            return Ok(());
        };
        self.rest.truncate(end);
        match std::mem::replace(&mut self.at_end, true) {
            // A client that has ended its data sends nothing more.
            true => Ok(()),
            false => self.input.drain(),
        }
    }

    fn block(&mut self, mut bytes: Vec<u8>) -> Result<Block> {
        let first_line = self.next_line;
        self.position += bytes.len() as u64;
        self.next_line += count(&bytes, b'\n');
        if first_line == 1 && bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        let text = String::from_utf8(bytes).map_err(|e| self.bad_utf8(first_line, &e))?;
        Ok(Block {
            text,
            first_line,
            end: self.position,
        })
    }

    fn bad_utf8(&self, first_line: u64, error: &std::string::FromUtf8Error) -> Error {
        let bytes = error.as_bytes();
        let at = error.utf8_error().valid_up_to();
        let line = first_line + count(&bytes[..at], b'\n');
        Error::invalid(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            format!(
                "{}, line {line}: {}",
                self.path.display(),
                invalid_sequence(bytes, at)
            ),
        )
        .with_hint("Convert the file to UTF-8.")
    }

    fn bad_record(&self, line: u64, what: &str) -> Error {
        Error::invalid(
            SqlState::BAD_COPY_FILE_FORMAT,
            format!("{}, line {line}: {what}", self.path.display()),
        )
    }
}

fn count(bytes: &[u8], wanted: u8) -> u64 {
    memchr::memchr_iter(wanted, bytes).count() as u64
}

/// Whether an odd number of backslashes precedes the byte at `at`.
pub(super) fn is_escaped(bytes: &[u8], at: usize) -> bool {
    let backslashes = bytes[..at].iter().rev().take_while(|b| **b == b'\\');
    backslashes.count() % 2 == 1
}

/// Finds the ends of records in a growing buffer.
struct RecordEnds {
    records: Records,
    is_quoted: bool,
    /// the position of the open quote
    opened: usize,
    /// the position after the last whole record
    last_end: Option<usize>,
    scanned: usize,
}

impl RecordEnds {
    fn new(records: Records) -> Self {
        Self {
            records,
            is_quoted: false,
            opened: 0,
            last_end: None,
            scanned: 0,
        }
    }

    fn advance(&mut self, bytes: &[u8]) {
        let Quoting { quote, escape } = match self.records {
            Records::Quoted(quoting) => quoting,
            Records::Lines => {
                self.last_end = memchr::memrchr(b'\n', bytes).map(|at| at + 1);
                return;
            }
            Records::Escaped => {
                let mut ends = memchr::memrchr_iter(b'\n', bytes);
                self.last_end = ends.find(|at| !is_escaped(bytes, *at)).map(|at| at + 1);
                return;
            }
        };
        let mut at = self.scanned;
        while at < bytes.len() {
            let found = if self.is_quoted {
                memchr::memchr2(quote, escape, &bytes[at..])
            } else {
                memchr::memchr2(quote, b'\n', &bytes[at..])
            };
            let Some(offset) = found else {
                at = bytes.len();
                break;
            };
            at += offset;
            let byte = bytes[at];
            if self.is_quoted && byte == escape && escape != quote {
                if at + 1 == bytes.len() {
                    break;
                }
                let hidden = bytes[at + 1] == quote || bytes[at + 1] == escape;
                at += if hidden { 2 } else { 1 };
                continue;
            }
            if byte == quote {
                // A doubled quote closes and reopens, with the same effect.
                self.is_quoted = !self.is_quoted;
                self.opened = at;
            } else {
                self.last_end = Some(at + 1);
            }
            at += 1;
        }
        self.scanned = at;
    }

    /// The number of lines before the line with the open quote.
    fn line_of_quote(&self, bytes: &[u8]) -> u64 {
        count(&bytes[..self.opened], b'\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn blocks(content: &[u8], records: Records) -> Result<Vec<Block>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let mut blocks = Blocks::new(
            Input::File(file.reopen().unwrap(), "f.csv".into()),
            "f.csv".into(),
            records,
        );
        let mut all = Vec::new();
        while let Some(block) = blocks.next()? {
            all.push(block);
        }
        Ok(all)
    }

    const DOUBLED: Records = Records::Quoted(Quoting {
        quote: b'"',
        escape: b'"',
    });
    const BACKSLASH: Records = Records::Quoted(Quoting {
        quote: b'"',
        escape: b'\\',
    });

    #[test]
    fn blocks_are_whole_records_in_order() {
        let mut content = Vec::new();
        for i in 0..300_000 {
            writeln!(content, "{i},\"line one\nline \"\"two\"\"\",x").unwrap();
        }
        let all = blocks(&content, DOUBLED).unwrap();
        assert!(all.len() > 5, "{}", all.len());
        let mut next_line = 1;
        for block in &all {
            assert_eq!(block.first_line, next_line);
            assert!(block.text.ends_with(",x\n"));
            assert!(block.text.starts_with(|c: char| c.is_ascii_digit()));
            next_line += count(block.text.as_bytes(), b'\n');
        }
        let joined: String = all.iter().map(|b| b.text.as_str()).collect();
        assert_eq!(joined.as_bytes(), content);
        assert_eq!(all.last().unwrap().end, content.len() as u64);
    }

    #[test]
    fn ends_and_starts_of_files() {
        assert!(blocks(b"", DOUBLED).unwrap().is_empty());
        assert_eq!(blocks(b"a", Records::Lines).unwrap()[0].text, "a");
        assert_eq!(
            blocks(b"\xef\xbb\xbfa,b\n", DOUBLED).unwrap()[0].text,
            "a,b\n"
        );
        assert_eq!(blocks(b"\"x\\\"y\nz\"\nb\n", BACKSLASH).unwrap().len(), 1);
    }

    #[test]
    fn a_marker_ends_lines_with_backslashes() {
        for (content, kept) in [
            ("a\n\\.\nrest", "a\n"),
            ("\\.\n", ""),
            ("a\n\\.", "a\n"),
            ("a\n\\.\r\nrest", "a\n"),
            ("a\\\n\\.\nb\n", "a\\\n\\.\nb\n"),
            ("a\\\\\n\\.\nb\n", "a\\\\\n"),
            ("a\n\\.b\nx\\.\n", "a\n\\.b\nx\\.\n"),
        ] {
            let all = blocks(content.as_bytes(), Records::Escaped).unwrap();
            let text: String = all.iter().map(|b| b.text.as_str()).collect();
            assert_eq!(text, kept, "{content:?}");
        }
        let all = blocks(b"a\n\\.\n", Records::Lines).unwrap();
        assert_eq!(all[0].text, "a\n\\.\n");
    }

    #[test]
    fn open_quotes_and_bad_bytes_are_located() {
        let open = blocks(b"a,b\nc,\"d\ne,f\n", DOUBLED).err().unwrap();
        assert!(
            open.message().contains("f.csv, line 2: unterminated"),
            "{open}"
        );
        let escaped = blocks(b"\"a\\\"b\nc\n", BACKSLASH).err().unwrap();
        assert!(
            escaped.message().contains("line 1: unterminated"),
            "{escaped}"
        );
        let bad = blocks(b"a\nb\nc\xff\n", DOUBLED).err().unwrap();
        assert!(
            bad.message().contains("line 3: invalid byte sequence"),
            "{bad}"
        );
        assert_eq!(bad.sqlstate(), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
    }
}
