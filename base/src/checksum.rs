//! Position-dependent checksums: CRC-32C over an identity (file, offset, version) and the bytes,
//! so that a block that is intact but in the wrong place is found as well.

/// An incremental CRC-32C.
#[derive(Clone, Copy, Default)]
pub struct Checksum(u32);

impl Checksum {
    /// Starts with the identity words of the structure that is checked.
    pub fn of_identity(identity: &[u64]) -> Self {
        let mut sum = Self(0);
        for word in identity {
            sum.update(&word.to_le_bytes());
        }
        sum
    }
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }
    /// The value to store or to compare.
    pub fn finish(self) -> u32 {
        self.0
    }
}

/// The checksum of `bytes` that belong at `identity`.
pub fn checksum(identity: &[u64], bytes: &[u8]) -> u32 {
    let mut sum = Checksum::of_identity(identity);
    sum.update(bytes);
    sum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_and_order_matter() {
        assert_ne!(checksum(&[1, 2], b"abc"), checksum(&[2, 1], b"abc"));
        assert_ne!(checksum(&[1], b"abcd"), checksum(&[1], b"cdab"));
        assert_eq!(checksum(&[], b"123456789"), 0xe306_9283); // the standard check value
    }
}
