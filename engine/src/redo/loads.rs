//! Ranges loaded in bulk, whose files are durable before their record: kind 4.

use super::values::take_u32;
use super::{Commit, Operation, OtherOperation, RedoKind, Restoration, Scope};
use crate::manifest_state::RangeEntry;
use strandline_base::bytes::PutBytes;
use strandline_base::{Error, RangeNo, Result, StorageId};

pub(super) const LOAD: RedoKind = RedoKind {
    tag: 4,
    name: "load",
    decode: |r| {
        Some(Operation::Other(Box::new(Load {
            storage: StorageId(take_u32(r)?),
            range: r.bytes()?.to_vec(),
        })))
    },
};

/// A loaded range.
#[derive(Debug)]
struct Load {
    /// the storage
    storage: StorageId,
    /// its number and the range as JSON of `RangeEntry`
    range: Vec<u8>,
}

/// Appends a bulk-loaded range, in JSON.
pub(crate) fn put_load(out: &mut Vec<u8>, storage: StorageId, range: &[u8]) {
    out.put_u8(LOAD.tag);
    out.put_varint(u64::from(storage.0));
    out.put_bytes(range);
}

impl OtherOperation for Load {
    fn scope(&self) -> Scope {
        Scope::Storage(self.storage)
    }

    fn frees_space(&self) -> bool {
        false
    }

    fn data_files(&self) -> Vec<u64> {
        let Ok((_, entry)) = serde_json::from_slice::<(RangeNo, RangeEntry)>(&self.range) else {
            return Vec::new(); // the replay refuses it
        };
        let columns = entry.columns.into_iter().flatten();
        columns.chain(entry.meta).map(|(file, ..)| file).collect()
    }

    fn loaded_range(&self) -> Option<RangeNo> {
        let loaded = serde_json::from_slice::<(RangeNo, RangeEntry)>(&self.range);
        loaded.ok().map(|(no, _)| no) // the replay refuses another one
    }

    fn restore(&self, commit: &Commit<'_>, database: &mut Restoration) -> Result<()> {
        let (no, mut entry): (RangeNo, RangeEntry) =
            serde_json::from_slice(&self.range).map_err(|e| {
                Error::corrupt(
                    commit.place,
                    format!("a logged range is not understood: {e}"),
                )
            })?;
        let Some(store) = database.stores.get(&self.storage).cloned() else {
            return Ok(());
        };
        entry.start = commit.ts.0;
        entry.start_max = commit.ts.0;
        database.restore_base(&store, no, &entry)?;
        store.unlisted.lock().push(no);
        Ok(())
    }
}
