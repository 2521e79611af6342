//! Runs of the simplest possible records: a row and a time.

use super::*;
use crate::file::{Access, DataFiles, Tier};
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mark(u64, u64);

impl RunItem for Mark {
    fn row(&self) -> RowId {
        RowId(self.0)
    }
    fn ts(&self) -> CommitTs {
        CommitTs(self.1)
    }
    fn is_version(&self) -> bool {
        true
    }
    fn may_precede(&self, next: &Self) -> bool {
        self <= next
    }
    fn single_bytes(&self) -> usize {
        8
    }
}

#[derive(Clone, Debug)]
struct Marks;

impl RunCodec for Marks {
    type Record = Mark;
    type Origin = ();

    fn origin(_: &[Mark]) {}
    fn put_origin((): (), _: &mut Vec<u8>) {}
    fn take_origin(_: &mut ByteReader<'_>) -> Option<()> {
        Some(())
    }
    fn put_group(out: &mut Vec<u8>, group: &[Mark], (): ()) -> Result<()> {
        group.iter().for_each(|mark| out.put_u64(mark.1));
        Ok(())
    }
    fn take_group(&self, row: RowId, bytes: &[u8], (): ()) -> Option<Vec<Mark>> {
        let mut reader = ByteReader::new(bytes);
        let mark = |_| Some(Mark(row.0, reader.u64()?));
        (0..bytes.len() / 8).map(mark).collect()
    }
}

fn write(files: &Arc<DataFiles>, id: u64, marks: &[Mark]) -> Arc<Run<Marks>> {
    let mut writer =
        RunWriter::create(files, Tier::Fast, &run_file_name(id), id, Marks).expect("create");
    marks.iter().for_each(|m| writer.push(*m).expect("push"));
    writer.finish().expect("finish");
    Arc::new(Run::open(files, &run_file_name(id), id, Marks).expect("open"))
}

/// Rows are in one, several or all runs, with several records each; runs have many blocks. A record
/// that several runs hold comes once.
#[test]
fn a_merge_gives_every_record_once_in_order() {
    let files = DataFiles::new(Arc::new(MemoryDevice::new()));
    let mut rng = Rng::new(5);
    let mut all = Vec::new();
    let runs: Vec<Arc<Run<Marks>>> = (0..4)
        .map(|id| {
            let mut marks: Vec<Mark> = (0..9000)
                .map(|_| Mark(rng.below(5000), rng.below(1000)))
                .collect();
            marks.sort();
            all.extend_from_slice(&marks);
            write(&files, id, &marks)
        })
        .collect();
    assert!(runs.iter().all(|run| run.index().blocks.len() > 1));
    let rows = RowId(17)..RowId(4_900);
    let mut merge = RunMerge::new(&runs, &rows, 1 << 16);
    let mut merged = Vec::new();
    while let Some(mark) = merge.next_record().expect("next") {
        merged.push(mark);
    }
    all.sort();
    all.dedup();
    all.retain(|mark| rows.contains(&mark.row()));
    assert_eq!(merged, all);
}

/// A reader of one row among large ones opens no block before it needs a record of it.
#[test]
fn a_cursor_decodes_what_is_taken_and_no_more() {
    let files = DataFiles::new(Arc::new(MemoryDevice::new()));
    let marks: Vec<Mark> = (0..200_000).map(|ts| Mark(7, ts)).collect();
    let run = write(&files, 1, &marks);
    let blocks = run.index().blocks.len();
    assert!(blocks > 5, "{blocks}");
    let reads = || files.reads(Access::Sequential);
    let before = reads();
    let mut cursor = run.cursor(RowId(7)..RowId(8), 0);
    for mark in &marks[..10] {
        assert_eq!(cursor.next_record().expect("next"), Some(*mark));
    }
    assert_eq!(reads(), before + 1, "of {blocks}");
}
