//! Prepared statements: parsed text, with the declared and inferred types of its parameters.
//! Planning one takes the values of each execution into account.

use super::arrays::{self, ParameterType};
use super::description::{Described, NUMERIC, of_parameter};
use crate::execution::row_executor::Compiled;
use crate::parse::params;
use crate::parse::place;
use crate::planning::query_facts::QueryFacts;
use crate::statements::plan_cache::{PlanSlot, Shape};
use crate::values::parameter_value::of_types;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{DataType, ExactNumberInfo, Query, Statement as Parsed};
use datafusion::sql::sqlparser::tokenizer::Location;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_semantics::types;

/// A statement with parameters, parsed once.
#[derive(Debug)]
pub struct PreparedStatement {
    /// the text that other sessions see while it runs
    pub(crate) text: Arc<str>,
    /// the text that errors point into, passwords included
    source: Arc<str>,
    /// the statement's start within `source`
    begins: Location,
    pub(crate) statement: Parsed,
    /// the types that PREPARE declares
    types: Vec<DataType>,
    /// the types that a client declares
    declared: Vec<Option<SqlType>>,
    parameters: usize,
    /// whether the parameters have their own types instead of their values' types
    pub(super) typed: bool,
    /// the last description
    pub(super) described: Mutex<Option<Arc<Described>>>,
    /// the last result of compiling it for the row executor
    pub(super) compiled: Mutex<Option<Arc<Compiled>>>,
    /// the kept plan, for a query or DML
    pub(super) plan: PlanSlot,
    /// whether the parameters are in the places of a text's literals
    pub(super) is_lifted: bool,
    /// the short plan for any values, if the parameters are read as the literals of their values
    pub(super) shape: Mutex<Shape>,
    /// whether the query only reads, once somebody has asked
    only_reads: OnceLock<bool>,
    /// the memory of a long text
    _memory: Option<Arc<MemoryReservation>>,
}

impl PreparedStatement {
    pub(crate) fn new(sql: &str, mut statement: Parsed, types: Vec<DataType>) -> Result<Self> {
        let parameters = params::highest(&mut statement)?.max(types.len());
        let types: Vec<_> = types.into_iter().map(without_modifiers).collect();
        let is_array = |t: &DataType| matches!(t, DataType::Array(_)).then(|| t.clone());
        let declared: Vec<_> = types.iter().map(is_array).collect();
        arrays::declare(&mut statement, &declared);
        match &statement {
            Parsed::Prepare { .. } | Parsed::Execute { .. } | Parsed::Deallocate { .. } => {
                Err(Error::invalid(
                    SqlState::SYNTAX_ERROR,
                    "PREPARE, EXECUTE and DEALLOCATE cannot be prepared",
                ))
            }
            _ => Ok(Self::of(
                sql,
                statement,
                types,
                Vec::new(),
                (parameters, false),
            )),
        }
    }

    /// A statement whose parameters take the types of their values.
    pub(crate) fn plain(sql: &str, mut statement: Parsed) -> Result<Self> {
        let parameters = params::highest(&mut statement)?;
        Ok(Self::of(
            sql,
            statement,
            Vec::new(),
            Vec::new(),
            (parameters, false),
        ))
    }

    /// One of the statements of a text.
    pub(crate) fn of_script(sql: &str, (statement, begins): (Parsed, Location)) -> Result<Self> {
        Ok(Self {
            begins,
            ..Self::plain(sql, statement)?
        })
    }

    /// Adds the position within the text to an error of this statement.
    pub(crate) fn locate(&self, error: Error) -> Error {
        place::locate(error, &self.source, self.begins)
    }

    /// A statement from a client. `declared` has the parameter types that the client knows.
    pub(crate) fn typed(
        sql: &str,
        mut statement: Parsed,
        declared: &[Option<ParameterType>],
    ) -> Result<Self> {
        let parameters = params::highest(&mut statement)?.max(declared.len());
        let array = |t: &Option<ParameterType>| match t {
            Some(ParameterType::Array(item)) => arrays::array_of(*item),
            _ => None,
        };
        let declared_arrays: Vec<_> = declared.iter().map(array).collect();
        arrays::declare(&mut statement, &declared_arrays);
        let value = |t: &Option<ParameterType>| match t {
            Some(ParameterType::Value(t)) => Some(of_parameter(*t)),
            _ => None,
        };
        let declared = declared.iter().map(value).collect();
        Ok(Self::of(
            sql,
            statement,
            Vec::new(),
            declared,
            (parameters, true),
        ))
    }

