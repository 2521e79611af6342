//! Functions with overloads, and their evaluation on arrays.

use crate::cast::{Mode, cast_array};
use crate::error::{invalid, raise};
use crate::types::{arrow_type, field, sql_name, sql_type_of_arrow};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Int64Array, StringViewArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float64Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::scalar::ScalarValue;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use strandline_base::{Error, SqlState, SqlType};

/// The type of a parameter of an overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// bigint; smaller integers are widened
    Bigint,
    /// numeric of the argument's own shape; integers are widened
    Numeric,
    /// double precision; any number is converted
    Double,
    /// text
    Text,
    /// bytea
    Bytea,
    /// date
    Date,
    /// time
    Time,
    /// timestamp; dates are converted
    Timestamp,
    /// timestamptz
    TimestampTz,
    /// interval
    Interval,
    /// smallint, integer or bigint, unchanged
    Integer,
    /// any number, unchanged
    Number,
    /// point
    Point,
    /// box
    Box,
    /// a value of any type
    Any,
}

impl Parameter {
    /// The number of implicit casts from `from` to this type; `None` if there is no cast. Open
    /// literals are `Utf8`, texts `Utf8View`.
    fn distance(self, from: &DataType) -> Option<u8> {
        use Parameter::{
            Any, Bigint, Box, Bytea, Date, Double, Integer, Interval, Number, Numeric, Point, Text,
            Time, Timestamp, TimestampTz,
        };
        if self == Any {
            return Some(9);
        }
        let open = matches!(from, DataType::Utf8 | DataType::Null);
        if open {
            return Some(if self == Text { 1 } else { 2 });
        }
        let from = sql_type_of_arrow(from)?;
        match (self, from) {
            (Bigint, SqlType::BigInt)
            | (Numeric, SqlType::Numeric { .. })
            | (Double, SqlType::Double)
            | (Text, SqlType::Text)
            | (Bytea, SqlType::Bytea)
            | (Date, SqlType::Date)
            | (Time, SqlType::Time)
            | (Timestamp, SqlType::Timestamp)
            | (TimestampTz, SqlType::TimestampTz)
            | (Interval, SqlType::Interval)
            | (Point, SqlType::Point)
            | (Box, SqlType::Box) => Some(0),
            (Integer | Number, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt)
            | (Number, SqlType::Numeric { .. } | SqlType::Real | SqlType::Double) => Some(0),
            (Bigint, SqlType::SmallInt | SqlType::Integer) | (Double, SqlType::Real) => Some(1),
            (TimestampTz, SqlType::Date) => Some(1),
            (Double, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) => Some(2),
            (Timestamp, SqlType::Date) | (TimestampTz, SqlType::Timestamp) => Some(2),
            (Interval, SqlType::Time) => Some(2),
            (Numeric, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) => Some(3),
            (Double, SqlType::Numeric { .. }) => Some(3),
            _ => None,
        }
    }

    /// The type to which an argument of type `from` is converted. Texts and integers stay unchanged
    /// until the function runs, so that a literal that determines the result's type stays a
    /// literal.
    fn data_type(self, from: &DataType) -> DataType {
        match self {
            Parameter::Bigint if from.is_signed_integer() => from.clone(),
            Parameter::Bigint => DataType::Int64,
            Parameter::Numeric => {
                crate::arithmetic::as_decimal(from).unwrap_or(DataType::Decimal128(38, 16))
            }
            Parameter::Double => DataType::Float64,
            Parameter::Text if from.is_string() => from.clone(),
            Parameter::Text => DataType::Utf8View,
            Parameter::Bytea => DataType::BinaryView,
            Parameter::Date => DataType::Date32,
            Parameter::Time => DataType::Time64(TimeUnit::Microsecond),
            Parameter::Timestamp => arrow_type(SqlType::Timestamp),
            Parameter::TimestampTz => arrow_type(SqlType::TimestampTz),
            Parameter::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            // Arrow has no cast from text; `prepared` reads it.
            Parameter::Point | Parameter::Box if from.is_string() => from.clone(),
            Parameter::Point => arrow_type(SqlType::Point),
            Parameter::Box => arrow_type(SqlType::Box),
            Parameter::Integer if from.is_null() || from.is_string() => DataType::Int32,
            Parameter::Number if from.is_null() || from.is_string() => DataType::Float64,
            Parameter::Integer | Parameter::Number | Parameter::Any => {
                match sql_type_of_arrow(from) {
                    Some(sql_type) if !from.is_null() => arrow_type(sql_type),
                    _ => from.clone(),
                }
            }
        }
    }
}

