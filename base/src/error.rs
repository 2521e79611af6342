//! One error type for the whole engine: a kind that says what the caller can do, an SQLSTATE as
//! PostgreSQL assigns it, a message that names object and value, and optionally a detail and a
//! hint with the way out.

use std::fmt;

/// The result of every fallible operation of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is wrong: fix it.
    Invalid,
    /// A constraint refuses the row.
    Constraint,
    /// Another transaction is in the way: retry the transaction.
    Conflict,
    /// The operation was cancelled or timed out.
    Cancelled,
    /// A resource (memory, disk, device) is not to be had now.
    Unavailable,
    /// Stored bytes are not what was written.
    Corrupt,
    /// The database is closed or refuses writes after a failed sync.
    Closed,
    /// The feature does not exist (yet).
    Unsupported,
    /// A bug.
    Internal,
}

/// A five-character SQLSTATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

macro_rules! sqlstates {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        impl SqlState { $( $(#[$doc])* pub const $name: SqlState = SqlState($code); )* }
    };
}

sqlstates! {
    /// successful_completion, of notices
    SUCCESSFUL_COMPLETION = "00000";
    /// feature_not_supported
    FEATURE_NOT_SUPPORTED = "0A000";
    /// numeric_value_out_of_range
    NUMERIC_VALUE_OUT_OF_RANGE = "22003";
    /// division_by_zero
    DIVISION_BY_ZERO = "22012";
    /// string_data_right_truncation
    STRING_DATA_RIGHT_TRUNCATION = "22001";
    /// invalid_datetime_format
    INVALID_DATETIME_FORMAT = "22007";
    /// datetime_field_overflow
    DATETIME_FIELD_OVERFLOW = "22008";
    /// invalid_parameter_value
    INVALID_PARAMETER_VALUE = "22023";
    /// invalid_text_representation
    INVALID_TEXT_REPRESENTATION = "22P02";
    /// bad_copy_file_format
    BAD_COPY_FILE_FORMAT = "22P04";
    /// character_not_in_repertoire
    CHARACTER_NOT_IN_REPERTOIRE = "22021";
    /// not_null_violation
    NOT_NULL_VIOLATION = "23502";
    /// foreign_key_violation
    FOREIGN_KEY_VIOLATION = "23503";
    /// unique_violation
    UNIQUE_VIOLATION = "23505";
    /// check_violation
    CHECK_VIOLATION = "23514";
    /// cardinality_violation
    CARDINALITY_VIOLATION = "21000";
    /// active_sql_transaction
    ACTIVE_SQL_TRANSACTION = "25001";
    /// read_only_sql_transaction
    READ_ONLY_SQL_TRANSACTION = "25006";
    /// no_active_sql_transaction
    NO_ACTIVE_SQL_TRANSACTION = "25P01";
    /// in_failed_sql_transaction
    IN_FAILED_SQL_TRANSACTION = "25P02";
    /// invalid_sql_statement_name
    INVALID_SQL_STATEMENT_NAME = "26000";
    /// dependent_objects_still_exist
    DEPENDENT_OBJECTS_STILL_EXIST = "2BP01";
    /// savepoint exception: invalid specification
    INVALID_SAVEPOINT = "3B001";
    /// invalid_schema_name
    INVALID_SCHEMA_NAME = "3F000";
    /// serialization_failure
    SERIALIZATION_FAILURE = "40001";
    /// deadlock_detected
    DEADLOCK_DETECTED = "40P01";
    /// syntax_error
    SYNTAX_ERROR = "42601";
    /// ambiguous_column
    AMBIGUOUS_COLUMN = "42702";
    /// undefined_column
    UNDEFINED_COLUMN = "42703";
    /// undefined_object
    UNDEFINED_OBJECT = "42704";
    /// duplicate_column
    DUPLICATE_COLUMN = "42701";
    /// duplicate_object
    DUPLICATE_OBJECT = "42710";
    /// datatype_mismatch
    DATATYPE_MISMATCH = "42804";
    /// cannot_coerce
    CANNOT_COERCE = "42846";
    /// wrong_object_type
    WRONG_OBJECT_TYPE = "42809";
    /// invalid_column_reference
    INVALID_COLUMN_REFERENCE = "42P10";
    /// invalid_foreign_key
    INVALID_FOREIGN_KEY = "42830";
    /// undefined_function
    UNDEFINED_FUNCTION = "42883";
    /// undefined_table
    UNDEFINED_TABLE = "42P01";
    /// undefined_parameter
    UNDEFINED_PARAMETER = "42P02";
    /// duplicate_prepared_statement
    DUPLICATE_PREPARED_STATEMENT = "42P05";
    /// duplicate_schema
    DUPLICATE_SCHEMA = "42P06";
    /// duplicate_table
    DUPLICATE_TABLE = "42P07";
    /// invalid_table_definition
    INVALID_TABLE_DEFINITION = "42P16";
    /// generated_always
    GENERATED_ALWAYS = "428C9";
    /// program_limit_exceeded
    PROGRAM_LIMIT_EXCEEDED = "54000";
    /// too_many_columns
    TOO_MANY_COLUMNS = "54011";
    /// disk_full
    DISK_FULL = "53100";
    /// out_of_memory
    OUT_OF_MEMORY = "53200";
    /// object_in_use
    OBJECT_IN_USE = "55006";
    /// object_not_in_prerequisite_state
    OBJECT_NOT_IN_PREREQUISITE_STATE = "55000";
    /// lock_not_available
    LOCK_NOT_AVAILABLE = "55P03";
    /// query_canceled
    QUERY_CANCELED = "57014";
    /// admin_shutdown
    ADMIN_SHUTDOWN = "57P01";
    /// io_error
    IO_ERROR = "58030";
    /// undefined_file
    UNDEFINED_FILE = "58P01";
    /// duplicate_file
    DUPLICATE_FILE = "58P02";
    /// snapshot_too_old
    SNAPSHOT_TOO_OLD = "72000";
    /// data_corrupted
    DATA_CORRUPTED = "XX001";
    /// internal_error
    INTERNAL_ERROR = "XX000";
}

/// The table that an error is about, with its column or constraint: what PostgreSQL's
/// ErrorResponse has in the fields `s`, `t`, `c` and `n`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorSubject {
    /// schema of the table
    pub schema: String,
    /// name of the table
    pub table: String,
    /// name of the column
    pub column: Option<String>,
    /// name of the constraint, or of the unique index
    pub constraint: Option<String>,
}

/// An error with everything a user or a program needs to act on it. One pointer wide.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    state: SqlState,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    position: Option<u32>,
    subject: Option<ErrorSubject>,
}

