//! Data files: chunks and row metadata as blobs after a header.
//!
//! A blob is addressed by (file, offset, length). Its checksum identity is that of its [`BlockId`].
//! The byte layout is in docs/format.md, section "Chunk files".

use super::{Access, BlockId, DataFiles, Extent, FileKind, StoredFile, Tier, Window};
use crate::pool::Pool;
use crate::version::refuse_unknown;
use std::ops::RangeInclusive;
use std::sync::Arc;
use strandline_base::bytes::PutBytes;
use strandline_base::{Error, Result, checksum};
use strandline_device::File;

const MAGIC: &[u8; 8] = b"STRDCHNK";
/// Versions that are read; the last one is written. Version 1 has no runs in row metadata.
const VERSIONS: RangeInclusive<u32> = 1..=2;
/// Bytes before the first blob.
pub const HEADER_BYTES: u64 = 64;

static KIND: FileKind = FileKind {
    name: "chunk file",
    header_bytes: HEADER_BYTES,
    bytes_min: HEADER_BYTES,
    check: check_header,
};

/// One data file.
#[derive(Debug)]
pub struct DataFile(StoredFile);

/// The name of data file `id`.
pub fn data_file_name(id: u64) -> String {
    format!("chunks-{id:016x}")
}

/// The number in a data file's name; None for other names.
pub fn data_file_id(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("chunks-")?, 16).ok()
}

impl DataFile {
    /// Names an existing file; it is opened and its header checked on first use.
    pub fn existing(files: &Arc<DataFiles>, id: u64) -> Arc<Self> {
        let name = data_file_name(id);
        Arc::new(Self(StoredFile::new(&KIND, id, name, files)))
    }