/// The result type of an overload.
#[derive(Clone, Copy)]
pub enum Returns {
    /// A fixed type.
    Type(SqlType),
    /// From the converted argument types and the arguments that are literals.
    Computed(fn(&[DataType], &[Option<&ScalarValue>]) -> Result<DataType>),
}

impl From<SqlType> for Returns {
    fn from(sql_type: SqlType) -> Self {
        Returns::Type(sql_type)
    }
}

/// The arguments of one evaluation.
pub struct Call<'a> {
    /// Arrays of `rows` values each, of the overload's types.
    pub arrays: Vec<ArrayRef>,
    /// The arguments that are one value for all rows.
    pub constant: Vec<bool>,
    /// The arguments' fields.
    pub fields: &'a [FieldRef],
    /// Rows to compute.
    pub rows: usize,
    /// The result's type.
    pub returns: &'a DataType,
    /// The session's options.
    pub options: &'a ConfigOptions,
}

impl Call<'_> {
    /// A text argument.
    pub fn text(&self, i: usize) -> &StringViewArray {
        self.arrays[i].as_string_view()
    }
    /// A text argument that is one value for all rows and not NULL.
    pub fn constant_text(&self, i: usize) -> Option<&str> {
        let known = self.constant[i] && self.rows > 0 && self.text(i).is_valid(0);
        known.then(|| self.text(i).value(0))
    }
    /// A bigint argument's value.
    pub fn bigint(&self, i: usize) -> &Int64Array {
        self.arrays[i].as_primitive::<Int64Type>()
    }
    /// A double argument's value.
    pub fn double(&self, i: usize, row: usize) -> f64 {
        self.arrays[i].as_primitive::<Float64Type>().value(row)
    }
    /// A timestamp argument's value.
    pub fn micros(&self, i: usize, row: usize) -> i64 {
        self.arrays[i]
            .as_primitive::<TimestampMicrosecondType>()
            .value(row)
    }
    /// An interval argument's value.
    pub fn interval(&self, i: usize, row: usize) -> IntervalMonthDayNano {
        self.arrays[i]
            .as_primitive::<IntervalMonthDayNanoType>()
            .value(row)
    }
    /// A numeric argument as 128-bit integers and its scale.
    pub fn numeric(&self, i: usize) -> Result<(Decimal128Array, u8)> {
        match self.arrays[i].data_type() {
            DataType::Decimal128(_, s) => Ok((
                self.arrays[i].as_primitive::<Decimal128Type>().clone(),
                *s as u8,
            )),
            DataType::Decimal64(p, s) => {
                let wide = datafusion::arrow::compute::cast(
                    &self.arrays[i],
                    &DataType::Decimal128(*p, *s),
                )?;
                Ok((wide.as_primitive::<Decimal128Type>().clone(), *s as u8))
            }
            other => internal_err!("{other} is not numeric"),
        }
    }
    /// Whether any argument is NULL in the row.
    pub fn any_null(&self, row: usize) -> bool {
        let null = |a: &ArrayRef| a.is_null(row) || a.data_type().is_null();
        self.arrays.iter().any(null)
    }
    /// A text result, NULL if an argument is NULL.
    pub fn map_text(&self, mut f: impl FnMut(usize) -> Result<Option<String>>) -> Result<ArrayRef> {
        let values = (0..self.rows)
            .map(|row| if self.any_null(row) { Ok(None) } else { f(row) })
            .collect::<Result<Vec<Option<String>>>>()?;
        Ok(Arc::new(values.into_iter().collect::<StringViewArray>()))
    }
    /// A result of a primitive type, NULL if an argument is NULL.
    pub fn map<P: datafusion::arrow::array::ArrowPrimitiveType>(
        &self,
        f: impl Fn(usize) -> Result<Option<P::Native>>,
    ) -> Result<ArrayRef> {
        let mut builder = datafusion::arrow::array::PrimitiveBuilder::<P>::with_capacity(self.rows)
            .with_data_type(self.returns.clone());
        for row in 0..self.rows {
            builder.append_option(if self.any_null(row) { None } else { f(row)? });
        }
        Ok(Arc::new(builder.finish()))
    }
}

