//! Splits SQL text into statements without parsing it. A statement ends at a `;` that is outside
//! quotes, dollar quotes and comments. A line that starts with `\` where a statement could start is
//! a meta command and ends with the line.
//!
//! The splitter works on text as it arrives, in whole lines, and never looks at a byte twice. A
//! dump of many megabytes on standard input therefore costs linear time, and memory only for its
//! longest statement.
//!
//! Invariants: every delimiter is ASCII, so scanning bytes never splits a character. Text is pushed
//! in whole lines, so no delimiter of several bytes is ever cut in two.

/// One piece of input, with the number of its first line (from 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// A statement without its `;`, or a meta command with its `\`; trimmed.
    pub text: String,
    /// The line on which `text` starts.
    pub line: usize,
    /// The kind of input.
    pub kind: PieceKind,
}

/// The kind of a [`Piece`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// an SQL statement
    Statement,
    /// a meta command such as `\dt`
    Meta,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LexerState {
    Plain,
    /// `'…'`; with backslash escapes after `E`
    String {
        escapes: bool,
    },
    /// `"…"`
    Identifier,
    /// `$tag$ … $tag$`, the delimiter with both dollars
    Dollar(String),
    LineComment,
    /// `/* … */`, nested
    BlockComment {
        depth: usize,
    },
}

/// Splits text into [`Piece`]s; see the module's header.
#[derive(Debug)]
pub struct Splitter {
    buffer: String,
    /// All text before this offset has been returned; the next `push` removes it.
    consumed: usize,
    /// All text before this offset has been scanned.
    scanned: usize,
    state: LexerState,
    /// Line of the byte at `scanned`.
    line: usize,
    /// Line and offset of the first byte of the pending statement that is not blank or comment.
    start: Option<(usize, usize)>,
}

impl Default for Splitter {
    fn default() -> Self {
        Self {
            buffer: String::new(),
            consumed: 0,
            scanned: 0,
            state: LexerState::Plain,
            line: 1,
            start: None,
        }
    }
}

impl Splitter {
    /// Adds text: one or more whole lines, or the last one without its newline.
    pub fn push(&mut self, lines: &str) {
        self.buffer.drain(..self.consumed);
        self.scanned -= self.consumed;
        if let Some((_, offset)) = &mut self.start {
            *offset -= self.consumed;
        }
        self.consumed = 0;
        self.buffer.push_str(lines);
    }

    /// The next complete piece, if there is one.
    pub fn next_piece(&mut self) -> Option<Piece> {
        while self.scanned < self.buffer.len() {
            if self.state == LexerState::Plain
                && self.start.is_none()
                && self.buffer.as_bytes()[self.scanned] == b'\\'
            {
                return Some(self.take_meta());
            }
            if self.step()
                && let Some(piece) = self.take_statement()
            {
                return Some(piece);
            }
        }
        if self.start.is_none() && self.state == LexerState::Plain {
            self.consumed = self.scanned;
        }
        None
    }

    /// The rest at the end of the input: a statement without `;`, or nothing. An unterminated quote
    /// is left for the parser to report.
    pub fn finish(mut self) -> Option<Piece> {
        if let Some(piece) = self.next_piece() {
            return Some(piece);
        }
        self.take_statement()
    }

    /// Whether the text so far ends inside a statement (or a quote or comment).
    pub fn is_pending(&self) -> bool {
        self.start.is_some() || !matches!(self.state, LexerState::Plain | LexerState::LineComment)
    }