    /// The file's number.
    pub fn id(&self) -> u64 {
        self.0.id()
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The blob at `offset`.
    pub fn block_id(&self, offset: u64) -> BlockId {
        let file = self.id();
        BlockId { file, offset }
    }

    /// The checksum identity of the blob at `offset`, unique within the file.
    pub fn identity(&self, offset: u64) -> u64 {
        self.block_id(offset).identity()
    }

    /// File and offset, for messages.
    pub fn place(&self, offset: u64) -> String {
        self.0.place(offset)
    }

    /// Removes the file when the last reference is dropped.
    pub fn remove_when_unused(&self) {
        self.0.remove_when_unused();
    }

    /// The bytes of a blob or a part of one, see [`StoredFile::read`].
    pub fn read(&self, extent: Extent, access: Access) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.0.read(extent, access, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a blob or a part of one that has a checksum, see [`StoredFile::read_block`].
    pub fn read_block<R>(
        &self,
        extent: Extent,
        access: Access,
        check: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        self.0.read_block(extent, access, &mut Vec::new(), check)
    }

    /// The file, for [`fetch`](super::batch::fetch).
    pub fn stored(&self) -> &StoredFile {
        &self.0
    }

    /// Reads a blob that a scan keeps, see [`StoredFile::read_scanned`]: the bytes, and the result
    /// of `check`.
    pub fn read_scanned<R>(
        &self,
        extent: Extent,
        check: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<(Vec<u8>, R)> {
        let mut bytes = Vec::new();
        let checked = self.0.read_scanned(extent, &mut bytes, check)?;
        Ok((bytes, checked))
    }

    /// See [`StoredFile::scan_needs_request`].
    pub fn scan_needs_request(&self, extent: Extent) -> bool {
        self.0.scan_needs_request(extent)
    }

    /// See [`StoredFile::block_needs_request`].
    pub fn block_needs_request(&self, extent: Extent) -> bool {
        self.0.block_needs_request(extent)
    }

    /// See [`StoredFile::start_windows`].
    pub fn start_windows(
        &self,
        extents: Vec<Extent>,
        own: usize,
        pool: &Arc<Pool>,
        started: &mut Vec<Arc<Window>>,
    ) -> bool {
        self.0.start_windows(extents, own, pool, started)
    }

    /// Compares the header, see [`StoredFile::verify_header`].
    pub fn verify_header(&self) -> Result<()> {
        self.0.verify_header()
    }
}

fn check_header(stored: &StoredFile, header: &[u8]) -> Result<()> {
    let (expected, got) = header_sums(header);
    if &header[..8] != MAGIC {
        return Err(Error::corrupt(
            stored.place(0),
            "not a chunk file (bad magic)",
        ));
    }
    if expected != got {
        return Err(Error::checksum_mismatch(stored.place(60), expected, got));
    }
    let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    refuse_unknown(stored.name(), version, VERSIONS)?;
    if header[16..24] != stored.id().to_le_bytes() {
        return Err(Error::corrupt(
            stored.place(16),
            "the file carries another file's number",
        ));
    }
    Ok(())
}

/// The checksum in a header of [`HEADER_BYTES`], and that of its bytes.
fn header_sums(header: &[u8]) -> (u32, u32) {
    let stored = u32::from_le_bytes([header[60], header[61], header[62], header[63]]);
    (stored, checksum(&[], &header[..60]))
}

/// Bytes of a data file that are written together.
const PIECE_BYTES: usize = 1 << 20;

/// Writes a data file blob by blob. Only [`PIECE_BYTES`] and the present blob are in memory. An
/// unfinished file is removed.
#[derive(Debug)]
pub struct DataFileWriter {
    file: Arc<DataFile>,
    files: Arc<DataFiles>,
    /// None before the first write
    handle: Option<Arc<dyn File>>,
    /// bytes written
    written: u64,
    /// the bytes after the written ones
    bytes: Vec<u8>,
}

impl DataFileWriter {
    /// Starts file `id`, which must not exist.
    pub fn new(files: &Arc<DataFiles>, id: u64) -> Self {
        let mut bytes = Vec::with_capacity(1 << 16);
        bytes.extend_from_slice(MAGIC);
        bytes.put_u32(*VERSIONS.end());
        bytes.put_u32(0);
        bytes.put_u64(id);
        bytes.resize(60, 0);
        let sum = checksum(&[], &bytes);
        bytes.put_u32(sum);
        Self {
            file: DataFile::existing(files, id),
            files: files.clone(),
            handle: None,
            written: 0,
            bytes,
        }
    }

    /// The file that is being written.
    pub fn file(&self) -> &Arc<DataFile> {
        &self.file
    }

    /// Appends one blob: the bytes that `encode` appends to its buffer, given the blob's identity.
    ///
    /// # Errors
    /// The errors of `encode` and of the device; the file is then abandoned.
    pub fn blob<R>(
        &mut self,
        encode: impl FnOnce(u64, &mut Vec<u8>) -> Result<R>,
    ) -> Result<(Extent, R)> {
        self.blob_in_pieces(|identity, pieces| encode(identity, pieces.buffer()))
    }

    /// [`DataFileWriter::blob`] for a blob that is too large for memory. `encode` calls
    /// [`BlobPieces::written`] after each piece.
    pub fn blob_in_pieces<R>(
        &mut self,
        encode: impl FnOnce(u64, &mut BlobPieces<'_>) -> Result<R>,
    ) -> Result<(Extent, R)> {
        let end = self.written + self.bytes.len() as u64;
        let offset = end.next_multiple_of(8);
        self.bytes.resize((offset - self.written) as usize, 0);
        let identity = self.file.identity(offset);
        let mut pieces = BlobPieces { writer: self };
        let out = encode(identity, &mut pieces)?;
        let len = self.written + self.bytes.len() as u64 - offset;
        self.write_full_piece()?;
        Ok((Extent { offset, len }, out))
    }

    fn write_full_piece(&mut self) -> Result<()> {
        match self.bytes.len() >= PIECE_BYTES {
            true => self.write_piece(),
            false => Ok(()),
        }
    }

    /// Writes the buffered bytes. Their space is allocated first, so that a full disk is
    /// distinguishable.
    fn write_piece(&mut self) -> Result<()> {
        let handle = match &self.handle {
            Some(handle) => handle,
            None => {
                let created = self.files.create(Tier::Capacity, self.file.name())?;
                self.handle.insert(created)
            }
        };
        let end = self.written + self.bytes.len() as u64;
        handle.set_len(end)?;
        handle.write_all_at(&self.bytes, self.written)?;
        self.written = end;
        // The memory of a large blob is freed.
        self.bytes.clear();
        self.bytes.shrink_to(PIECE_BYTES);
        Ok(())
    }

    /// Writes the rest and syncs the file; returns it and its length. The caller syncs the
    /// directory before it refers to the file.
    pub fn finish(mut self) -> Result<(Arc<DataFile>, u64)> {
        if !self.bytes.is_empty() {
            self.write_piece()?;
        }
        if let Some(handle) = &self.handle {
            handle.sync()?;
        }
        if let Some(handle) = self.handle.take() {
            self.file.0.put(handle);
        }
        Ok((self.file.clone(), self.written))
    }
}

/// A blob being written, see [`DataFileWriter::blob_in_pieces`].
#[derive(Debug)]
pub struct BlobPieces<'a> {
    writer: &'a mut DataFileWriter,
}

impl BlobPieces<'_> {
    /// The buffer to which the blob's next bytes are appended.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.writer.bytes
    }

    /// Writes the buffered bytes if there are [`PIECE_BYTES`].
    pub fn written(&mut self) -> Result<()> {
        self.writer.write_full_piece()
    }
}

impl Drop for DataFileWriter {
    fn drop(&mut self) {
        if self.handle.is_some() {
            self.file.remove_when_unused();
        }
    }
}

#[cfg(test)]
mod tests;
