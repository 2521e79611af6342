//! The options of EXPLAIN.

use datafusion::sql::sqlparser::ast::{
    AnalyzeFormatKind, Expr, Statement as Parsed, UtilityOption,
};
use strandline_base::{Error, Result, SqlState};

/// The layout of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Indent,
    Tree,
}

/// The options of one EXPLAIN.
#[derive(Debug, Default)]
pub struct Options {
    pub analyze: bool,
    pub verbose: bool,
    pub format: Format,
}

impl Options {
    /// The options of `statement`, an EXPLAIN.
    ///
    /// # Errors
    /// Unknown options and formats.
    pub fn of(statement: &Parsed) -> Result<Self> {
        let Parsed::Explain {
            analyze,
            verbose,
            format,
            options,
            ..
        } = statement
        else {
            return Err(Error::internal("EXPLAIN got another statement"));
        };
        let mut wanted = Self {
            analyze: *analyze,
            verbose: *verbose,
            format: Format::Indent,
        };
        if let Some(AnalyzeFormatKind::Keyword(f) | AnalyzeFormatKind::Assignment(f)) = format {
            wanted.format = format_of(&f.to_string())?;
        }
        for option in options.iter().flatten() {
            apply(option, &mut wanted)?;
        }
        Ok(wanted)
    }
}

/// Whether an EXPLAIN runs its statement.
pub fn analyzes(statement: &Parsed) -> bool {
    let Parsed::Explain {
        analyze, options, ..
    } = statement
    else {
        return false;
    };
    let mut wanted = Options {
        analyze: *analyze,
        ..Options::default()
    };
    // A wrong option fails when the statement is executed.
    options
        .iter()
        .flatten()
        .all(|option| apply(option, &mut wanted).is_ok());
    wanted.analyze
}

fn apply(option: &UtilityOption, wanted: &mut Options) -> Result<()> {
    let name = option.name.value.to_ascii_lowercase();
    let value = option.arg.as_ref().map(|value| match value {
        Expr::Identifier(ident) => ident.value.to_ascii_lowercase(),
        other => other.to_string().trim_matches('\'').to_ascii_lowercase(),
    });
    let on = !matches!(value.as_deref(), Some("off" | "false" | "0"));
    match name.as_str() {
        "analyze" => wanted.analyze = on,
        "verbose" => wanted.verbose = on,
        "format" => wanted.format = format_of(value.as_deref().unwrap_or_default())?,
        "costs" | "timing" | "summary" | "buffers" => {}
        _ => {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                format!("unrecognized EXPLAIN option \"{name}\""),
            )
            .with_hint("Available: ANALYZE, VERBOSE, FORMAT TEXT, FORMAT TREE."));
        }
    }
    Ok(())
}

fn format_of(name: &str) -> Result<Format> {
    match name.to_ascii_lowercase().as_str() {
        "text" | "indent" => Ok(Format::Indent),
        "tree" => Ok(Format::Tree),
        other => Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("unrecognized value for EXPLAIN option \"format\": \"{other}\""),
        )
        .with_hint("Available: text, tree.")),
    }
}
