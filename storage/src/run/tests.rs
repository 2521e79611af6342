//! Runs of the simplest possible records: a row and a time.

use super::*;
use crate::file::DataFiles;
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
    let mut writer = RunWriter::create(files, &run_file_name(id), id, Marks).expect("create");
    marks.iter().for_each(|m| writer.push(*m).expect("push"));
    writer.finish().expect("finish");
    Arc::new(Run::open(files, &run_file_name(id), id, Marks).expect("open"))
}

/// Rows are in one, several or all runs, with several records each; runs have many blocks.
#[test]
fn a_merge_gives_every_record_in_the_order_of_rows() {
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
    let (mut merge, mut merged) = (RowMerge::new(&runs), Vec::new());
    let mut last = None;
    loop {
        let first = merged.len();
        let Some(row) = merge.next_row(&mut merged).expect("next") else {
            break;
        };
        assert!(last < Some(row), "{row:?} after {last:?}");
        assert!(merged[first..].iter().all(|mark| mark.row() == row));
        merged[first..].sort();
        last = Some(row);
    }
    all.sort();
    assert_eq!(merged, all);
}
