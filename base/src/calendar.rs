//! The proleptic Gregorian calendar in integers: from days since 1970-01-01 to year, month and day,
//! and back.
//!
//! It is ours because libraries end too early: SQL's timestamps go to the year 294247, chrono's to
//! 262142.

/// Microseconds of a second.
pub const SECOND: i64 = 1_000_000;
/// Microseconds of a minute.
pub const MINUTE: i64 = 60 * SECOND;
/// Microseconds of an hour.
pub const HOUR: i64 = 60 * MINUTE;
/// Microseconds of a day.
pub const DAY: i64 = 24 * HOUR;
/// Days from 0000-03-01 to 1970-01-01.
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
#[inline]
pub fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days of a month.
#[inline]
pub fn days_in_month(year: i64, month: u8) -> u8 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Splits microseconds since the epoch into days since the epoch and microseconds of the day.
pub fn split_micros(micros: i64) -> (i64, i64) {
    (micros.div_euclid(DAY), micros.rem_euclid(DAY))
}

/// Days since 1970-01-01. Years begin in March here: the leap day ends a year, and months have the
/// regular pattern 31 30 31 30 31.
#[inline]
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
#[inline]
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
}
