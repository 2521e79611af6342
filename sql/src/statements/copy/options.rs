//! The options of COPY: PostgreSQL's `WITH (FORMAT csv, HEADER, …)` and the older `WITH CSV HEADER
//! DELIMITER ','`. Without FORMAT the file's extension determines the format.

use crate::parse::names;
use datafusion::sql::sqlparser::ast::{CopyLegacyCsvOption, CopyLegacyOption, CopyOption};
use std::path::Path;
use strandline_base::{Error, Result, SqlState};

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// PostgreSQL's text format
    Text,
    /// PostgreSQL's binary format
    Binary,
    /// comma-separated values, as PostgreSQL defines them
    Csv,
    /// Apache Parquet
    Parquet,
    /// one JSON object per line
    Json,
}

/// The form of a CSV file; PostgreSQL's text format uses the first three fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CsvOptions {
    /// the first line has the columns' names
    pub header: bool,
    /// the byte between fields
    pub delimiter: u8,
    /// the unquoted field that means NULL; in text format before backslashes are resolved
    pub null: String,
    /// the byte around quoted fields
    pub quote: u8,
    /// the byte before a quote inside quotes
    pub escape: u8,
    /// columns that are always quoted (TO)
    pub force_quote: Vec<String>,
    /// columns whose unquoted fields are never NULL (FROM)
    pub force_not_null: Vec<String>,
    /// columns whose quoted fields can be NULL too (FROM)
    pub force_null: Vec<String>,
}

/// All options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// the format of the file
    pub format: Format,
    /// for CSV and text
    pub csv: CsvOptions,
}

/// The given options, each at most once.
#[derive(Default)]
struct GivenOptions {
    format: Option<String>,
    header: Option<bool>,
    delimiter: Option<char>,
    null: Option<String>,
    quote: Option<char>,
    escape: Option<char>,
    force_quote: Option<Vec<String>>,
    force_not_null: Option<Vec<String>>,
    force_null: Option<Vec<String>>,
}

fn syntax(message: impl Into<String>) -> Error {
    Error::invalid(SqlState::SYNTAX_ERROR, message)
}

fn set<T>(slot: &mut Option<T>, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(syntax("conflicting or redundant options of COPY")),
    }
}

impl Options {
    /// Reads the options of a COPY of the file at `path`; None: a client.
    pub fn read(
        path: Option<&Path>,
        options: &[CopyOption],
        legacy: &[CopyLegacyOption],
    ) -> Result<Self> {
        let mut written = GivenOptions::default();
        for option in options {
            written.add(option)?;
        }
        for option in legacy {
            written.add_legacy(option)?;
        }
        written.finish(path)
    }
}

impl GivenOptions {
    fn add(&mut self, option: &CopyOption) -> Result<()> {
        let fold = |names: &[_]| names.iter().map(names::fold).collect::<Vec<_>>();
        match option {
            CopyOption::Format(name) => set(&mut self.format, name.value.to_lowercase()),
            CopyOption::Header(on) => set(&mut self.header, *on),
            CopyOption::Delimiter(c) => set(&mut self.delimiter, *c),
            CopyOption::Null(text) => set(&mut self.null, text.clone()),
            CopyOption::Quote(c) => set(&mut self.quote, *c),
            CopyOption::Escape(c) => set(&mut self.escape, *c),
            CopyOption::ForceQuote(columns) => set(&mut self.force_quote, fold(columns)),
            CopyOption::ForceNotNull(columns) => set(&mut self.force_not_null, fold(columns)),
            CopyOption::ForceNull(columns) => set(&mut self.force_null, fold(columns)),
            CopyOption::Freeze(_) => Ok(()),
            CopyOption::Encoding(name) => match name.to_lowercase().as_str() {
                "utf8" | "utf-8" | "unicode" => Ok(()),
                _ => Err(Error::unsupported(format!(
                    "COPY in encoding \"{name}\" is not supported"
                ))
                .with_hint("Convert the file to UTF-8.")),
            },
        }
    }

    fn add_legacy(&mut self, option: &CopyLegacyOption) -> Result<()> {
        match option {
            CopyLegacyOption::Csv(options) => {
                set(&mut self.format, "csv".to_string())?;
                options.iter().try_for_each(|o| self.add_legacy_csv(o))
            }
            CopyLegacyOption::Header => set(&mut self.header, true),
            CopyLegacyOption::Delimiter(c) => set(&mut self.delimiter, *c),
            CopyLegacyOption::Null(text) => set(&mut self.null, text.clone()),
            CopyLegacyOption::Parquet => set(&mut self.format, "parquet".to_string()),
            CopyLegacyOption::Binary => set(&mut self.format, "binary".to_string()),
            CopyLegacyOption::Json(None) => set(&mut self.format, "json".to_string()),
            other => Err(Error::unsupported(format!(
                "COPY with {other} is not supported"
            ))),
        }
    }

