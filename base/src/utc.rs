//! Points in time as text for messages.

use crate::value_text::write_timestamptz;

/// `us` microseconds since the Unix epoch as `2026-11-20 06:51:43.5+00`: as a `timestamptz` is
/// printed in UTC. What is later than any `timestamptz` is shown as the last one.
pub fn format_utc(us: u64) -> String {
    let mut out = String::new();
    // A string takes everything.
    let _ = write_timestamptz(&mut out, i64::try_from(us).unwrap_or(i64::MAX));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        assert_eq!(format_utc(0), "1970-01-01 00:00:00+00");
        assert_eq!(
            format_utc(951_782_400_000_001),
            "2000-02-29 00:00:00.000001+00"
        );
        assert_eq!(
            format_utc(951_868_799_999_999),
            "2000-02-29 23:59:59.999999+00"
        );
        assert_eq!(format_utc(4_107_542_400_000_000), "2100-03-01 00:00:00+00");
        assert_eq!(
            format_utc(1_795_157_503_120_000),
            "2026-11-20 06:51:43.12+00"
        );
    }
}
