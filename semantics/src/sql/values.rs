//! The columns of VALUES: cells of different types get their common type, which DataFusion finds
//! only for some types.

use super::calls::{cast_type, named_cast};
use super::cast_syntax::cast;
use super::numbers;
use crate::decimal::widest_numeric;
use crate::types::{
    arrow_type, compare_generality, from_ast, sql_type_of_arrow, unconstrained_numeric,
};
use datafusion::sql::sqlparser::ast::{
    DataType, ExactNumberInfo, Expr, UnaryOperator, Value, Values,
};
use std::cmp::Ordering;
use strandline_base::SqlType;

/// Gives the quoted strings of each column the type of the other cells, and gives numbers and texts
/// of several types a common type.
pub(super) fn give_types(values: &mut Values) {
    let columns = values.rows.first().map_or(0, |row| row.content.len());
    for column in 0..columns {
        let mut cells: Vec<&mut Expr> = values
            .rows
            .iter_mut()
            .filter_map(|row| row.content.get_mut(column))
            .collect();
        let mut known = cells.iter().filter_map(|cell| written_type(cell));
        let Some(first) = known.next() else {
            continue;
        };
        let is_one = known.all(|t| t == first);
        let has_text = cells.iter().any(|cell| is_text(cell));
        if is_one && !has_text {
            continue;
        }
        widen_bigints(&mut cells);
        if has_text {
            let general = most_general(&cells, first);
            for text in cells.iter_mut().filter(|cell| is_text(cell)) {
                let written = std::mem::replace(*text, numbers::plain("0"));
                **text = typed(written, &general);
            }
        }
        widen_numerics(&mut cells);
        join_texts(&mut cells);
    }
}

/// The common type of all cells with a written type; `first` is one of these types.
fn most_general(cells: &[&mut Expr], first: DataType) -> DataType {
    let known = cells.iter().filter_map(|cell| written_type(cell));
    known.fold(first, |most, other| {
        let ordering = match (shaped(&most), shaped(&other)) {
            (Some(most), Some(other)) => compare_generality(most, other),
            _ => None,
        };
        match ordering {
            Some(Ordering::Less) => other,
            _ => most,
        }
    })
}

/// The SQL type; `numeric` without precision has its planned shape.
fn shaped(data_type: &DataType) -> Option<SqlType> {
    match from_ast(data_type) {
        Ok(Some(known)) => Some(known),
        Ok(None) => sql_type_of_arrow(unconstrained_numeric().data_type()),
        Err(_) => None,
    }
}

fn is_text(cell: &Expr) -> bool {
    matches!(cell, Expr::Value(v) if matches!(v.value, Value::SingleQuotedString(_)))
}

/// A quoted string as a value of a type. Lengths and digits belong to the cast, not to the string.
fn typed(text: Expr, data_type: &DataType) -> Expr {
    match (&text, data_type) {
        (Expr::Value(written), DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_)) => {
            let written = written.value.clone().into_string();
            let number = written.and_then(|written| numbers::numeric(written.trim()).ok());
            number.unwrap_or_else(|| cast(text, data_type.clone()))
        }
        (_, DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_)) => {
            cast(text, DataType::Text)
        }
        _ => cast(text, data_type.clone()),
    }
}

/// The type that a cell's syntax gives.
fn written_type(cell: &Expr) -> Option<DataType> {
    match cell {
        Expr::Cast { data_type, .. } => Some(data_type.clone()),
        Expr::Nested(inner)
        | Expr::UnaryOp {
            op: UnaryOperator::Minus | UnaryOperator::Plus,
            expr: inner,
        } => written_type(inner),
        other => cast_type(other),
    }
}

fn is_numeric(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_)
    )
}

/// Bigints beside numerics become numerics.
fn widen_bigints(cells: &mut [&mut Expr]) {
    let mut types = cells.iter().filter_map(|cell| written_type(cell));
    if !types.any(|t| is_numeric(&t)) {
        return;
    }
    for cell in cells {
        if let Some(DataType::BigInt(_) | DataType::Int8(_)) = written_type(cell) {
            let shape = ExactNumberInfo::PrecisionAndScale(19, 0);
            recast(cell, DataType::Numeric(shape));
        }
    }
}

/// Numerics that need more than 38 digits become numerics of 38 digits and the longest fraction.
fn widen_numerics(cells: &mut [&mut Expr]) {
    let types = cells.iter().filter_map(|cell| written_type(cell));
    let Some(shapes) = types
        .map(|t| shaped(&t).map(arrow_type))
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let Some(SqlType::Numeric { precision, scale }) = widest_numeric(shapes.iter()) else {
        return;
    };
    let shape = ExactNumberInfo::PrecisionAndScale(precision.into(), scale.into());
    for cell in cells.iter_mut().filter(|cell| written_type(cell).is_some()) {
        recast(cell, DataType::Numeric(shape));
    }
}

/// Texts of several types become `text`.
fn join_texts(cells: &mut [&mut Expr]) {
    let types = cells.iter().filter_map(|cell| written_type(cell));
    let Some(types) = types.map(|t| shaped(&t)).collect::<Option<Vec<_>>>() else {
        return;
    };
    let is_text = |t: &SqlType| matches!(t, SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_));
    if !types.iter().all(is_text) || types.windows(2).all(|pair| pair[0] == pair[1]) {
        return;
    }
    for cell in cells.iter_mut().filter(|cell| written_type(cell).is_some()) {
        recast(cell, DataType::Text);
        // A plain cast would keep the length as metadata.
        named_cast(cell);
    }
}

fn recast(cell: &mut Expr, data_type: DataType) {
    let before = std::mem::replace(cell, numbers::plain("0"));
    *cell = cast(before, data_type);
}
