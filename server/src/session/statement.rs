//! Statements that clients have prepared, with conversions between the protocol's types and the
//! database's.

use crate::report::protocol_violation;
use arrow::datatypes::SchemaRef;
use strandline::wire_format::{
    ColumnType, Format, Scalar, array_oid_of, item_type_of_oid, read_array_parameter,
    read_parameter, sql_type_of_oid,
};
use strandline::{Connection, ParameterType, Prepared, Result, SqlType};

/// A statement that a client has prepared.
#[derive(Debug)]
pub(super) struct Statement {
    /// None: the text was empty
    pub prepared: Option<Prepared>,
    /// its first word
    pub word: String,
    /// the types of its parameters
    types: Vec<SqlType>,
    /// the item type of each array parameter
    items: Vec<Option<SqlType>>,
    /// the number of each parameter's declared type; 0: not declared
    declared: Vec<u32>,
}

impl Statement {
    /// Parses `sql`; `declared` are types by number.
    pub fn prepare(connection: &mut Connection, sql: &str, declared: Vec<u32>) -> Result<Self> {
        let word = sql.split_ascii_whitespace().next().unwrap_or_default();
        let word = word.to_string();
        if is_empty(sql)? {
            return Ok(Self {
                word,
                prepared: None,
                types: Vec::new(),
                items: Vec::new(),
                declared,
            });
        }
        let known: Vec<_> = declared.iter().map(|oid| parameter_type(*oid)).collect();
        let prepared = connection.prepare_declared(sql, &known)?;
        // Only statements with parameters must be described before execution.
        let (types, mut items) = match prepared.parameter_count() {
            0 => (Vec::new(), Vec::new()),
            _ => {
                let described = connection.describe(&prepared)?;
                (described.parameters.clone(), described.items.clone())
            }
        };
        items.resize(types.len().max(declared.len()), None);
        for (item, known) in items.iter_mut().zip(&known) {
            if let Some(ParameterType::Array(declared)) = known {
                *item = Some(*declared);
            }
        }
        Ok(Self {
            prepared: Some(prepared),
            word,
            types,
            items,
            declared,
        })
    }

    /// The number of parameters.
    pub fn parameter_count(&self) -> usize {
        let needed = self.prepared.as_ref().map_or(0, Prepared::parameter_count);
        needed.max(self.declared.len())
    }

    /// The numbers of the parameters' types.
    pub fn parameter_types(&self) -> Vec<u32> {
        let declared = |i| self.declared.get(i).copied().filter(|oid| *oid != 0);
        let found = |i| match (self.item(i), self.types.get(i)) {
            (Some(item), _) => array_oid_of(item),
            (None, Some(t)) => ColumnType::of_sql(*t).oid,
            (None, None) => TEXT,
        };
        let parameters = 0..self.parameter_count();
        let parameters = parameters.map(|i| declared(i).unwrap_or_else(|| found(i)));
        parameters.collect()
    }

    /// The result's columns by the present definitions; None: no rows.
    pub fn result(&self, connection: &mut Connection) -> Result<Option<SchemaRef>> {
        match &self.prepared {
            Some(prepared) => Ok(connection.describe(prepared)?.result.clone()),
            None => Ok(None),
        }
    }

    /// The values of a Bind.
    pub fn read_values(&self, formats: &[i16], values: &[Option<&[u8]>]) -> Result<Vec<Scalar>> {
        let formats = Formats::read(formats, values.len())?;
        let scalars = values.iter().enumerate().map(|(i, value)| match value {
            None => Ok(Scalar::Null),
            Some(bytes) => match self.item(i) {
                Some(item) => read_array_parameter(item, formats.at(i), bytes),
                None => read_parameter(self.types.get(i).copied(), formats.at(i), bytes),
            },
        });
        scalars.collect()
    }

    /// The item type of the parameter at `i`, from 0, if it is an array.
    fn item(&self, i: usize) -> Option<SqlType> {
        self.items.get(i).copied().flatten()
    }
}

/// The type that a client declares by number; None: not declared, or not supported.
fn parameter_type(oid: u32) -> Option<ParameterType> {
    let value = sql_type_of_oid(oid).map(ParameterType::Value);
    value.or_else(|| item_type_of_oid(oid).map(ParameterType::Array))
}

/// Whether `sql` has no statement. A text that begins like a statement is not examined further.
fn is_empty(sql: &str) -> Result<bool> {
    match sql.trim_ascii_start().as_bytes() {
        [] | [b';', ..] | [b'-', b'-', ..] | [b'/', b'*', ..] => {
            Ok(strandline::split_script(sql)?.is_empty())
        }
        _ => Ok(false),
    }
}

/// The type of a parameter of unknown type.
const TEXT: u32 = 25;

/// The formats of several values.
#[derive(Clone, Debug, Default)]
pub(super) struct Formats(Vec<Format>);

impl Formats {
    /// Format codes of a message: none for text, one for all values, or one for each.
    pub fn read(codes: &[i16], count: usize) -> Result<Self> {
        if codes.len() > 1 && codes.len() != count {
            return Err(protocol_violation(format!(
                "bind message has {} formats but {count} values",
                codes.len()
            )));
        }
        let formats = codes.iter().map(|code| match code {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            other => Err(protocol_violation(format!(
                "unsupported format code: {other}"
            ))),
        });
        formats.collect::<Result<_>>().map(Self)
    }

    /// The format of the value at `index`.
    pub fn at(&self, index: usize) -> Format {
        match self.0.as_slice() {
            [] => Format::Text,
            [all] => *all,
            each => each.get(index).copied().unwrap_or(Format::Text),
        }
    }
}

/// A result's columns for RowDescription.
pub(super) fn columns_of<'a>(
    schema: &'a SchemaRef,
    formats: &'a Formats,
) -> impl ExactSizeIterator<Item = (&'a str, ColumnType, Format)> {
    let fields = schema.fields().iter().enumerate();
    fields.map(|(i, field)| (field.name().as_str(), ColumnType::of(field), formats.at(i)))
}
