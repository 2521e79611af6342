//! Files of chunks and row metadata. A file is written once, synced, and removed when the manifest
//! no longer names it and the last reader has let go.
//!
//! At most 512 of them, update runs included, are open at a time. Lock order: the list of open
//! files → a file's handle (only to count); opening and closing hold one of the two at a time.
//!
//! A chunk or metadata blob is addressed by (file, offset, length); its checksum identity is made
//! of file number and offset, so that a blob in the wrong place is found.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use strandline_base::bytes::PutBytes;
use strandline_base::{Error, Result, checksum};
use strandline_device::{Device, File};

const MAGIC: &[u8; 8] = b"STRDCHNK";
const VERSION: u32 = 1;
/// Bytes before the first blob.
pub const HEADER_BYTES: u64 = 64;

/// Which part of a data file a blob is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// bytes from the start of the file, a multiple of 8
    pub offset: u64,
    /// bytes
    pub len: u64,
}

/// Data files and runs of one database that may be open at the same time: a process may commonly
/// open 1,024 files, and a large table has more.
pub(crate) const OPEN_FILES_MAX: usize = 512;

/// An immutable file that is opened on first use and may be closed between two uses.
#[derive(Debug)]
pub struct PooledFile {
    name: String,
    files: Arc<DataFiles>,
    handle: Handle,
    doomed: AtomicBool,
}

impl PooledFile {
    /// Names an existing file.
    pub fn existing(files: &Arc<DataFiles>, name: String) -> Self {
        Self {
            name,
            files: files.clone(),
            handle: Handle::default(),
            doomed: AtomicBool::new(false),
        }
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file has just been opened or created.
    pub fn put(&self, file: Arc<dyn File>) {
        *self.handle.lock() = Some(file);
        self.files.note_open(&self.handle);
    }

    /// The open file; `check` looks at it whenever it is opened.
    pub fn get(&self, check: impl FnOnce(&dyn File) -> Result<()>) -> Result<Arc<dyn File>> {
        let mut handle = self.handle.lock();
        if let Some(file) = &*handle {
            return Ok(file.clone());
        }
        let file = self.files.device.open(&self.name)?;
        check(&*file)?;
        *handle = Some(file.clone());
        drop(handle);
        self.files.note_open(&self.handle);
        Ok(file)
    }

    /// Removes the file when the last reference goes.
    pub fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
    }
}

impl Drop for PooledFile {
    fn drop(&mut self) {
        if *self.doomed.get_mut() {
            // A file that cannot be removed now is an orphan, removed at the next open.
            let _ = self.files.device.remove(&self.name);
        }
    }
}

/// The handle of a file that is open, shared with the list of open files.
type Handle = Arc<OpenFile>;
/// The open file, or none while it is closed.
type OpenFile = Mutex<Option<Arc<dyn File>>>;

/// The data files and runs of a database: where they are, and which are open. The file opened first
/// is closed first; whoever needs it again opens it again.
#[derive(Debug)]
pub struct DataFiles {
    device: Arc<dyn Device>,
    open: Mutex<VecDeque<Weak<OpenFile>>>,
}

impl DataFiles {
    /// The files on `device`, none open.
    pub fn new(device: Arc<dyn Device>) -> Arc<Self> {
        let open = Mutex::default();
        Arc::new(Self { device, open })
    }

    /// Where the files are.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// How many files are open, those not counted that readers hold just now.
    pub fn open_files(&self) -> usize {
        let open = self.open.lock();
        let is_open = |handle: &Handle| handle.lock().is_some();
        open.iter()
            .filter_map(Weak::upgrade)
            .filter(is_open)
            .count()
    }

    /// Lists a file that has been opened; the caller does not hold its handle's lock.
    fn note_open(&self, handle: &Handle) {
        let mut open = self.open.lock();
        open.push_back(Arc::downgrade(handle));
        if open.len() <= OPEN_FILES_MAX {
            return;
        }
        let oldest = open.pop_front().and_then(|oldest| oldest.upgrade());
        drop(open);
        if let Some(oldest) = oldest {
            *oldest.lock() = None;
        }
    }
}

