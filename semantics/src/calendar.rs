//! The proleptic Gregorian calendar in integers: days since 1970-01-01 ↔ year, month, day, and
//! microseconds since then ↔ day and time of day.

use datafusion::error::DataFusionError;
use strandline_base::SqlState;

use super::error::invalid;

/// Microseconds of a second.
pub const SECOND: i64 = 1_000_000;
/// Microseconds of a minute.
pub const MINUTE: i64 = 60 * SECOND;
/// Microseconds of an hour.
pub const HOUR: i64 = 60 * MINUTE;
/// Microseconds of a day.
pub const DAY: i64 = 24 * HOUR;
/// The first day of timestamps and dates: 4713-11-24 BC, Julian day 0.
pub const FIRST_DAY: i64 = -2_440_588;
/// The last one: 294247-01-09. Microseconds since 1970 fit 64 bits up to then, so every date is a
/// timestamp. (PostgreSQL's timestamps end in 294276, its dates in 5874897.)
pub const LAST_DAY: i64 = 106_751_990;
/// Days from 0001-01-01 BC style year 0 to 1970-01-01, the shift of the civil algorithms.
const EPOCH_SHIFT: i64 = 719_468;
/// Days of a 400-year era.
const ERA: i64 = 146_097;

/// A calendar day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Civil {
    /// Astronomical year: 0 is 1 BC.
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
}

/// Whether `year` has a 29th of February.
pub fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days of a month.
pub fn days_in_month(year: i64, month: u8) -> u8 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01. Years start in March here, so that the leap day is the last one.
pub fn days_from_civil(date: Civil) -> i64 {
    let year = date.year - i64::from(date.month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (i64::from(date.month) + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(date.day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * ERA + day_of_era - EPOCH_SHIFT
}

/// The inverse of [`days_from_civil`].
pub fn civil_from_days(days: i64) -> Civil {
    let shifted = days + EPOCH_SHIFT;
    let era = shifted.div_euclid(ERA);
    let day_of_era = shifted.rem_euclid(ERA);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / (ERA - 1);
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8;
    let month = ((month_from_march + 2) % 12 + 1) as u8;
    Civil {
        year: era * 400 + year_of_era + i64::from(month <= 2),
        month,
        day,
    }
}

/// A day within the range of dates.
pub fn checked_day(days: i64) -> Option<i32> {
    (FIRST_DAY..=LAST_DAY)
        .contains(&days)
        .then_some(days as i32)
}

/// Splits microseconds since the epoch into days since the epoch and microseconds of the day.
pub fn split_micros(micros: i64) -> (i64, i64) {
    (micros.div_euclid(DAY), micros.rem_euclid(DAY))
}

/// `days` moved by whole months; the day is cut to the length of the new month.
pub fn add_months(days: i64, months: i32) -> i64 {
    if months == 0 {
        return days;
    }
    let date = civil_from_days(days);
    let total = date.year * 12 + i64::from(date.month) - 1 + i64::from(months);
    let (year, month) = (total.div_euclid(12), (total.rem_euclid(12) + 1) as u8);
    days_from_civil(Civil {
        year,
        month,
        day: date.day.min(days_in_month(year, month)),
    })
}

/// 22008
pub fn timestamp_out_of_range() -> DataFusionError {
    invalid(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range")
}

/// 22008
pub fn date_out_of_range() -> DataFusionError {
    invalid(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range")
}

/// 22008
pub fn interval_out_of_range() -> DataFusionError {
    invalid(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_a_long_span_round_trips_in_order() {
        let mut last = civil_from_days(-1_000_001);
        for days in -1_000_000..1_000_000 {
            let date = civil_from_days(days);
            assert_eq!(days_from_civil(date), days);
            assert!(date > last, "{date:?} after {last:?}");
            assert!((1..=days_in_month(date.year, date.month)).contains(&date.day));
            last = date;
        }
    }

    #[test]
    fn known_days() {
        let day = |year, month, day| days_from_civil(Civil { year, month, day });
        assert_eq!(day(1970, 1, 1), 0);
        assert_eq!(day(2000, 3, 1), 11_017);
        assert_eq!(day(1600, 2, 29), day(1600, 3, 1) - 1);
        assert_eq!(day(-4713, 11, 24), FIRST_DAY);
        assert_eq!(day(294_247, 1, 9), LAST_DAY);
        assert!(
            (LAST_DAY + 1).checked_mul(DAY).is_some() && (LAST_DAY + 2).checked_mul(DAY).is_none()
        );
    }

    #[test]
    fn months_are_cut_to_their_length() {
        let day = |year, month, day| days_from_civil(Civil { year, month, day });
        assert_eq!(add_months(day(2024, 1, 31), 1), day(2024, 2, 29));
        assert_eq!(add_months(day(2023, 1, 31), 1), day(2023, 2, 28));
        assert_eq!(add_months(day(2024, 1, 15), -13), day(2022, 12, 15));
    }
}