type FunctionBody = fn(&Call) -> Result<ArrayRef>;

/// One form of a function.
#[derive(Clone)]
pub struct Overload {
    parameters: &'static [Parameter],
    variadic: bool,
    returns: Returns,
    body: FunctionBody,
}

impl Overload {
    /// An overload with exactly `parameters`.
    pub fn new(
        parameters: &'static [Parameter],
        returns: impl Into<Returns>,
        body: FunctionBody,
    ) -> Self {
        Self {
            parameters,
            variadic: false,
            returns: returns.into(),
            body,
        }
    }
    /// An overload with `parameters`, whose last one may occur any number of times, also zero.
    pub fn variadic(
        parameters: &'static [Parameter],
        returns: impl Into<Returns>,
        body: FunctionBody,
    ) -> Self {
        Self {
            parameters,
            variadic: true,
            returns: returns.into(),
            body,
        }
    }
    fn parameter(&self, i: usize) -> Option<Parameter> {
        match self.parameters.get(i) {
            None if self.variadic => self.parameters.last().copied(),
            found => found.copied(),
        }
    }
    /// An argument in the layout that the body reads.
    fn prepared(&self, i: usize, array: ArrayRef) -> Result<ArrayRef> {
        let layout = match self.parameter(i) {
            Some(Parameter::Text) => DataType::Utf8View,
            Some(Parameter::Bigint) => DataType::Int64,
            Some(Parameter::Point) => return cast_array(&array, SqlType::Point, Mode::Explicit),
            Some(Parameter::Box) => return cast_array(&array, SqlType::Box, Mode::Explicit),
            _ => return Ok(array),
        };
        if *array.data_type() == layout {
            Ok(array)
        } else {
            Ok(cast(&array, &layout)?)
        }
    }
    fn distance(&self, types: &[DataType]) -> Option<u32> {
        let enough = if self.variadic {
            types.len() + 1 >= self.parameters.len()
        } else {
            types.len() == self.parameters.len()
        };
        if !enough {
            return None;
        }
        let mut total = 0;
        for (i, data_type) in types.iter().enumerate() {
            total += u32::from(self.parameter(i)?.distance(data_type)?);
        }
        Some(total)
    }
}

/// A scalar function.
#[derive(Clone)]
pub struct Function {
    name: &'static str,
    aliases: Vec<String>,
    signature: Signature,
    strict: bool,
    /// Whether PostgreSQL has an overload for bit strings as well, so that an open literal is
    /// ambiguous.
    takes_bits: bool,
    overloads: Vec<Overload>,
    /// The result type, once a plan has fixed it.
    settled: Option<DataType>,
}