/// One immutable data file, opened on first use.
#[derive(Debug)]
pub struct DataFile {
    id: u64,
    file: PooledFile,
}

/// The name of data file `id`.
pub fn data_file_name(id: u64) -> String {
    format!("chunks-{id:016x}")
}

/// The number of a data file, if `name` is one's.
pub fn data_file_id(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("chunks-")?, 16).ok()
}

impl DataFile {
    /// Names an existing file; it is opened and its header checked on first use.
    pub fn existing(files: &Arc<DataFiles>, id: u64) -> Arc<Self> {
        let file = PooledFile::existing(files, data_file_name(id));
        Arc::new(Self { id, file })
    }

    /// The file's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// The checksum identity of the blob at `offset`: of no two blobs of a file the same.
    pub fn identity(&self, offset: u64) -> u64 {
        (self.id << 32) ^ (offset / 8)
    }

    /// File and offset, for messages.
    pub fn place(&self, offset: u64) -> String {
        format!(
            "file {}/{}, offset {offset}",
            self.file.files.device.location(),
            self.file.name()
        )
    }

    /// Removes the file when the last reference goes.
    pub fn doom(&self) {
        self.file.doom();
    }

    /// Reads go to `file` from now on.
    #[cfg(test)]
    pub(crate) fn replace_handle(&self, file: Arc<dyn File>) {
        self.file.put(file);
    }

    fn check_header(&self, file: &dyn File) -> Result<()> {
        let mut header = [0u8; HEADER_BYTES as usize];
        file.read_exact_at(&mut header, 0)?;
        let (expected, got) = header_sums(&header);
        if &header[..8] != MAGIC {
            return Err(Error::corrupt(
                self.place(0),
                "not a chunk file (bad magic)",
            ));
        }
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if version != VERSION {
            return Err(Error::corrupt(
                self.place(8),
                format!("chunk file version {version}, this build reads version {VERSION}"),
            ));
        }
        if expected != got {
            return Err(Error::checksum_mismatch(self.place(60), expected, got));
        }
        if header[16..24] != self.id.to_le_bytes() {
            return Err(Error::corrupt(
                self.place(16),
                "the file carries another file's number",
            ));
        }
        Ok(())
    }

    /// Reads a blob. Its checksum is the reader's business.
    pub fn read(&self, extent: Extent) -> Result<Vec<u8>> {
        let len = usize::try_from(extent.len);
        let len = len.map_err(|_| Error::corrupt(self.place(extent.offset), "too long"))?;
        let mut bytes = vec![0; len];
        let file = self.file.get(|file| self.check_header(file))?;
        file.read_exact_at(&mut bytes, extent.offset)?;
        Ok(bytes)
    }
}

fn header_sums(header: &[u8; HEADER_BYTES as usize]) -> (u32, u32) {
    let stored = u32::from_le_bytes([header[60], header[61], header[62], header[63]]);
    (stored, checksum(&[], &header[..60]))
}

/// So many bytes of a data file in the making are written together.
const PIECE_BYTES: usize = 1 << 20;

/// Writes a data file blob by blob; in memory are [`PIECE_BYTES`] and the blob at hand. A file that
/// is not finished is removed.
#[derive(Debug)]
pub struct DataFileWriter {
    file: Arc<DataFile>,
    /// none before the first piece is written
    handle: Option<Arc<dyn File>>,
    /// bytes written
    written: u64,
    /// what follows them
    bytes: Vec<u8>,
}

