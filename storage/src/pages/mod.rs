//! Stand-in.
#![allow(missing_docs)]
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::sync::Mutex;
use strandline_base::Result;
use strandline_device::Device;
pub const PAGE_BYTES: usize = 8192;
pub const PAGE_BODY_BYTES: usize = PAGE_BYTES - 40;
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageFileId(pub u32);
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNumber(pub u32);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access { Random, Sequential }
#[derive(Default, Debug)]
pub struct PageStore { files: Mutex<BTreeMap<PageFileId, Pages>> }
#[derive(Default, Debug)]
struct Pages { pages: Vec<Vec<u8>>, free: Vec<u32> }
pub struct PageRead(Vec<u8>);
impl std::ops::Deref for PageRead { type Target = [u8]; fn deref(&self) -> &[u8] { &self.0 } }
impl PageStore {
    pub fn stub() -> Arc<Self> { Arc::default() }
    pub fn create_file(&self, id: PageFileId) -> Result<()> {
        self.files.lock().insert(id, Pages { pages: vec![Vec::new()], free: vec![] }); Ok(())
    }
    pub fn open_file(&self, _id: PageFileId) -> Result<()> { Ok(()) }
    pub fn read(&self, id: PageFileId, number: PageNumber, _: Access) -> Result<PageRead> {
        Ok(PageRead(self.files.lock()[&id].pages[number.0 as usize].clone()))
    }
    pub fn begin(self: &Arc<Self>, id: PageFileId) -> PageChange {
        PageChange { store: self.clone(), id, bodies: BTreeMap::new(), freed: vec![], allocated: vec![] }
    }
    pub fn pages(&self, id: PageFileId) -> (usize, usize) { let f = self.files.lock(); let p = &f[&id]; (p.pages.len() - 1, p.free.len()) }
}
pub struct PageChange { store: Arc<PageStore>, id: PageFileId, bodies: BTreeMap<PageNumber, Vec<u8>>, freed: Vec<PageNumber>, allocated: Vec<PageNumber> }
impl PageChange {
    pub fn write(&mut self, n: PageNumber) -> Result<()> {
        if !self.bodies.contains_key(&n) { let b = self.store.read(self.id, n, Access::Random)?.0; self.bodies.insert(n, b); } Ok(())
    }
    pub fn body(&self, n: PageNumber) -> &[u8] { &self.bodies[&n] }
    pub fn body_mut(&mut self, n: PageNumber) -> &mut [u8] { self.bodies.get_mut(&n).unwrap() }
    pub fn allocate(&mut self) -> Result<PageNumber> {
        let mut f = self.store.files.lock(); let p = f.get_mut(&self.id).unwrap();
        let n = match p.free.pop() { Some(n) => n, None => { p.pages.push(vec![0; PAGE_BODY_BYTES]); p.pages.len() as u32 - 1 } };
        self.allocated.push(PageNumber(n));
        self.bodies.insert(PageNumber(n), vec![0; PAGE_BODY_BYTES]); Ok(PageNumber(n))
    }
    pub fn free(&mut self, n: PageNumber) -> Result<()> { self.freed.push(n); Ok(()) }
    pub fn release(&mut self, n: PageNumber) { self.bodies.remove(&n); }
    pub fn commit(mut self) -> Result<u64> {
        let mut f = self.store.files.lock(); let p = f.get_mut(&self.id).unwrap();
        for (n, b) in std::mem::take(&mut self.bodies) { p.pages[n.0 as usize] = b; }
        for n in &self.freed { p.free.push(n.0); }
        self.allocated.clear();
        Ok(0)
    }
}
impl Drop for PageChange { fn drop(&mut self) { let mut f = self.store.files.lock(); let p = f.get_mut(&self.id).unwrap(); for n in &self.allocated { p.free.push(n.0); } } }
#[allow(dead_code)] fn unused(_: &dyn Device) {}
