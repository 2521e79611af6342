//! Blocks in one file of a device, and two files that take the image in turn.
//!
//! A process may end between the write of an image and its sync. The next process finds this image,
//! which a later crash can still lose. So an opening writes the image that it uses again, in its
//! place, and syncs it: the older image stays whole until then.
//!
//! After a failed sync the state of the files is unknown: every later write, sync and image fails.
//!
//! ```text
//! image file: 0   8  magic "SLIMAGE1"
//!             8   u64  generation
//!             16  u64  bytes of the image
//!             24  u32  CRC-32C over magic, generation, length and image
//!             28  ...  image
//! ```

use super::{BlockQueue, FreeList, LevelBlocks, file_names};
use std::sync::Arc;
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::sync::Mutex;
use strandline_base::{Error, ErrorKind, Result, SqlState, checksum};
use strandline_device::{Device, File, Request};

const MAGIC: &[u8; 8] = b"SLIMAGE1";
const HEADER_BYTES: usize = 28;
/// Writes of neighbouring blocks are joined up to so many bytes.
const WRITE_BYTES_MAX: usize = 16 << 20;
/// Reads of neighbouring blocks are joined up to so many bytes.
const READ_BYTES_MAX: usize = 32 << 10;

/// Blocks in files of a device.
#[derive(Debug)]
pub struct FileBlocks {
    block_bytes: usize,
    file: Arc<dyn File>,
    images: [Arc<dyn File>; 2],
    queue: Option<Arc<BlockQueue>>,
    list: Mutex<FreeList>,
    generation: Mutex<u64>,
    /// a sync has failed
    failure: Mutex<Option<Error>>,
}

impl FileBlocks {
    /// Opens, or makes, the files of [`file_names`]. Their names are durable when this has
    /// returned.
    ///
    /// # Errors
    /// The device's; XX001 if neither image is whole.
    pub fn open(device: &dyn Device, name: &str, block_bytes: usize) -> Result<Self> {
        let present = device.list()?;
        let [file, even, odd] = file_names(name).map(|name| match present.contains(&name) {
            true => device.open(&name),
            false => device.create(&name),
        });
        let blocks = Self::of(block_bytes, file?, [even?, odd?])?;
        device.sync_directory()?;
        Ok(blocks)
    }

    /// Opens files that are there.
    ///
    /// # Errors
    /// 58P01 if one is missing; else as [`FileBlocks::open`].
    pub fn existing(device: &dyn Device, name: &str, block_bytes: usize) -> Result<Self> {
        let [file, even, odd] = file_names(name).map(|name| device.open(&name));
        Self::of(block_bytes, file?, [even?, odd?])
    }

    fn of(block_bytes: usize, file: Arc<dyn File>, images: [Arc<dyn File>; 2]) -> Result<Self> {
        let blocks = Self {
            block_bytes,
            file,
            images,
            queue: None,
            list: Mutex::default(),
            generation: Mutex::new(0),
            failure: Mutex::default(),
        };
        if let Some((generation, image)) = blocks.newest()? {
            blocks.write_image(generation, &image)?;
            *blocks.generation.lock() = generation;
        }
        Ok(blocks)
    }

    /// Bytes of the files.
    ///
    /// # Errors
    /// The device's.
    pub fn bytes(&self) -> Result<u64> {
        let [even, odd] = &self.images;
        Ok(self.file.len()? + even.len()? + odd.len()?)
    }

    /// The failure (`Closed`) of the files, after which they take no writes.
    ///
    /// # Errors
    /// That one.
    pub fn check_usable(&self) -> Result<()> {
        self.failure.lock().clone().map_or(Ok(()), Err)
    }

    fn sync_file(&self, file: &dyn File) -> Result<()> {
        file.sync().map_err(|cause| {
            let what = format!("\"{}\" could not be synced: {cause}", file.name());
            let error = Error::new(ErrorKind::Closed, SqlState::IO_ERROR, what);
            self.failure.lock().insert(error).clone()
        })
    }