impl DataFileWriter {
    /// Starts file `id`, which must not exist.
    pub fn new(files: &Arc<DataFiles>, id: u64) -> Self {
        let mut bytes = Vec::with_capacity(1 << 16);
        bytes.extend_from_slice(MAGIC);
        bytes.put_u32(VERSION);
        bytes.put_u32(0);
        bytes.put_u64(id);
        bytes.resize(60, 0);
        let sum = checksum(&[], &bytes);
        bytes.put_u32(sum);
        Self {
            file: DataFile::existing(files, id),
            handle: None,
            written: 0,
            bytes,
        }
    }

    /// The file that is being written.
    pub fn file(&self) -> &Arc<DataFile> {
        &self.file
    }

    /// Appends what `encode` appends to its buffer (given the blob's identity) as one blob.
    ///
    /// # Errors
    /// Those of `encode` and of the device; the file is then given up.
    pub fn blob<R>(
        &mut self,
        encode: impl FnOnce(u64, &mut Vec<u8>) -> Result<R>,
    ) -> Result<(Extent, R)> {
        // The written pieces end at a multiple of 8 as well.
        let start = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(start, 0);
        let offset = self.written + start as u64;
        let out = encode(self.file.identity(offset), &mut self.bytes)?;
        let len = (self.bytes.len() - start) as u64;
        if self.bytes.len() >= PIECE_BYTES {
            let end = self.bytes.len().next_multiple_of(8);
            self.bytes.resize(end, 0);
            self.write_piece()?;
        }
        Ok((Extent { offset, len }, out))
    }

    /// Writes what is in memory; its space is allocated first, so that a full disk is told apart.
    fn write_piece(&mut self) -> Result<()> {
        let handle = match &self.handle {
            Some(handle) => handle,
            None => {
                let pooled = &self.file.file;
                let created = pooled.files.device.create(pooled.name())?;
                self.handle.insert(created)
            }
        };
        let end = self.written + self.bytes.len() as u64;
        handle.set_len(end)?;
        handle.write_all_at(&self.bytes, self.written)?;
        self.written = end;
        // A large blob's memory is given back.
        self.bytes.clear();
        self.bytes.shrink_to(PIECE_BYTES);
        Ok(())
    }

    /// Writes the rest and syncs the file; returns it and its bytes. The caller syncs the directory
    /// before it refers to the file.
    pub fn finish(mut self) -> Result<(Arc<DataFile>, u64)> {
        if !self.bytes.is_empty() {
            self.write_piece()?;
        }
        if let Some(handle) = &self.handle {
            handle.sync()?;
        }
        if let Some(handle) = self.handle.take() {
            self.file.file.put(handle);
        }
        Ok((self.file.clone(), self.written))
    }
}

