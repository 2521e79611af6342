//! Functions about the system. Each is a row of a table here and in the modules below: a name, the
//! type of its result, and the function of its arguments and the statement's context.
//!
//! They are registered for a statement that names them and hold its context: a plan needs nothing
//! else to run, wherever its parts are evaluated.

mod control;
mod definitions;
mod naming;
mod privileges;
mod sequences;
mod size;

use super::catalog_value::{self, CatalogValue};
use super::relation;
use super::system::System;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};
use strandline_semantics::error::raise;

type FunctionBody = fn(&System, &[CatalogValue]) -> strandline_base::Result<CatalogValue>;

/// A function.
struct Definition {
    name: &'static str,
    /// PostgreSQL's name of the result's type
    returns: &'static str,
    body: FunctionBody,
    volatility: Volatility,
    /// NULL for a NULL argument
    strict: bool,
}

/// A strict function that gives one result for the same arguments within a statement.
const fn stable(name: &'static str, returns: &'static str, body: FunctionBody) -> Definition {
    Definition {
        name,
        returns,
        body,
        volatility: Volatility::Stable,
        strict: true,
    }
}

impl Definition {
    /// Evaluated for every row.
    const fn volatile(mut self) -> Self {
        self.volatility = Volatility::Volatile;
        self
    }
    /// Sees NULL arguments.
    const fn not_strict(mut self) -> Self {
        self.strict = false;
        self
    }
}

static DEFINITIONS: LazyLock<HashMap<&'static str, &'static Definition>> = LazyLock::new(|| {
    let all = [
        control::FUNCTIONS,
        definitions::FUNCTIONS,
        naming::FUNCTIONS,
        privileges::FUNCTIONS,
        sequences::FUNCTIONS,
        size::FUNCTIONS,
    ];
    let all = all.into_iter().flatten();
    all.map(|definition| (definition.name, definition))
        .collect()
});

/// The functions of this module that a statement calls.
#[derive(Default)]
pub struct Used(BTreeSet<&'static str>);

impl Used {
    /// Adds the function that `expr` calls, without its arguments.
    pub fn note(&mut self, expr: &ast::Expr) {
        if let ast::Expr::Function(function) = expr
            && let Some(name) = function.name.0.last().and_then(|part| part.as_ident())
            && let Some(known) = DEFINITIONS.get(name.value.to_ascii_lowercase().as_str())
        {
            self.0.insert(known.name);
        }
    }
    /// The one of them that writes.
    pub fn writer(&self) -> Option<&'static str> {
        self.0.get(sequences::SETVAL).copied()
    }
    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// `state` with these functions, which look at `system`.
    pub fn register(&self, state: &SessionState, system: &Arc<System>) -> Result<SessionState> {
        let mut state = state.clone();
        for name in &self.0 {
            if let Some(udf) = function(name, system) {
                state.register_udf(udf)?;
            }
        }
        Ok(state)
    }
}

/// The function `name` over `system`.
fn function(name: &str, system: &Arc<System>) -> Option<Arc<ScalarUDF>> {
    let definition = DEFINITIONS.get(name)?;
    Some(Arc::new(ScalarUDF::from(SystemFunction {
        definition,
        field: Arc::new(relation::field(definition.name, definition.returns)),
        system: Arc::clone(system),
        signature: Signature::one_of(
            vec![TypeSignature::VariadicAny, TypeSignature::Nullary],
            definition.volatility,
        ),
    })))
}

/// `name(argument)` as an expression.
pub fn call(name: &str, argument: Expr, system: &Arc<System>) -> Option<Expr> {
    let func = function(name, system)?;
    let args = vec![argument];
    Some(Expr::ScalarFunction(ScalarFunction { func, args }))
}

/// Whether a function is one of the system's, with a statement's surroundings in it.
pub fn is_system(function: &ScalarUDF) -> bool {
    function.inner().is::<SystemFunction>()
}

/// A function with the surroundings that it looks at.
struct SystemFunction {
    definition: &'static Definition,
    field: FieldRef,
    system: Arc<System>,
    signature: Signature,
}

impl std::fmt::Debug for SystemFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SystemFunction({})", self.definition.name)
    }
}

impl PartialEq for SystemFunction {
    fn eq(&self, other: &Self) -> bool {
        self.definition.name == other.definition.name
    }
}

impl Eq for SystemFunction {}

impl Hash for SystemFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
    }
}

impl ScalarUDFImpl for SystemFunction {
    fn name(&self) -> &str {
        self.definition.name
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.field.data_type().clone())
    }
    fn return_field_from_args(&self, _args: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::clone(&self.field))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let volatile = self.definition.volatility == Volatility::Volatile;
        let scalar = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(_));
        let constant = !volatile && args.args.iter().all(scalar);
        let rows = if constant { 1 } else { args.number_rows };
        let columns = args
            .args
            .iter()
            .map(|arg| arg.to_array_of_size(rows))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let mut results = Vec::with_capacity(rows);
        let mut values = Vec::with_capacity(columns.len());
        for row in 0..rows {
            values.clear();
            for column in &columns {
                values.push(CatalogValue::at(column, row)?);
            }
            let null = self.definition.strict && values.iter().any(CatalogValue::is_null);
            results.push(match null {
                true => CatalogValue::Null,
                false => (self.definition.body)(&self.system, &values).map_err(raise)?,
            });
        }
        let array = catalog_value::array(&results, self.field.data_type())?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &array, 0,
            )?));
        }
        Ok(ColumnarValue::Array(array))
    }
}

/// The argument at `i`; NULL if there are not so many.
fn argument(args: &[CatalogValue], i: usize) -> &CatalogValue {
    args.get(i).unwrap_or(&CatalogValue::Null)
}

/// The number at `i`; 0 if there is none.
fn number(args: &[CatalogValue], i: usize) -> i64 {
    argument(args, i).as_int().unwrap_or(0)
}

/// The relation that the argument at `i` names or numbers; 42P01 if there is none of the name.
fn relation_at(system: &System, args: &[CatalogValue], i: usize) -> strandline_base::Result<i64> {
    match argument(args, i) {
        CatalogValue::Text(name) if name.trim().parse::<i64>().is_err() => {
            Ok(system.require_relation(name)?.into())
        }
        other => Ok(other.as_int().unwrap_or(0)),
    }
}