    fn add_legacy_csv(&mut self, option: &CopyLegacyCsvOption) -> Result<()> {
        let fold = |names: &[_]| names.iter().map(names::fold).collect::<Vec<_>>();
        match option {
            CopyLegacyCsvOption::Header => set(&mut self.header, true),
            CopyLegacyCsvOption::Quote(c) => set(&mut self.quote, *c),
            CopyLegacyCsvOption::Escape(c) => set(&mut self.escape, *c),
            CopyLegacyCsvOption::ForceQuote(columns) => set(&mut self.force_quote, fold(columns)),
            CopyLegacyCsvOption::ForceNotNull(columns) => {
                set(&mut self.force_not_null, fold(columns))
            }
        }
    }

    fn finish(self, path: Option<&Path>) -> Result<Options> {
        let extension = path
            .and_then(Path::extension)
            .and_then(|e| e.to_str())
            .unwrap_or_default()
            .to_lowercase();
        let format = self.format(path, &extension)?;
        self.check_for(format)?;
        let delimiter = match (format, &self.format, extension.as_str()) {
            (Format::Text, ..) | (_, None, "tsv") => '\t',
            (_, None, "tbl") => '|',
            _ => ',',
        };
        let null = match format {
            Format::Text => "\\N",
            _ => "",
        };
        let quote = byte("QUOTE", self.quote.unwrap_or('"'))?;
        let csv = CsvOptions {
            header: self.header.unwrap_or(false),
            delimiter: byte("DELIMITER", self.delimiter.unwrap_or(delimiter))?,
            null: self.null.unwrap_or_else(|| null.to_string()),
            quote,
            escape: self.escape.map_or(Ok(quote), |c| byte("ESCAPE", c))?,
            force_quote: self.force_quote.unwrap_or_default(),
            force_not_null: self.force_not_null.unwrap_or_default(),
            force_null: self.force_null.unwrap_or_default(),
        };
        match format {
            Format::Text => csv.check_text()?,
            _ => csv.check()?,
        }
        Ok(Options { format, csv })
    }

    /// The format by FORMAT, by the file's extension, or by the other options.
    fn format(&self, path: Option<&Path>, extension: &str) -> Result<Format> {
        let is_csv = self.quote.is_some()
            || self.escape.is_some()
            || self.force_quote.is_some()
            || self.force_not_null.is_some()
            || self.force_null.is_some();
        let is_lines =
            is_csv || self.header.is_some() || self.delimiter.is_some() || self.null.is_some();
        match (self.format.as_deref(), path) {
            (Some("text"), _) => Ok(Format::Text),
            (Some("binary"), _) => Ok(Format::Binary),
            (Some("csv"), _) => Ok(Format::Csv),
            (Some("parquet"), _) => Ok(Format::Parquet),
            (Some("json" | "jsonl" | "ndjson" | "jsonlines"), _) => Ok(Format::Json),
            (Some(other), _) => Err(Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("COPY format \"{other}\" not recognized"),
            )
            .with_hint("Use text, csv, binary, parquet or json.")),
            (None, None) => Ok(Format::Text),
            (None, Some(path)) => match extension {
                "csv" | "tsv" | "tbl" => Ok(Format::Csv),
                "parquet" | "pq" | "parq" => Ok(Format::Parquet),
                "json" | "jsonl" | "ndjson" => Ok(Format::Json),
                _ if is_lines => Ok(Format::Csv),
                _ => Err(Error::invalid(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!(
                        "the format of \"{}\" is not known from its name",
                        path.display()
                    ),
                )
                .with_hint("Say WITH (FORMAT csv), text, binary, parquet or json.")),
            },
        }
    }

    /// Checks that all options apply to `format`.
    fn check_for(&self, format: Format) -> Result<()> {
        let for_lines = self.header.is_some() || self.delimiter.is_some() || self.null.is_some();
        let for_csv = self.quote.is_some()
            || self.escape.is_some()
            || self.force_quote.is_some()
            || self.force_not_null.is_some()
            || self.force_null.is_some();
        match format {
            Format::Csv => Ok(()),
            Format::Text if !for_csv => Ok(()),
            Format::Text => Err(syntax("QUOTE, ESCAPE and FORCE_… are for FORMAT csv")),
            _ if for_lines || for_csv => Err(syntax(
                "HEADER, DELIMITER, NULL, QUOTE, ESCAPE and FORCE_… are for FORMAT csv",
            )),
            _ => Ok(()),
        }
    }
}

fn byte(what: &str, c: char) -> Result<u8> {
    match u8::try_from(c) {
        Ok(b) if b.is_ascii() && !matches!(b, b'\n' | b'\r' | 0) => Ok(b),
        _ => Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("COPY {what} must be a single one-byte character that is not a line end"),
        )),
    }
}