    /// Scans the next token; returns true if it was a `;` between statements.
    fn step(&mut self) -> bool {
        let rest = &self.buffer.as_bytes()[self.scanned..];
        let (advance, next) = match &self.state {
            LexerState::Plain => {
                if rest[0] == b';' {
                    self.scanned += 1;
                    return true;
                }
                let (advance, next) = self.step_plain(rest);
                let comment = matches!(
                    next,
                    Some(LexerState::LineComment | LexerState::BlockComment { .. })
                );
                if self.start.is_none() && !comment && !rest[0].is_ascii_whitespace() {
                    self.start = Some((self.line, self.scanned));
                }
                (advance, next)
            }
            LexerState::String { escapes } => match rest[0] {
                b'\\' if *escapes && rest.len() > 1 => (2, None),
                b'\'' if rest.get(1) == Some(&b'\'') => (2, None),
                b'\'' => (1, Some(LexerState::Plain)),
                _ => (1, None),
            },
            LexerState::Identifier => (1, (rest[0] == b'"').then_some(LexerState::Plain)),
            LexerState::Dollar(delimiter) => {
                if rest.starts_with(delimiter.as_bytes()) {
                    (delimiter.len(), Some(LexerState::Plain))
                } else {
                    (1, None)
                }
            }
            LexerState::LineComment => (1, (rest[0] == b'\n').then_some(LexerState::Plain)),
            LexerState::BlockComment { depth } => match rest {
                [b'/', b'*', ..] => (2, Some(LexerState::BlockComment { depth: depth + 1 })),
                [b'*', b'/', ..] if *depth == 1 => (2, Some(LexerState::Plain)),
                [b'*', b'/', ..] => (2, Some(LexerState::BlockComment { depth: depth - 1 })),
                _ => (1, None),
            },
        };
        self.line += rest[..advance].iter().filter(|&&b| b == b'\n').count();
        self.scanned += advance;
        if let Some(next) = next {
            self.state = next;
        }
        false
    }

    /// Scans a token outside quotes: its length, and the state after it if that changes.
    fn step_plain(&self, rest: &[u8]) -> (usize, Option<LexerState>) {
        match rest {
            [b'\'', ..] => (
                1,
                Some(LexerState::String {
                    escapes: self.after_escape_prefix(),
                }),
            ),
            [b'"', ..] => (1, Some(LexerState::Identifier)),
            [b'-', b'-', ..] => (2, Some(LexerState::LineComment)),
            [b'/', b'*', ..] => (2, Some(LexerState::BlockComment { depth: 1 })),
            [b'$', ..] if !self.after_word() => match dollar_delimiter(rest) {
                Some(delimiter) => (delimiter.len(), Some(LexerState::Dollar(delimiter))),
                None => (1, None),
            },
            _ => (1, None),
        }
    }

    /// Whether the byte before the current one belongs to an identifier or number.
    fn after_word(&self) -> bool {
        self.buffer.as_bytes()[..self.scanned]
            .last()
            .is_some_and(|&b| is_word(b))
    }

    /// Whether the quote at the current position opens an `E'…'` string.
    fn after_escape_prefix(&self) -> bool {
        match self.buffer.as_bytes()[..self.scanned] {
            [.., before, b'e' | b'E'] => !is_word(before),
            [b'e' | b'E'] => true,
            _ => false,
        }
    }

    /// The statement before the current position; None if it is blank.
    fn take_statement(&mut self) -> Option<Piece> {
        let found = self.start.take();
        let piece = found.map(|(line, offset)| {
            let text = self.buffer[offset..self.scanned].trim_end();
            let text = text
                .strip_suffix(';')
                .unwrap_or(text)
                .trim_end()
                .to_string();
            Piece {
                text,
                line,
                kind: PieceKind::Statement,
            }
        });
        self.consumed = self.scanned;
        piece
    }

