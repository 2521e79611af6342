//! Conversion between days and microseconds since 1970 and years, months, days and times. The
//! calendar is Python's (proleptic Gregorian, years 1 to 9999).

/// Microseconds of a day.
pub const DAY_US: i64 = 86_400_000_000;

/// Year, month and day of a day since 1970-01-01.
pub fn civil(days: i64) -> (i64, u8, u8) {
    // Years begin in March, so that the leap day is the last day. Eras have 400 years.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u8, day as u8)
}

/// The day since 1970-01-01 of a year, month and day.
pub fn days(year: i64, month: u8, day: u8) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = i64::from(month);
    let month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Hour, minute, second and microsecond of a microsecond of the day.
pub fn clock(us: i64) -> (u8, u8, u8, u32) {
    let seconds = us / 1_000_000;
    let hour = (seconds / 3_600) as u8;
    (
        hour,
        (seconds / 60 % 60) as u8,
        (seconds % 60) as u8,
        (us % 1_000_000) as u32,
    )
}