impl CsvOptions {
    /// The defaults of PostgreSQL's text format.
    #[cfg(test)]
    pub fn of_text() -> Self {
        Self {
            header: false,
            delimiter: b'\t',
            null: "\\N".to_string(),
            quote: b'"',
            escape: b'"',
            force_quote: Vec::new(),
            force_not_null: Vec::new(),
            force_null: Vec::new(),
        }
    }

    fn check_text(&self) -> Result<()> {
        let refused =
            |message: &str| Err(Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message));
        if self.delimiter.is_ascii_alphanumeric() || b"\\.".contains(&self.delimiter) {
            return refused("COPY delimiter must not be a letter, a digit, a backslash or a point");
        }
        if self.null.as_bytes().contains(&self.delimiter) {
            return refused("COPY delimiter must not appear in the NULL specification");
        }
        if self.null.contains(['\n', '\r']) {
            return refused("COPY NULL representation must not contain a line end");
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let refused =
            |message: &str| Err(Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message));
        if self.delimiter == self.quote {
            return refused("COPY delimiter and quote must be different");
        }
        if self.null.as_bytes().contains(&self.delimiter) {
            return refused("COPY delimiter must not appear in the NULL specification");
        }
        if self.null.as_bytes().contains(&self.quote) {
            return refused("COPY quote must not appear in the NULL specification");
        }
        if self.null.contains(['\n', '\r']) {
            return refused("COPY NULL representation must not contain a line end");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::ast::Statement;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn read(file: &str, rest: &str) -> Result<Options> {
        let sql = format!("COPY t FROM '{file}' {rest}");
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &sql).expect(&sql);
        let [
            Statement::Copy {
                options,
                legacy_options,
                ..
            },
        ] = parsed.as_slice()
        else {
            panic!("{sql}")
        };
        Options::read(Some(Path::new(file)), options, legacy_options)
    }

    #[test]
    fn formats_come_from_option_or_extension() {
        for (file, rest, format) in [
            ("a.csv", "", Format::Csv),
            ("a.CSV", "", Format::Csv),
            ("a.parquet", "", Format::Parquet),
            ("a.jsonl", "", Format::Json),
            ("a", "(FORMAT csv)", Format::Csv),
            ("a", "WITH (FORMAT 'parquet')", Format::Parquet),
            ("a.csv", "(FORMAT JSON)", Format::Json),
            ("a", "CSV HEADER", Format::Csv),
            ("a.txt", "WITH DELIMITER '|'", Format::Csv),
            ("a", "PARQUET", Format::Parquet),
        ] {
            assert_eq!(
                read(file, rest).expect(rest).format,
                format,
                "{file} {rest}"
            );
        }
        assert!(read("a.dat", "").is_err());
        assert_eq!(read("a.csv", "(FORMAT text)").unwrap().format, Format::Text);
        assert!(read("a.csv", "(FORMAT text, QUOTE 'x')").is_err());
        assert!(read("a.csv", "(FORMAT binary, HEADER)").is_err());
        assert!(read("a.csv", "(FORMAT excel)").is_err());
        assert!(read("a.parquet", "(HEADER)").is_err());
    }

    #[test]
    fn csv_options_of_both_styles_agree() {
        let new = read(
            "a.csv",
            "WITH (HEADER, DELIMITER ';', NULL 'NA', QUOTE '''', ESCAPE '\\', FORCE_NULL (A, b))",
        );
        let new = new.unwrap().csv;
        assert!(new.header);
        assert_eq!((new.delimiter, new.quote, new.escape), (b';', b'\'', b'\\'));
        assert_eq!(new.null, "NA");
        assert_eq!(new.force_null, ["a", "b"]);
        let old = read(
            "a",
            "DELIMITER AS ';' NULL AS 'NA' CSV HEADER QUOTE AS ''''",
        )
        .unwrap()
        .csv;
        assert_eq!((old.delimiter, old.quote, old.escape), (b';', b'\'', b'\''));
        assert_eq!((old.header, old.null.as_str()), (true, "NA"));
        assert_eq!(read("a.tsv", "").unwrap().csv.delimiter, b'\t');
        assert_eq!(
            read("a.csv", "(DELIMITER E'\\t')").unwrap().csv.delimiter,
            b'\t'
        );
    }

    #[test]
    fn contradictions_are_refused() {
        for rest in [
            "(DELIMITER '\"')",
            "(NULL 'a,b')",
            "(NULL '\"')",
            "(HEADER, HEADER)",
            "(ENCODING 'latin1')",
            "(FORMAT csv) CSV",
        ] {
            assert!(read("a.csv", rest).is_err(), "{rest}");
        }
    }
}