    /// The rest of the line as a meta command.
    fn take_meta(&mut self) -> Piece {
        let rest = &self.buffer[self.scanned..];
        let length = rest.find('\n').map_or(rest.len(), |at| at + 1);
        let text = rest[..length].trim().to_string();
        let line = self.line;
        self.line += usize::from(rest[..length].ends_with('\n'));
        self.scanned += length;
        self.consumed = self.scanned;
        Piece {
            text,
            line,
            kind: PieceKind::Meta,
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// `$$` or `$tag$` at the start of `text`, if there is one.
fn dollar_delimiter(text: &[u8]) -> Option<String> {
    let length = text[1..].iter().position(|&b| b == b'$')?;
    let tag = &text[1..=length];
    let valid = tag.iter().all(|&b| is_word(b) && b != b'$')
        && tag.first().is_none_or(|b| !b.is_ascii_digit());
    valid.then(|| format!("${}$", String::from_utf8_lossy(tag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<(String, usize)> {
        let mut splitter = Splitter::default();
        let mut pieces = Vec::new();
        for line in text.split_inclusive('\n') {
            splitter.push(line);
            while let Some(piece) = splitter.next_piece() {
                pieces.push((piece.text, piece.line));
            }
        }
        pieces.extend(splitter.finish().map(|piece| (piece.text, piece.line)));
        pieces
    }

    fn texts(text: &str) -> Vec<String> {
        split(text).into_iter().map(|(text, _)| text).collect()
    }

    #[test]
    fn statements_end_at_semicolons() {
        assert_eq!(texts("select 1; select 2;\n"), ["select 1", "select 2"]);
        assert_eq!(texts("select 1"), ["select 1"]);
        assert_eq!(texts(" ;; \n ; "), Vec::<String>::new());
        assert_eq!(texts(""), Vec::<String>::new());
    }

    #[test]
    fn quotes_and_comments_hide_semicolons() {
        for statement in [
            "select ';'",
            "select 'a''b;c'",
            r"select E'a\';b'",
            r"select E'a''b\';c'",
            "select \"a;b\"",
            "select $$a;b$$",
            "select $x$a;$$;$y$;b$x$",
            "select 1 /* ; /* ; */ ; */ + 1",
            "select 1 -- ;\n + 1",
            "select $1",
            "select a$b$c",
            "select 'ä;ö', 'e'';'",
        ] {
            let text = format!("{statement};\nselect 2;");
            assert_eq!(texts(&text), [statement, "select 2"], "{statement}");
        }
    }

    #[test]
    fn plain_strings_know_no_backslash() {
        assert_eq!(
            texts(r"select 'a\'; select 2;"),
            [r"select 'a\'", "select 2"]
        );
        assert_eq!(
            texts(r"select some'a\'; select 2;"),
            [r"select some'a\'", "select 2"]
        );
    }

    #[test]
    fn lines_are_those_of_the_first_token() {
        let text = "-- head\n\nselect\n 1;\n/* x\n */ select '\n'; select 3\n;";
        let expected = [
            ("select\n 1".to_string(), 3),
            ("select '\n'".into(), 6),
            ("select 3".into(), 7),
        ];
        assert_eq!(split(text), expected);
    }

    #[test]
    fn meta_commands_end_with_the_line() {
        let text = "\\dt\nselect 1;\n  \\d t; x\nselect\n\\nope;\n";
        let mut splitter = Splitter::default();
        splitter.push(text);
        let pieces: Vec<_> = std::iter::from_fn(|| splitter.next_piece()).collect();
        let kinds: Vec<_> = pieces
            .iter()
            .map(|p| (p.text.as_str(), p.line, p.kind))
            .collect();
        assert_eq!(
            kinds,
            [
                ("\\dt", 1, PieceKind::Meta),
                ("select 1", 2, PieceKind::Statement),
                ("\\d t; x", 3, PieceKind::Meta),
                ("select\n\\nope", 4, PieceKind::Statement),
            ]
        );
    }

    #[test]
    fn pending_tells_whether_more_is_needed() {
        for (text, pending) in [
            ("", false),
            ("  \n", false),
            ("-- note", false),
            ("/* note", true),
            ("select 1", true),
            ("select 1;", false),
            ("select ';", true),
            ("select $$;", true),
            ("\\dt", false),
        ] {
            let mut splitter = Splitter::default();
            splitter.push(text);
            while splitter.next_piece().is_some() {}
            assert_eq!(splitter.is_pending(), pending, "{text}");
        }
    }

    #[test]
    fn unterminated_text_is_handed_over() {
        assert_eq!(texts("select 'a;\nb"), ["select 'a;\nb"]);
        assert_eq!(texts("/* never closed;"), Vec::<String>::new());
    }

    #[test]
    fn a_long_statement_costs_linear_time() {
        let mut splitter = Splitter::default();
        let line = "insert into t values ('x', 1),\n";
        for _ in 0..50_000 {
            splitter.push(line);
            assert!(splitter.next_piece().is_none());
        }
        let piece = splitter.finish().expect("the statement");
        assert_eq!(piece.text.len(), line.len() * 50_000 - 1);
    }
}