impl Error {
    /// An error of `kind` with its SQLSTATE.
    #[cold]
    pub fn new(kind: ErrorKind, state: SqlState, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            state,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            subject: None,
        }))
    }
    /// The request is wrong.
    #[cold]
    pub fn invalid(state: SqlState, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, state, message)
    }
    /// The feature does not exist.
    #[cold]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(
            ErrorKind::Unsupported,
            SqlState::FEATURE_NOT_SUPPORTED,
            message,
        )
    }
    /// Stored bytes are wrong: `place` names file and offset.
    #[cold]
    pub fn corrupt(place: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::new(
            ErrorKind::Corrupt,
            SqlState::DATA_CORRUPTED,
            format!("{place}: {what}"),
        )
    }
    /// A stored checksum does not match; `place` names file and offset.
    #[cold]
    pub fn checksum_mismatch(place: impl fmt::Display, expected: u32, got: u32) -> Self {
        Self::corrupt(
            place,
            format!("checksum mismatch, expected {expected:#010x}, got {got:#010x}"),
        )
    }
    /// A bug in Strandline.
    #[cold]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, SqlState::INTERNAL_ERROR, message)
            .with_hint("This is a bug in Strandline; please report it with the statement.")
    }
    /// An operating-system error on the file or directory `what`.
    #[cold]
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let (kind, state) = match error.kind() {
            K::NotFound => (ErrorKind::Invalid, SqlState::UNDEFINED_FILE),
            K::StorageFull | K::QuotaExceeded => (ErrorKind::Unavailable, SqlState::DISK_FULL),
            _ => (ErrorKind::Unavailable, SqlState::IO_ERROR),
        };
        Self::new(kind, state, format!("{what}: {error}"))
    }
    /// Adds the DETAIL line.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }
    /// Adds the HINT line: the way out.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }
    /// Adds the place in the statement's text, in characters from 1.
    #[must_use]
    pub fn with_position(mut self, position: usize) -> Self {
        self.0.position = u32::try_from(position).ok();
        self
    }
    /// Adds the table, column or constraint that the error is about.
    #[must_use]
    pub fn with_subject(mut self, subject: ErrorSubject) -> Self {
        self.0.subject = Some(subject);
        self
    }
    /// The error of a text that is not the statement's own.
    #[must_use]
    pub fn without_position(mut self) -> Self {
        self.0.position = None;
        self
    }
    /// Puts `context: ` before the message.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }
    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
    /// The SQLSTATE.
    pub fn sqlstate(&self) -> SqlState {
        self.0.state
    }
    /// The message without detail and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// The DETAIL line.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }
    /// The HINT line.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
    /// The place in the statement's text, in characters from 1.
    pub fn position(&self) -> Option<usize> {
        self.0.position.map(|position| position as usize)
    }
    /// The table, column or constraint that the error is about.
    pub fn subject(&self) -> Option<&ErrorSubject> {
        self.0.subject.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(position) = self.0.position {
            write!(f, " at character {position}")?;
        }
        if let Some(detail) = &self.0.detail {
            write!(f, "\nDETAIL: {detail}")?;
        }
        if let Some(hint) = &self.0.hint {
            write!(f, "\nHINT: {hint}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}: {self}", self.0.kind, self.0.state.0)
    }
}

impl std::error::Error for Error {}
