//! The access methods that an index of CREATE INDEX can have: by the order of its keys, or an
//! R-tree over one point or box, on pages.

use crate::catalog::index::{IndexDef, IndexMethod, IndexStorage};
use strandline_base::{Error, Result, SqlState, SqlType};

/// The name of the R-tree in statements and messages.
const RTREE: &str = "rtree";

/// Refuses a definition that no access method can serve. Its parts have these types.
///
/// # Errors
/// 0A000 for an index by hash, and for an R-tree that is unique, has several parts, an order or
/// INCLUDE; 42704 for one over another type than point and box; 22023 for one that is not on pages.
pub(super) fn check_method(def: &IndexDef, types: &[SqlType]) -> Result<()> {
    match def.method {
        IndexMethod::Ordered => Ok(()),
        IndexMethod::Spatial => check_rtree(def, types),
        IndexMethod::Hash => Err(
            Error::unsupported("secondary indexes by hash are not supported")
                .with_hint("An index of the default method (btree) serves the same queries."),
        ),
    }
}

fn check_rtree(def: &IndexDef, types: &[SqlType]) -> Result<()> {
    let has_order = def.parts.iter().any(|part| part.descending);
    let has_nulls = def.parts.iter().any(|part| part.nulls_first);
    let refused = [
        (def.unique, "unique indexes"),
        (!def.include.is_empty(), "included columns"),
        (has_order, "ASC/DESC options"),
        (has_nulls, "NULLS FIRST/LAST options"),
    ];
    if let Some((_, what)) = refused.into_iter().find(|(is_there, _)| *is_there) {
        let message = format!("access method \"{RTREE}\" does not support {what}");
        return Err(Error::unsupported(message).with_hint(
            "An R-tree finds points and boxes by position; its entries have no order.",
        ));
    }
    check_types(types)?;
    if def.storage == IndexStorage::Pages {
        return Ok(());
    }
    let storage = def.storage.name();
    let message = format!("access method \"{RTREE}\" has no storage '{storage}'");
    Err(Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message)
        .with_hint("Leave out the storage, or write storage = 'pages'."))
}

/// The key of an R-tree is one point or box.
fn check_types(types: &[SqlType]) -> Result<()> {
    match types {
        [SqlType::Point | SqlType::Box] => Ok(()),
        [other] => {
            let message = format!(
                "data type {other} has no default operator class for access method \"{RTREE}\""
            );
            Err(Error::invalid(SqlState::UNDEFINED_OBJECT, message)
                .with_hint("Make the index over a point or a box, or with the method btree."))
        }
        _ => {
            let message = format!("access method \"{RTREE}\" does not support multicolumn indexes");
            Err(Error::unsupported(message).with_hint("Make an index over each point or box."))
        }
    }
}