    fn of(
        sql: &str,
        statement: Parsed,
        types: Vec<DataType>,
        declared: Vec<Option<SqlType>>,
        (parameters, typed): (usize, bool),
    ) -> Self {
        let text = Arc::<str>::from(crate::parse::redacted(sql));
        let source = match *text == *sql {
            true => text.clone(),
            false => Arc::from(sql),
        };
        Self {
            text,
            source,
            begins: Location { line: 1, column: 1 },
            statement,
            types,
            declared,
            parameters,
            typed,
            described: Mutex::new(None),
            compiled: Mutex::new(None),
            plan: PlanSlot::default(),
            is_lifted: false,
            shape: Mutex::default(),
            only_reads: OnceLock::new(),
            _memory: None,
        }
    }

    /// The statement, which keeps the memory reserved for its text.
    pub(crate) fn with_memory(self, memory: Option<Arc<MemoryReservation>>) -> Self {
        Self {
            _memory: memory,
            ..self
        }
    }

    /// The statement of a text without its literals, whose first execution is the second of the
    /// text.
    pub(super) fn of_literals(self) -> Self {
        Self {
            is_lifted: true,
            shape: Mutex::new(Shape::Used),
            ..self
        }
    }

    /// The values of a typed statement's parameters as the types that these have.
    pub(super) fn typed_values<'a>(&self, values: &'a [ScalarValue]) -> Cow<'a, [ScalarValue]> {
        match self.described.lock().as_ref() {
            Some(described) if self.typed => of_types(values, &described.types),
            _ => Cow::Borrowed(values),
        }
    }

    /// 08P01 if the number of values differs from the number of parameters of a typed statement.
    /// Too few values of another statement fail when it is bound.
    pub(super) fn check_count(&self, values: usize) -> Result<()> {
        let needed = self.parameters;
        if self.typed && values != needed {
            return Err(Error::invalid(
                SqlState("08P01"),
                format!(
                    "bind message supplies {values} parameters, but prepared statement requires \
                     {needed}"
                ),
            ));
        }
        if values > needed {
            return Err(Error::invalid(
                SqlState("08P01"),
                format!("the statement has {needed} parameters, {values} values were given"),
            ));
        }
        Ok(())
    }

    /// The declared type of each parameter.
    pub(super) fn declared_types(&self) -> Result<Vec<Option<SqlType>>> {
        let mut declared = self.declared.clone();
        for t in &self.types {
            declared.push(match t {
                DataType::Array(_) => None,
                t => Some(types::from_ast(t)?.map_or(NUMERIC, of_parameter)),
            });
        }
        declared.resize(self.parameters, None);
        Ok(declared)
    }

    /// Whether the statement is of a kind that the row executor compiles.
    pub(super) fn may_be_row_statement(&self) -> bool {
        matches!(
            self.statement,
            Parsed::Query(_)
                | Parsed::Insert(_)
                | Parsed::Update(_)
                | Parsed::Delete(_)
                | Parsed::Merge(_)
        )
    }

    /// Whether the statement, which is `query`, only reads.
    pub(super) fn only_reads(&self, query: &Query) -> bool {
        let look = || QueryFacts::of(query).only_reads();
        *self.only_reads.get_or_init(look)
    }

    /// Whether the statement begins or ends a transaction or a savepoint.
    pub(super) fn is_of_transaction(&self) -> bool {
        matches!(
            self.statement,
            Parsed::StartTransaction { .. }
                | Parsed::Commit { .. }
                | Parsed::Rollback { .. }
                | Parsed::Savepoint { .. }
                | Parsed::ReleaseSavepoint { .. }
        )
    }

    /// The type that PREPARE declares for the parameter at `index`.
    pub(super) fn declared_type(&self, index: usize) -> Option<&DataType> {
        self.types.get(index)
    }

    /// The number of parameters.
    pub fn parameter_count(&self) -> usize {
        self.parameters
    }
}

/// The type of a parameter: PREPARE ignores lengths and digits, as PostgreSQL does. `char(n)` keeps
/// its blanks, by which it equals columns of the type.
fn without_modifiers(declared: DataType) -> DataType {
    match declared {
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => {
            DataType::Varchar(None)
        }
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => {
            DataType::Numeric(ExactNumberInfo::None)
        }
        DataType::Time(_, zone) => DataType::Time(None, zone),
        DataType::Timestamp(_, zone) => DataType::Timestamp(None, zone),
        DataType::Interval { .. } => DataType::Interval {
            fields: None,
            precision: None,
        },
        other => other,
    }
}