impl Drop for DataFileWriter {
    fn drop(&mut self) {
        if self.handle.is_some() {
            self.file.doom();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_device::MemoryDevice;

    #[test]
    fn few_files_are_open_and_closed_ones_are_still_read() {
        let files = DataFiles::new(Arc::new(MemoryDevice::new()));
        let written: Vec<_> = (0..OPEN_FILES_MAX as u64 + 100)
            .map(|id| {
                let mut writer = DataFileWriter::new(&files, id);
                let put = |_, out: &mut Vec<u8>| {
                    out.put_u64(id);
                    Ok(())
                };
                let (extent, ()) = writer.blob(put).expect("blob");
                (writer.finish().expect("finish").0, extent)
            })
            .collect();
        for _ in 0..2 {
            for (file, extent) in &written {
                let bytes = file.read(*extent).expect("read");
                assert_eq!(bytes, file.id().to_le_bytes());
                assert!(files.open_files() <= OPEN_FILES_MAX);
            }
        }
        written[3].0.doom();
        drop(written);
        assert_eq!(files.open_files(), 0);
        let left = files.device.list().expect("list");
        assert_eq!(left.len(), OPEN_FILES_MAX + 99);
        assert!(!left.contains(&data_file_name(3)));
    }

    /// Blobs of all sizes, some of many pieces, are where their extents say; in memory is one piece
    /// when a blob has been appended.
    #[test]
    fn a_file_is_written_in_pieces() {
        let files = DataFiles::new(Arc::new(MemoryDevice::new()));
        let mut writer = DataFileWriter::new(&files, 7);
        let sizes = [3, PIECE_BYTES * 3 + 1, 10, PIECE_BYTES - 100, 80, 0, 17];
        let mut extents = Vec::new();
        for (n, size) in sizes.into_iter().enumerate() {
            let put = |_, out: &mut Vec<u8>| {
                out.resize(out.len() + size, n as u8);
                Ok(())
            };
            extents.push(writer.blob(put).expect("blob").0);
            assert!(writer.bytes.capacity() <= PIECE_BYTES, "after {size}");
        }
        let (file, bytes) = writer.finish().expect("finish");
        let end = extents.last().map(|last| last.offset + last.len);
        assert_eq!(Some(bytes), end);
        for (n, (extent, size)) in extents.into_iter().zip(sizes).enumerate() {
            assert!(extent.offset.is_multiple_of(8));
            assert_eq!(file.read(extent).expect("read"), vec![n as u8; size]);
        }
    }

    #[test]
    fn a_file_that_is_given_up_is_removed() {
        let files = DataFiles::new(Arc::new(MemoryDevice::new()));
        let mut writer = DataFileWriter::new(&files, 7);
        let put = |_, out: &mut Vec<u8>| {
            out.resize(out.len() + PIECE_BYTES, 1);
            Ok(())
        };
        writer.blob(put).expect("blob");
        assert_eq!(files.device.list().expect("list"), [data_file_name(7)]);
        drop(writer);
        assert!(files.device.list().expect("list").is_empty());
    }

    /// A file that begins with `head`, ends with `tail` and has zeros between, without memory.
    #[derive(Debug)]
    struct Sparse {
        head: Vec<u8>,
        tail_at: u64,
        tail: Vec<u8>,
    }

    impl File for Sparse {
        fn name(&self) -> &str {
            "sparse"
        }
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            let (from, stored) = match offset < self.tail_at {
                true => (offset, &self.head),
                false => (offset - self.tail_at, &self.tail),
            };
            let from = from as usize;
            buf.copy_from_slice(&stored[from..from + buf.len()]);
            Ok(())
        }
        fn write_all_at(&self, _: &[u8], _: u64) -> Result<()> {
            unreachable!("only read")
        }
        fn sync(&self) -> Result<()> {
            unreachable!("only read")
        }
        fn len(&self) -> Result<u64> {
            Ok(self.tail_at + self.tail.len() as u64)
        }
        fn set_len(&self, _: u64) -> Result<()> {
            unreachable!("only read")
        }
    }

    #[test]
    fn a_blob_beyond_4_gib_is_read() {
        let files = DataFiles::new(Arc::new(MemoryDevice::new()));
        let (file, _) = DataFileWriter::new(&files, 7).finish().expect("finish");
        let mut head = vec![0; HEADER_BYTES as usize];
        let stored = files.device().open(file.name()).expect("open");
        stored.read_exact_at(&mut head, 0).expect("header");
        let (tail_at, tail) = (5 << 30, vec![1, 2, 3]);
        let offset = tail_at;
        file.replace_handle(Arc::new(Sparse {
            head,
            tail_at,
            tail,
        }));
        let extent = Extent { offset, len: 3 };
        assert_eq!(file.read(extent).expect("read"), [1, 2, 3]);
    }

    #[test]
    fn blobs_of_a_file_have_identities_of_their_own() {
        let files = DataFiles::new(Arc::new(MemoryDevice::new()));
        let file = DataFile::existing(&files, 3);
        let far = 8 << 32;
        assert_ne!(file.identity(64), file.identity(64 + far));
        assert_ne!(file.identity(64 + far), file.identity(64 + 2 * far));
    }
}
