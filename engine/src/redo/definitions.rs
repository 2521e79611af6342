//! Changes of the catalog: kind 5.

use super::{Commit, Operation, OtherOperation, RedoKind, Restoration, Scope};
use crate::catalog::edit::{CatalogEdit, misplaced};
use std::sync::Arc;
use strandline_base::bytes::PutBytes;
use strandline_base::{Error, Result};

pub(super) const DEFINE: RedoKind = RedoKind {
    tag: 5,
    name: "define",
    decode: |r| Some(Operation::Other(Box::new(Definition(r.bytes()?.to_vec())))),
};

/// The change of the catalog: JSON of [`CatalogEdit`].
#[derive(Debug)]
struct Definition(Vec<u8>);

/// Appends a change of the catalog, in JSON.
pub(crate) fn put_definition(out: &mut Vec<u8>, json: &[u8]) {
    out.put_u8(DEFINE.tag);
    out.put_bytes(json);
}

impl OtherOperation for Definition {
    fn scope(&self) -> Scope {
        Scope::Definitions
    }

    fn frees_space(&self) -> bool {
        true
    }

    fn restore(&self, commit: &Commit<'_>, database: &mut Restoration) -> Result<()> {
        let edit: CatalogEdit = serde_json::from_slice(&self.0).map_err(|e| {
            Error::corrupt(
                commit.place,
                format!("a logged catalog is not understood: {e}"),
            )
        })?;
        let last = database.catalogs.last();
        let catalog = last.and_then(|(_, last)| edit.apply(last));
        let catalog = catalog.ok_or_else(|| misplaced(commit.place))?;
        database.adopt(edit.tables());
        database.catalogs.push((commit.ts, Arc::new(catalog)));
        Ok(())
    }
}
