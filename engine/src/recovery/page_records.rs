//! The log's records of pages, which are replayed when the log has been read.
//!
//! The first pass over the log keeps them in memory, a 32nd of `memory_bytes` at most. Only the
//! part of the log with the others is read a second time.

use std::collections::VecDeque;
use strandline_base::Result;
use strandline_storage::wal::{Lsn, Wal};

use crate::index_files::IndexRecord;

/// Bytes that a kept record takes beside its own.
const KEPT_BYTES: usize = size_of::<(Lsn, Vec<u8>)>();

/// See the module's documentation.
pub(super) struct PageRecords {
    /// the end of the last record that the pages in the files have
    from: Lsn,
    /// bytes of memory left for `kept`
    room: usize,
    /// records with their ends
    kept: VecDeque<(Lsn, Vec<u8>)>,
    /// the part of the log with the records that are not kept
    rest: Option<(Lsn, Lsn)>,
}

impl PageRecords {
    /// None yet. Replay begins behind `from`.
    pub fn new(from: Lsn, memory_bytes: usize) -> Self {
        Self {
            from,
            room: memory_bytes / 32,
            kept: VecDeque::new(),
            rest: None,
        }
    }

    /// Notes the record between two positions of the log.
    pub fn note(&mut self, (begin, end): (Lsn, Lsn), record: &[u8]) {
        if end <= self.from {
            return;
        }
        if let Some((_, last)) = &mut self.rest {
            *last = end;
            return;
        }
        match self.room.checked_sub(record.len() + KEPT_BYTES) {
            Some(room) => {
                self.room = room;
                self.kept.push_back((end, record.to_vec()));
            }
            None => self.rest = Some((begin, end)),
        }
    }

    /// Passes the records to `visit` in order, each as (its end, the page store's record).
    ///
    /// # Errors
    /// Those of reading the log and of `visit`.
    pub fn visit(
        mut self,
        wal: &Wal,
        visit: &mut dyn FnMut(Lsn, Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        while let Some((end, record)) = self.kept.pop_front() {
            visit(end, record)?;
        }
        let Some(rest) = self.rest else {
            return Ok(());
        };
        wal.read(
            rest,
            &mut |end, record| match IndexRecord::decode(record)? {
                Some(IndexRecord::Pages(record)) => visit(end, record.to_vec()),
                _ => Ok(()),
            },
        )
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use strandline_device::MemoryDevice;
    use strandline_storage::wal::WalSettings;

    /// Whatever finds room, all records behind the begin are visited once, in order.
    #[test]
    fn records_are_visited_in_order_with_any_room() {
        let settings = WalSettings {
            segment_bytes: 1 << 14,
        };
        let wal = Wal::create(Arc::new(MemoryDevice::new()), settings, 1).expect("a log");
        let mut all: Vec<(Lsn, Lsn, Vec<u8>)> = Vec::new();
        for n in 0..60_u8 {
            let is_page = n % 3 != 1;
            let mut record = vec![if is_page { b'P' } else { 2 }];
            record.resize(1 + usize::from(n) * 7, n);
            let begin = wal.end_lsn();
            let end = wal.append(&mut record, &mut |_, _| Ok(()));
            let end = end.expect("appended").end;
            if is_page {
                all.push((begin, end, record[1..].to_vec()));
            }
        }
        wal.wait_durable(wal.end_lsn()).expect("durable");
        for from in [Lsn(0), all[7].1, wal.end_lsn()] {
            let expected = all.iter().filter(|(_, end, _)| *end > from);
            let expected: Vec<_> = expected.map(|(_, end, own)| (*end, own.clone())).collect();
            for room in [0, 1, 40, 400, 4_000, 1 << 20] {
                let mut records = PageRecords::new(from, room * 32);
                for (begin, end, record) in &all {
                    records.note((*begin, *end), record);
                }
                let kept: usize = records.kept.iter().map(|(_, own)| own.len()).sum();
                assert!(kept + records.kept.len() * KEPT_BYTES <= room);
                assert!(room < 1 << 20 || records.rest.is_none(), "one pass");
                let mut found = Vec::new();
                let visited = records.visit(&wal, &mut |end, record| {
                    found.push((end, record));
                    Ok(())
                });
                visited.expect("read");
                assert!(found == expected, "from {from:?}, room {room}");
            }
        }
    }
}
