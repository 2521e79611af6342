//! Points and boxes in the plane, with float8 coordinates that are kept bit for bit.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A point. Two points are equal if their coordinates have the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Point {
    // Bits, because JSON has neither NaN nor infinities.
    bits: [u64; 2],
}

impl Point {
    /// The point (x, y).
    #[inline]
    pub fn new([x, y]: [f64; 2]) -> Self {
        Self::from_words([x.to_bits(), y.to_bits()])
    }

    /// The point whose coordinates x and y have these bits.
    #[inline]
    pub fn from_words(bits: [u64; 2]) -> Self {
        Self { bits }
    }

    /// The bits of x and y.
    #[inline]
    pub fn words(self) -> [u64; 2] {
        self.bits
    }

    /// x and y.
    #[inline]
    pub fn coordinates(self) -> [f64; 2] {
        self.bits.map(f64::from_bits)
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Point").field(&self.coordinates()).finish()
    }
}

/// A box. Two boxes are equal if their coordinates have the same bits.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BoxCorners {
    // The upper right corner's x and y, then the lower left one's, little-endian. Pages hold boxes
    // as bytes. They are shared, so that a box does not make all values larger.
    bytes: Arc<[u8; Self::BYTES]>,
}

impl BoxCorners {
    /// Bytes of a box.
    pub const BYTES: usize = 32;

    /// The box with two opposite corners (x, y). The coordinates are exchanged where `first` is not
    /// the upper right corner. NaN is above all numbers.
    pub fn new(first: [f64; 2], second: [f64; 2]) -> Self {
        let (mut high, mut low) = (first, second);
        for (high, low) in high.iter_mut().zip(&mut low) {
            if *high < *low || (low.is_nan() && !high.is_nan()) {
                std::mem::swap(high, low);
            }
        }
        let mut bytes = [0; Self::BYTES];
        let coordinates = high.iter().chain(&low);
        for (to, coordinate) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(coordinates) {
            *to = coordinate.to_le_bytes();
        }
        Self {
            bytes: Arc::new(bytes),
        }
    }

    /// The box of [`BoxCorners::as_bytes`]; None for another number of bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes = Arc::new(bytes.try_into().ok()?);
        Some(Self { bytes })
    }

    /// The 32 bytes: x and y of the upper right corner, then of the lower left one, little-endian.
    #[inline]
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.bytes
    }

    /// The upper right corner (x, y).
    pub fn high(&self) -> [f64; 2] {
        [self.coordinate(0), self.coordinate(1)]
    }

    /// The lower left corner (x, y).
    pub fn low(&self) -> [f64; 2] {
        [self.coordinate(2), self.coordinate(3)]
    }

    fn coordinate(&self, at: usize) -> f64 {
        f64::from_le_bytes(self.bytes.as_chunks::<8>().0[at])
    }
}

impl fmt::Debug for BoxCorners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("BoxCorners");
        tuple.field(&self.high()).field(&self.low()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_are_exchanged_by_coordinate() {
        let ordered = BoxCorners::new([3.0, 4.0], [1.0, 2.0]);
        for (first, second) in [
            ([1.0, 2.0], [3.0, 4.0]),
            ([3.0, 2.0], [1.0, 4.0]),
            ([1.0, 4.0], [3.0, 2.0]),
        ] {
            assert_eq!(BoxCorners::new(first, second), ordered);
        }
        assert_eq!((ordered.high(), ordered.low()), ([3.0, 4.0], [1.0, 2.0]));
    }

    #[test]
    fn nan_is_above_infinity_and_bits_are_kept() {
        let nan = f64::from_bits(0xfff8_0000_dead_beef);
        let found = BoxCorners::new([f64::INFINITY, nan], [nan, -0.0]);
        assert_eq!(found.high().map(f64::to_bits), [nan.to_bits(); 2]);
        assert_eq!(found.low()[0], f64::INFINITY);
        assert_eq!(found.low()[1].to_bits(), (-0.0_f64).to_bits());
        let zeros = BoxCorners::new([-0.0, 0.0], [0.0, -0.0]);
        assert_eq!(zeros.high().map(f64::is_sign_negative), [true, false]);
        assert_ne!(Point::new([0.0, 1.0]), Point::new([-0.0, 1.0]));
        assert_eq!(Point::new([nan, 1.0]), Point::new([nan, 1.0]));
    }

    #[test]
    fn catalogs_keep_every_coordinate() {
        let corners = [f64::NAN, f64::NEG_INFINITY];
        let point = Point::new(corners);
        let json = serde_json::to_string(&point).expect("json");
        assert_eq!(serde_json::from_str::<Point>(&json).expect("point"), point);
        let found = BoxCorners::new(corners, [-0.0, 1.5]);
        let json = serde_json::to_string(&found).expect("json");
        assert_eq!(
            serde_json::from_str::<BoxCorners>(&json).expect("box"),
            found
        );
        assert_eq!(
            BoxCorners::from_bytes(found.as_bytes()),
            Some(found.clone())
        );
        assert_eq!(BoxCorners::from_bytes(&found.as_bytes()[1..]), None);
    }
}
