//! Drawn values of identity columns: kind 6.

use super::values::take_u32;
use super::{Commit, Operation, OtherOperation, RedoKind, Restoration, Scope};
use strandline_base::bytes::{PutBytes, unzigzag, zigzag};
use strandline_base::{ColumnId, Result, TableId};

pub(super) const DRAW: RedoKind = RedoKind {
    tag: 6,
    name: "draw",
    decode: |r| {
        Some(Operation::Other(Box::new(Drawn {
            table: TableId(take_u32(r)?),
            column: ColumnId(take_u32(r)?),
            value: unzigzag(r.varint()?),
        })))
    },
};

/// An identity column's last drawn value.
#[derive(Debug)]
struct Drawn {
    /// the table
    table: TableId,
    /// the column
    column: ColumnId,
    /// the last value
    value: i64,
}

/// Appends an identity column's last value.
pub(crate) fn put_drawn(out: &mut Vec<u8>, table: TableId, column: ColumnId, value: i64) {
    out.put_u8(DRAW.tag);
    out.put_varint(u64::from(table.0));
    out.put_varint(u64::from(column.0));
    out.put_varint(zigzag(value));
}

impl OtherOperation for Drawn {
    fn scope(&self) -> Scope {
        Scope::Identities
    }

    fn frees_space(&self) -> bool {
        true
    }

    fn restore(&self, _commit: &Commit<'_>, database: &mut Restoration) -> Result<()> {
        let identities = &database.identities;
        identities.recover(self.table, self.column, self.value);
        Ok(())
    }
}