impl Function {
    /// A strict immutable function.
    pub fn new(name: &'static str, overloads: Vec<Overload>) -> Self {
        Self {
            name,
            aliases: Vec::new(),
            signature: Signature::user_defined(Volatility::Immutable),
            strict: true,
            takes_bits: false,
            overloads,
            settled: None,
        }
    }
    /// Other names of the function.
    pub fn also(mut self, aliases: &[&str]) -> Self {
        self.aliases = aliases.iter().map(|a| a.to_string()).collect();
        self
    }
    /// Makes the function volatile.
    pub fn volatile(mut self) -> Self {
        self.signature = Signature::user_defined(Volatility::Volatile);
        self
    }
    /// Makes the function stable.
    pub fn stable(mut self) -> Self {
        self.signature = Signature::user_defined(Volatility::Stable);
        self
    }
    /// Passes NULL arguments to the function.
    pub fn not_strict(mut self) -> Self {
        self.strict = false;
        self
    }
    /// Makes open literals an error; see [`Function::takes_bits`].
    pub fn beside_bit_strings(mut self) -> Self {
        self.takes_bits = true;
        self
    }
    /// The function with the fixed result type of one place in a plan; `None` if the argument types
    /// alone determine it. Later rewriting of the arguments then does not change the type.
    pub fn settled(&self, result: &DataType) -> Option<Self> {
        let computed = |o: &Overload| matches!(o.returns, Returns::Computed(_));
        if self.settled.is_some() || !self.overloads.iter().any(computed) {
            return None;
        }
        Some(Self {
            settled: Some(result.clone()),
            ..self.clone()
        })
    }
    /// Whether the result type may depend on the values of constant arguments.
    pub fn has_computed_type(&self) -> bool {
        let mut returns = self.overloads.iter().map(|o| o.returns);
        returns.any(|returns| matches!(returns, Returns::Computed(_)))
    }
    /// Converts it to DataFusion's function.
    pub fn into_udf(self) -> ScalarUDF {
        ScalarUDF::from(self)
    }

    /// The overload for the argument types.
    fn select(&self, types: &[DataType]) -> Result<&Overload> {
        let is_open = |t: &DataType| matches!(t, DataType::Utf8 | DataType::Null);
        if self.takes_bits && types.iter().all(is_open) {
            let call = format!("{}(unknown)", self.name);
            let message = format!("function {call} is not unique");
            return Err(raise(Error::invalid(SqlState("42725"), message).with_hint(
                "Could not choose a best candidate function. You might need to add explicit \
                     type casts.",
            )));
        }
        let fitting = self
            .overloads
            .iter()
            .filter_map(|o| Some((o.distance(types)?, o)));
        fitting
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, o)| o)
            .ok_or_else(|| {
                let types: Vec<String> = types.iter().map(sql_name).collect();
                let call = format!("{}({})", self.name, types.join(", "));
                invalid(
                    SqlState::UNDEFINED_FUNCTION,
                    format!("function {call} does not exist"),
                )
            })
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.settled == other.settled
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.settled.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }
    fn aliases(&self) -> &[String] {
        &self.aliases
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let overload = self.select(arg_types)?;
        let converted = arg_types.iter().enumerate().map(|(i, from)| {
            overload
                .parameter(i)
                .map_or(from.clone(), |parameter| parameter.data_type(from))
        });
        Ok(converted.collect())
    }
    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match (&self.settled, self.select(arg_types)?.returns) {
            (Some(settled), _) => Ok(settled.clone()),
            (None, Returns::Type(sql_type)) => Ok(arrow_type(sql_type)),
            (None, Returns::Computed(f)) => f(arg_types, &vec![None; arg_types.len()]),
        }
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args
            .arg_fields
            .iter()
            .map(|f| f.data_type().clone())
            .collect();
        match self.select(&types)?.returns {
            Returns::Type(sql_type) => Ok(Arc::new(field(self.name, sql_type, true))),
            Returns::Computed(f) => Ok(Arc::new(Field::new(
                self.name,
                f(&types, args.scalar_arguments)?,
                true,
            ))),
        }
    }
    fn is_strict(&self) -> bool {
        self.strict
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<DataType> = args.args.iter().map(ColumnarValue::data_type).collect();
        let overload = self.select(&types)?;
        let volatile = self.signature.volatility == Volatility::Volatile;
        let constant = !volatile
            && args
                .args
                .iter()
                .all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let arrays = args
            .args
            .iter()
            .enumerate()
            .map(|(i, a)| overload.prepared(i, a.to_array_of_size(rows)?))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let returns = args.return_field.data_type();
        let options = args.config_options.as_ref();
        let is_scalar = |a: &ColumnarValue| matches!(a, ColumnarValue::Scalar(_));
        let constants = args.args.iter().map(is_scalar).collect();
        let fields = args.arg_fields.as_slice();
        let result = (overload.body)(&Call {
            arrays,
            constant: constants,
            fields,
            rows,
            returns,
            options,
        })?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &result, 0,
            )?));
        }
        Ok(ColumnarValue::Array(result))
    }
}
