//! stub until the real one lands
use std::sync::Arc;
use strandline_base::bytes::*;
use strandline_base::*;
use strandline_device::Device;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunRecordKind {
    Insert,
    Update,
    OldValue,
    Delete,
}
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    pub row: RowId,
    pub ts: CommitTs,
    pub kind: RunRecordKind,
    pub columns: Vec<(ColumnId, Value)>,
}
#[derive(Debug)]
pub struct Run {
    id: u64,
    records: Vec<RunRecord>,
}
impl Run {
    pub fn id(&self) -> u64 {
        self.id
    }
    pub fn min_ts(&self) -> CommitTs {
        self.records.iter().map(|r| r.ts).min().unwrap()
    }
    pub fn max_ts(&self) -> CommitTs {
        self.records.iter().map(|r| r.ts).max().unwrap()
    }
    pub fn min_row(&self) -> RowId {
        self.records.first().unwrap().row
    }
    pub fn max_row(&self) -> RowId {
        self.records.last().unwrap().row
    }
    pub fn records(
        &self,
        f: RowId,
        t: RowId,
        v: &mut dyn FnMut(RunRecord) -> Result<()>,
    ) -> Result<()> {
        for r in &self.records {
            if r.row >= f && r.row < t {
                v(r.clone())?;
            }
        }
        Ok(())
    }
    pub fn doom(&self) {}
    pub fn bytes(&self) -> u64 {
        0
    }
    pub fn verify(&self) -> Result<()> {
        Ok(())
    }
    pub fn open(d: &Arc<dyn Device>, n: &str, id: u64, _t: &[(ColumnId, SqlType)]) -> Result<Run> {
        let f = d.open(n)?;
        let mut b = vec![0; f.len()? as usize];
        f.read_exact_at(&mut b, 0)?;
        let mut r = ByteReader::new(&b);
        let mut records = vec![];
        while r.remaining() > 0 {
            let row = RowId(r.u64().unwrap());
            let ts = CommitTs(r.u64().unwrap());
            let kind = match r.u8().unwrap() {
                0 => RunRecordKind::Insert,
                1 => RunRecordKind::Update,
                2 => RunRecordKind::OldValue,
                _ => RunRecordKind::Delete,
            };
            let mut columns = vec![];
            for _ in 0..r.varint().unwrap() {
                let c = ColumnId(r.u32().unwrap());
                let t = r.u8().unwrap();
                let v = match t {
                    0 => Value::Null,
                    1 => Value::BigInt(r.u64().unwrap() as i64),
                    _ => Value::Text(std::str::from_utf8(r.bytes().unwrap()).unwrap().into()),
                };
                columns.push((c, v));
            }
            records.push(RunRecord {
                row,
                ts,
                kind,
                columns,
            });
        }
        Ok(Run { id, records })
    }
}
pub struct RunWriter {
    run: Run,
    d: Arc<dyn Device>,
    n: String,
}
impl RunWriter {
    pub fn create(
        d: &Arc<dyn Device>,
        n: &str,
        id: u64,
        _t: &[(ColumnId, SqlType)],
    ) -> Result<Self> {
        Ok(Self {
            run: Run {
                id,
                records: vec![],
            },
            d: d.clone(),
            n: n.into(),
        })
    }
    pub fn push(&mut self, r: &RunRecord) -> Result<()> {
        self.run.records.push(r.clone());
        Ok(())
    }
    pub fn finish(self) -> Result<Run> {
        let mut b = vec![];
        for r in &self.run.records {
            b.put_u64(r.row.0);
            b.put_u64(r.ts.0);
            b.put_u8(r.kind as u8);
            b.put_varint(r.columns.len() as u64);
            for (c, v) in &r.columns {
                b.put_u32(c.0);
                match v {
                    Value::Null => b.put_u8(0),
                    Value::BigInt(x) => {
                        b.put_u8(1);
                        b.put_u64(*x as u64)
                    }
                    Value::Text(t) => {
                        b.put_u8(2);
                        b.put_bytes(t.as_bytes())
                    }
                    _ => panic!("stub run"),
                }
            }
        }
        let f = self.d.create(&self.n)?;
        f.write_all_at(&b, 0)?;
        f.sync()?;
        Ok(self.run)
    }
}
pub fn run_file_name(i: u64) -> String {
    format!("run-{i:016x}")
}
pub fn run_file_id(n: &str) -> Option<u64> {
    u64::from_str_radix(n.strip_prefix("run-")?, 16).ok()
}
