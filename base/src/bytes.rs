//! Little-endian encoding of integers and length-prefixed bytes, and a reader that never panics
//! on damaged input: every shortfall is `None`, which callers turn into a corruption error that
//! names the place.

/// Bytes of the longest varint.
const VARINT_BYTES_MAX: usize = 10;

/// Appends primitives to a buffer.
pub trait PutBytes {
    /// One byte.
    fn put_u8(&mut self, v: u8);
    /// Two bytes, little-endian.
    fn put_u16(&mut self, v: u16);
    /// Four bytes, little-endian.
    fn put_u32(&mut self, v: u32);
    /// Eight bytes, little-endian.
    fn put_u64(&mut self, v: u64);
    /// Sixteen bytes, little-endian.
    fn put_u128(&mut self, v: u128);
    /// LEB128, 1 to 10 bytes.
    fn put_varint(&mut self, v: u64);
    /// A varint length and the bytes.
    fn put_bytes(&mut self, v: &[u8]);
}

impl PutBytes for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }
    fn put_u16(&mut self, v: u16) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    fn put_u32(&mut self, v: u32) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    fn put_u64(&mut self, v: u64) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    fn put_u128(&mut self, v: u128) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    #[inline]
    fn put_varint(&mut self, v: u64) {
        match v < 0x80 {
            true => self.push(v as u8),
            false => put_long_varint(self, v),
        }
    }
    fn put_bytes(&mut self, v: &[u8]) {
        self.put_varint(v.len() as u64);
        self.extend_from_slice(v);
    }
}

/// Bytes of a varint.
#[must_use]
pub fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

fn put_long_varint(out: &mut Vec<u8>, mut v: u64) {
    // One append of a fixed size costs less than one per byte.
    let mut bytes = [0; VARINT_BYTES_MAX];
    let mut used = 0;
    for byte in &mut bytes {
        used += 1;
        if v < 0x80 {
            *byte = v as u8;
            break;
        }
        *byte = (v as u8) | 0x80;
        v >>= 7;
    }
    out.extend_from_slice(&bytes);
    out.truncate(out.len() - (VARINT_BYTES_MAX - used));
}

/// Maps signed integers to unsigned so that small magnitudes get short varints.
#[inline]
pub fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub fn unzigzag(v: u64) -> i64 {
    ((v >> 1) as i64) ^ -((v & 1) as i64)
}

/// Reads what [`PutBytes`] wrote. Every method returns `None` past the end.
#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
    /// Bytes consumed so far.
    pub fn position(&self) -> usize {
        self.at
    }
    /// Bytes left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }
    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(n)?;
        let out = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(out)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }
    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    /// Sixteen bytes, little-endian.
    pub fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }
    /// LEB128; over-long or overflowing encodings are refused.
    pub fn varint(&mut self) -> Option<u64> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.u8()?;
            let part = u64::from(b & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            v |= part << shift;
            if b & 0x80 == 0 {
                return Some(v);
            }
        }
        None
    }
    /// Length-prefixed bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = usize::try_from(self.varint()?).ok()?;
        self.take(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_stops_at_the_end() {
        let mut b = Vec::new();
        for v in [0, 1, 127, 128, 300, u64::MAX] {
            let before = b.len();
            b.put_varint(v);
            assert_eq!(varint_bytes(v), b.len() - before);
        }
        b.put_bytes(b"xyz");
        let mut r = ByteReader::new(&b);
        for v in [0, 1, 127, 128, 300, u64::MAX] {
            assert_eq!(r.varint(), Some(v));
        }
        assert_eq!(r.bytes(), Some(&b"xyz"[..]));
        assert_eq!(r.u8(), None);
        for v in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(v)), v);
        }
        assert_eq!(ByteReader::new(&[0xff; 11]).varint(), None);
    }
}