    fn write_image(&self, generation: u64, image: &[u8]) -> Result<()> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + image.len());
        bytes.extend_from_slice(MAGIC);
        bytes.put_u64(generation);
        bytes.put_u64(image.len() as u64);
        bytes.put_u32(image_checksum(generation, image));
        bytes.extend_from_slice(image);
        let [even, odd] = &self.images;
        let file = if generation.is_multiple_of(2) {
            even
        } else {
            odd
        };
        file.write_all_at(&bytes, 0)?;
        self.sync_file(&**file)
    }

    /// Reads several blocks through this queue.
    pub fn with_queue(self, queue: Arc<BlockQueue>) -> Self {
        Self {
            queue: Some(queue),
            ..self
        }
    }

    /// Blocks whose numbers are in order, by reads: neighbours are in one.
    fn reads<'a>(&self, numbers: &'a [u64]) -> impl Iterator<Item = &'a [u64]> {
        let a_read = (READ_BYTES_MAX / self.block_bytes).max(1);
        let neighbours = numbers.chunk_by(|before, next| before + 1 == *next);
        neighbours.flat_map(move |run| run.chunks(a_read))
    }

    /// Where the first one of these blocks is.
    fn offset(&self, run: &[u64]) -> u64 {
        run.first().unwrap_or(&0) * self.block_bytes as u64
    }

    fn requests(&self, numbers: &[u64]) -> Vec<Request> {
        let request = |run: &[u64]| Request::Scatter {
            file: self.file.clone(),
            offset: self.offset(run),
            buffers: vec![vec![0; self.block_bytes]; run.len()],
        };
        self.reads(numbers).map(request).collect()
    }

    /// The bytes of blocks whose numbers are in order, without a queue.
    fn read_ordered(&self, numbers: &[u64]) -> Result<Vec<Vec<u8>>> {
        let mut blocks = Vec::with_capacity(numbers.len());
        for run in self.reads(numbers) {
            let mut bytes = vec![0; run.len() * self.block_bytes];
            self.file.read_exact_at(&mut bytes, self.offset(run))?;
            match run.len() {
                1 => blocks.push(bytes),
                _ => blocks.extend(bytes.chunks(self.block_bytes).map(<[u8]>::to_vec)),
            }
        }
        Ok(blocks)
    }

    /// The newest whole image and its generation.
    fn newest(&self) -> Result<Option<(u64, Vec<u8>)>> {
        let mut newest: Option<(u64, Vec<u8>)> = None;
        let mut damaged = Vec::new();
        for file in &self.images {
            let mut bytes = vec![0; file.len()? as usize];
            file.read_exact_at(&mut bytes, 0)?;
            match decode_image(&bytes) {
                Some(found) if newest.as_ref().is_none_or(|(n, _)| *n < found.0) => {
                    newest = Some(found);
                }
                Some(_) => {}
                None if !bytes.is_empty() => damaged.push(file.name()),
                None => {}
            }
        }
        // A crash tears at most the image that is being written: the other one is whole or empty.
        if damaged.len() == self.images.len() {
            let what = "neither image of the index is whole: build the index anew";
            return Err(Error::corrupt(damaged.join(" and "), what));
        }
        Ok(newest)
    }
}

fn image_checksum(generation: u64, image: &[u8]) -> u32 {
    let magic = u64::from_le_bytes(*MAGIC);
    checksum(&[magic, generation, image.len() as u64], image)
}

fn decode_image(bytes: &[u8]) -> Option<(u64, Vec<u8>)> {
    let mut reader = ByteReader::new(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        return None;
    }
    let generation = reader.u64()?;
    let length = usize::try_from(reader.u64()?).ok()?;
    let sum = reader.u32()?;
    let image = reader.take(length)?;
    (image_checksum(generation, image) == sum).then(|| (generation, image.to_vec()))
}

impl LevelBlocks for FileBlocks {
    fn block_bytes(&self) -> usize {
        self.block_bytes
    }
    fn allocate(&self, count: usize) -> Result<Vec<u64>> {
        Ok(self.list.lock().allocate(count))
    }
    fn read(&self, block: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.block_bytes];
        let offset = block * self.block_bytes as u64;
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
    fn read_many(&self, blocks: &[u64]) -> Result<Vec<Vec<u8>>> {
        let mut ordered: Vec<(u64, usize)> = blocks.iter().copied().zip(0..).collect();
        ordered.sort_unstable();
        let numbers: Vec<u64> = ordered.iter().map(|(number, _)| *number).collect();
        let queue = self.queue.as_ref().filter(|_| numbers.len() > 1);
        let queued = queue.and_then(|queue| queue.read(self.requests(&numbers)));
        let read = match queued {
            Some(read) => read?.into_iter().flatten().collect(),
            None => self.read_ordered(&numbers)?,
        };
        let mut many = vec![Vec::new(); blocks.len()];
        for (bytes, (_, at)) in read.into_iter().zip(ordered) {
            if let Some(place) = many.get_mut(at) {
                *place = bytes;
            }
        }
        Ok(many)
    }
    fn write(&self, blocks: &[(u64, Vec<u8>)]) -> Result<()> {
        self.check_usable()?;
        let mut at = 0;
        while let Some((first, _)) = blocks.get(at) {
            let mut bytes = Vec::new();
            let mut next = *first;
            while let Some((number, block)) = blocks.get(at) {
                if *number != next || bytes.len() + block.len() > WRITE_BYTES_MAX {
                    break;
                }
                bytes.extend_from_slice(block);
                next += 1;
                at += 1;
            }
            let offset = first * self.block_bytes as u64;
            self.file.write_all_at(&bytes, offset)?;
        }
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        self.check_usable()?;
        self.sync_file(&*self.file)
    }
    fn free(&self, blocks: &[u64]) {
        self.list.lock().free(blocks);
    }
    fn used(&self) -> usize {
        self.list.lock().used()
    }
    fn set_used(&self, blocks: &[u64]) {
        self.list.lock().set_used(blocks);
    }
    fn put_image(&self, image: &[u8]) -> Result<()> {
        self.check_usable()?;
        let mut generation = self.generation.lock();
        let next = *generation + 1;
        self.write_image(next, image)?;
        *generation = next;
        Ok(())
    }
    fn image(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.newest()?.map(|(_, image)| image))
    }
}
