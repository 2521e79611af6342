//! Lists from the text form of arrays.

use super::{Mode, cast_scalar};
use crate::error::raise;
use crate::text::array::{Item, items};
use crate::types::sql_type_of_arrow;
use datafusion::arrow::array::new_empty_array;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::scalar::ScalarValue;
use strandline_base::Error;

/// The array of `text` with items of the type `item`, as a value of a list type.
///
/// # Errors
/// The errors of [`items`] and of the item type, 0A000 for an array with another number of
/// dimensions.
pub fn list_from_text(text: &str, item: &FieldRef) -> Result<ScalarValue> {
    list_of(items(text).map_err(raise)?, item)
}

fn list_of(items: Vec<Item>, item: &FieldRef) -> Result<ScalarValue> {
    let dimensions = || {
        let message = "an array with another number of dimensions than its type is not supported";
        raise(Error::unsupported(message))
    };
    let values = items
        .into_iter()
        .map(|read| match (read, item.data_type()) {
            (Item::Null, data_type) => ScalarValue::try_from(data_type),
            (Item::Array(inner), DataType::List(item)) => list_of(inner, item),
            (Item::Text(text), data_type) => {
                let sql_type = sql_type_of_arrow(data_type).ok_or_else(dimensions)?;
                cast_scalar(&ScalarValue::Utf8(Some(text)), sql_type, Mode::Explicit)?
                    .cast_to(data_type)
            }
            (Item::Array(_), _) => Err(dimensions()),
        })
        .collect::<Result<Vec<_>>>()?;
    let values = match values.is_empty() {
        true => new_empty_array(item.data_type()),
        false => ScalarValue::iter_to_array(values)?,
    };
    let list = SingleRowListArrayBuilder::new(values).build_list_scalar();
    list.cast_to(&DataType::List(item.clone()))
}
