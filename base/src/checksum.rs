//! Position-dependent checksums: CRC-32C over an identity (file, offset, version) and the bytes,
//! so that a block that is intact but in the wrong place is found as well.

/// So many words of an identity are summed at once.
const IDENTITY_WORDS: usize = 8;

/// An incremental CRC-32C.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum(u32);

impl Checksum {
    /// Starts with the identity words of the structure that is checked.
    pub fn of_identity(identity: &[u64]) -> Self {
        let mut sum = Self(0);
        let mut bytes = [0; 8 * IDENTITY_WORDS];
        for words in identity.chunks(IDENTITY_WORDS) {
            for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            sum.update(&bytes[..8 * words.len()]);
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
        let ten: Vec<u64> = (1..=10).collect();
        let bytes: Vec<u8> = ten.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(
            checksum(&ten, b"abc"),
            checksum(&ten[..3], &[&bytes[24..], b"abc"].concat())
        );
        assert_eq!(checksum(&[], b"123456789"), 0xe306_9283); // the standard check value
    }
}
