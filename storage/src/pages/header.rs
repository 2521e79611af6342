//! The header of a page on the device, and its checks.
//!
//! ```text
//! 0   [u8; 3]  "SPG"
//! 3   u8       version: 1
//! 4   u32      file id
//! 8   u32      page number
//! 12  u32      CRC-32C over database id, file id, page number, LSN and body
//! 16  u64      LSN: end of the last log record that changed the page
//! 24  ...      body
//! ```

use std::fmt::Display;
use std::ops::{Deref, DerefMut};

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Checksum, Error, Result};

use super::{PageFileId, PageId, PageNumber};
use crate::version::refuse_unknown;
use crate::wal::Lsn;

/// Bytes of a page on the device.
pub const PAGE_BYTES: usize = 8192;
/// Bytes of a page's header.
pub const PAGE_HEADER_BYTES: usize = 24;
/// Bytes of a page that its user has.
pub const PAGE_BODY_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;

const MAGIC: &[u8; 3] = b"SPG";
const VERSION: u8 = 1;

/// The body of a page: [`PAGE_BODY_BYTES`] bytes behind room for the header, so that a page that
/// was read is used where it lies.
#[derive(Clone, Debug)]
pub(super) struct PageBody(Box<[u8]>);

impl PageBody {
    /// The body of a page that was just allocated.
    pub fn zeroed() -> Self {
        Self(vec![0; PAGE_BYTES].into_boxed_slice())
    }

    /// Its bytes, for the next page that is read.
    pub fn into_buffer(self) -> Vec<u8> {
        self.0.into_vec()
    }
}

impl Deref for PageBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.get(PAGE_HEADER_BYTES..).unwrap_or_default()
    }
}

impl DerefMut for PageBody {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.get_mut(PAGE_HEADER_BYTES..).unwrap_or_default()
    }
}

/// The same bytes; the room for the header does not count.
impl PartialEq for PageBody {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// The committed content of a page.
#[derive(Debug)]
pub(super) struct PageImage {
    /// end of the record of its last change; 0 before the first
    pub lsn: Lsn,
    pub body: PageBody,
}

impl PageImage {
    /// A page that was never changed.
    pub fn zeroed() -> Self {
        Self {
            lsn: Lsn(0),
            body: PageBody::zeroed(),
        }
    }
}

fn sum(database_id: u128, id: PageId, lsn: Lsn, body: &[u8]) -> u32 {
    let mut sum = Checksum::of_identity(&[
        database_id as u64,
        (database_id >> 64) as u64,
        u64::from(id.file.0) << 32 | u64::from(id.number.0),
        lsn.0,
    ]);
    sum.update(body);
    sum.finish()
}

/// The page as it stands on the device.
pub(super) fn encode(database_id: u128, id: PageId, image: &PageImage) -> Vec<u8> {
    debug_assert_eq!(image.body.len(), PAGE_BODY_BYTES);
    let mut out = Vec::with_capacity(PAGE_BYTES);
    out.extend_from_slice(MAGIC);
    out.put_u8(VERSION);
    out.put_u32(id.file.0);
    out.put_u32(id.number.0);
    out.put_u32(sum(database_id, id, image.lsn, &image.body));
    out.put_u64(image.lsn.0);
    out.extend_from_slice(&image.body);
    out
}

/// The content of page `id`, whose bytes were read at `place`.
///
/// # Errors
/// XX001 for bytes that are not this page, 0A000 for a newer version.
pub(super) fn decode(
    database_id: u128,
    id: PageId,
    bytes: Vec<u8>,
    place: &dyn Display,
) -> Result<PageImage> {
    let mut reader = ByteReader::new(&bytes);
    let short = || Error::corrupt(place, "the page is incomplete");
    if reader.take(MAGIC.len()).ok_or_else(short)? != MAGIC {
        return Err(Error::corrupt(place, "not a page (bad magic)"));
    }
    let version = reader.u8().ok_or_else(short)?;
    let found = PageId {
        file: PageFileId(reader.u32().ok_or_else(short)?),
        number: PageNumber(reader.u32().ok_or_else(short)?),
    };
    let expected = reader.u32().ok_or_else(short)?;
    let lsn = Lsn(reader.u64().ok_or_else(short)?);
    let body = reader.take(PAGE_BODY_BYTES).ok_or_else(short)?;
    let got = sum(database_id, found, lsn, body);
    if expected != got {
        return Err(Error::checksum_mismatch(place, expected, got));
    }
    // The version is not in the checksum, so that a newer layout is refused and not called damage.
    if version != VERSION {
        refuse_unknown(&place.to_string(), version.into(), 1..=VERSION.into())?;
    }
    if found != id {
        let (number, file) = (found.number, found.file);
        let what = format!("here is page {number} of page file {file} (a misdirected write)");
        return Err(Error::corrupt(place, what));
    }
    if bytes.len() != PAGE_BYTES {
        return Err(Error::corrupt(place, "the page is too long"));
    }
    let body = PageBody(bytes.into_boxed_slice());
    Ok(PageImage { lsn, body })
}
