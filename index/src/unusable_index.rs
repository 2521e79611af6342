//! The access method of an index that could not be built: it has no entries and says why.
//!
//! What would need its entries for a right answer fails with the error of the build: lookups,
//! cursors, and unique keys that are entered. Keys that may repeat are passed over, so that writers
//! go on while readers scan. Nothing is removed from it, as nothing is in it.

use crate::access_method::{
    AccessMethod, BulkLoad, Capabilities, Cursor, Direction, KeyBytes, KeyRange, Lookup,
};
use crate::key_hash::hash_key;
use strandline_base::{CommitTs, Error, Result, RowId, Value};

/// See the module's documentation.
pub struct UnusableIndex {
    failure: Error,
}

impl UnusableIndex {
    /// In the place of the index whose build ended with `failure`.
    pub fn new(failure: Error) -> Self {
        Self { failure }
    }
}

/// Passes over keys that may repeat, and refuses unique ones.
struct Load<'a> {
    refusal: Option<&'a Error>,
}

impl BulkLoad for Load<'_> {
    fn push(&mut self, _key: &[Value], _row: RowId, _others: &mut Vec<RowId>) -> Result<()> {
        self.refusal.map_or(Ok(()), |refusal| Err(refusal.clone()))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl AccessMethod for UnusableIndex {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            durable: false,
        }
    }

    fn encode(&self, key: &[Value]) -> KeyBytes {
        KeyBytes::hashed(hash_key(key))
    }

    fn insert(&self, _key: &KeyBytes, _row: RowId, _others: &mut Vec<RowId>) -> Result<bool> {
        Err(self.failure.clone())
    }

    fn add(&self, _key: &KeyBytes, _row: RowId) -> Result<bool> {
        Ok(false)
    }

    fn find(&self, _key: &[Value]) -> Result<Lookup> {
        Err(self.failure.clone())
    }

    fn lookup(&self, _key: &KeyBytes, _rows: &mut Vec<RowId>) -> Result<()> {
        Err(self.failure.clone())
    }

    fn cursor(&self, _range: &KeyRange, _direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        Err(self.failure.clone())
    }

    fn retire(&self, _key: &KeyBytes, _row: RowId, _since: CommitTs) -> Result<()> {
        Ok(())
    }

    fn retain(&self, _keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        Ok(())
    }

    fn bulk_load(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(Load { refusal: None })
    }

    fn bulk_load_unique(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(Load {
            refusal: Some(&self.failure),
        })
    }

    fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        damage.push(self.failure.message().to_owned());
        Ok(())
    }

    fn failure(&self) -> Option<&Error> {
        Some(&self.failure)
    }

    fn len(&self) -> usize {
        0
    }

    fn memory_bytes(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::SqlState;

    #[test]
    fn needed_entries_are_an_error_and_others_are_passed_over() {
        let index = UnusableIndex::new(Error::corrupt("file x", "bad"));
        let (key, row) = (index.encode(&[Value::BigInt(1)]), RowId(7));
        let is_damage = |error: Error| error.sqlstate() == SqlState::DATA_CORRUPTED;
        let mut rows = Vec::new();
        assert!(index.lookup(&key, &mut rows).is_err_and(is_damage));
        assert!(index.insert(&key, row, &mut rows).is_err_and(is_damage));
        assert!(index.find(&[Value::BigInt(1)]).is_err_and(is_damage));
        let cursor = index.cursor(&KeyRange::default(), Direction::Forward);
        assert!(cursor.is_err_and(is_damage));
        assert_eq!(index.add(&key, row).ok(), Some(false));
        let pushed = |mut load: Box<dyn BulkLoad + '_>| load.push(&[], row, &mut Vec::new());
        assert!(pushed(index.bulk_load()).is_ok());
        assert!(pushed(index.bulk_load_unique()).is_err_and(is_damage));
        let mut damage = Vec::new();
        index.check(&mut damage).expect("check");
        assert_eq!(damage, ["file x: bad"]);
    }
}
