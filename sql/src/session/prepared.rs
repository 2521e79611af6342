//! PREPARE, EXECUTE, DEALLOCATE. A prepared statement is its parsed text; planning it takes the
//! values of each execution into account.

use super::Session;
use super::outcome::Summary;
use crate::{names, params};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{CastKind, DataType, Expr, Ident, Statement as Parsed};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};

/// A statement with parameters, parsed once.
#[derive(Debug)]
pub struct PreparedStatement {
    /// what others see while it runs
    pub(crate) text: Arc<str>,
    pub(crate) statement: Parsed,
    types: Vec<DataType>,
    parameters: usize,
}

impl PreparedStatement {
    pub(crate) fn new(text: Arc<str>, mut statement: Parsed, types: Vec<DataType>) -> Result<Self> {
        let parameters = params::highest(&mut statement)?.max(types.len());
        match &statement {
            Parsed::Prepare { .. } | Parsed::Execute { .. } | Parsed::Deallocate { .. } => {
                Err(Error::invalid(
                    SqlState::SYNTAX_ERROR,
                    "PREPARE, EXECUTE and DEALLOCATE cannot be prepared",
                ))
            }
            _ => Ok(Self {
                text,
                statement,
                types,
                parameters,
            }),
        }
    }
    /// How many parameters it has.
    pub fn parameter_count(&self) -> usize {
        self.parameters
    }
}

impl Session {
    pub(super) fn prepare(
        &mut self,
        name: &Ident,
        types: &[DataType],
        statement: &Parsed,
    ) -> Result<Summary> {
        let name = names::fold(name);
        if self.prepared.contains_key(&name) {
            return Err(Error::invalid(
                SqlState::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        // Others see the text of the EXECUTE.
        let text = Arc::from("");
        let prepared = PreparedStatement::new(text, statement.clone(), types.to_vec())?;
        self.prepared.insert(name, Arc::new(prepared));
        Ok(Summary::tag("PREPARE"))
    }

    pub(super) fn deallocate(&mut self, name: &Ident) -> Result<Summary> {
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") {
            self.prepared.clear();
            return Ok(Summary::tag("DEALLOCATE ALL"));
        }
        let name = names::fold(name);
        match self.prepared.remove(&name) {
            Some(_) => Ok(Summary::tag("DEALLOCATE")),
            None => Err(undefined(&name)),
        }
    }

    /// The statement that EXECUTE names, with its values in place.
    pub(super) fn bind_execute(&self, statement: &Parsed, outer: &[ScalarValue]) -> Result<Parsed> {
        let Parsed::Execute {
            name: Some(name),
            parameters,
            immediate: false,
            using,
            into,
            ..
        } = statement
        else {
            return Err(Error::unsupported("EXECUTE IMMEDIATE is not supported"));
        };
        if !using.is_empty() || !into.is_empty() {
            return Err(Error::unsupported(
                "EXECUTE … USING and INTO are not supported",
            ));
        }
        let name = names::single(name)?;
        let prepared = self.prepared.get(&name).ok_or_else(|| undefined(&name))?;
        if parameters.len() != prepared.parameters {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                format!("wrong number of parameters for prepared statement \"{name}\""),
            )
            .with_detail(format!(
                "Expected {} parameters but got {}.",
                prepared.parameters,
                parameters.len()
            )));
        }
        let mut values = Vec::with_capacity(parameters.len());
        for (i, value) in parameters.iter().enumerate() {
            let mut value = value.clone();
            params::substitute_in_expr(&mut value, outer)?;
            values.push(typed(value, prepared.types.get(i)));
        }
        let mut bound = prepared.statement.clone();
        params::substitute_expressions(&mut bound, &values)?;
        Ok(bound)
    }
}

fn typed(value: Expr, data_type: Option<&DataType>) -> Expr {
    match (data_type, value) {
        (Some(data_type), value) => Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(value),
            data_type: data_type.clone(),
            array: false,
            format: None,
        },
        (None, value @ Expr::Value(_)) => value,
        (None, value) => Expr::Nested(Box::new(value)),
    }
}

fn undefined(name: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_SQL_STATEMENT_NAME,
        format!("prepared statement \"{name}\" does not exist"),
    )
}
