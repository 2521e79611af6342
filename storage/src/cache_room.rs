//! The size that a cache's file gets on a device with too little room.

use strandline_base::{Result, SqlState};

/// The share of what would fit that the file leaves free, as a divisor: the log, the manifest and
/// the reserve are on the same device.
const LEFT_FREE: u32 = 4;
/// A size is found to this part of the wanted one, as a divisor.
const PRECISION: u32 = 64;

/// Enlarges a file from `found` equal parts to `wanted`, or to as many as fit with a quarter left
/// free. Returns its parts. A later opening finds about the same number.
///
/// # Errors
/// 53100 if there is room for none but `found`; other errors of `set_parts`.
pub(crate) fn enlarge(
    found: u32,
    wanted: u32,
    set_parts: &dyn Fn(u32) -> Result<()>,
) -> Result<u32> {
    let mut full = match set_parts(wanted) {
        Err(error) if error.sqlstate() == SqlState::DISK_FULL => error,
        enlarged => return enlarged.map(|()| wanted),
    };
    let (mut fits, mut refused) = (found, wanted);
    while refused - fits > (wanted / PRECISION).max(1) {
        let parts = fits + (refused - fits) / 2;
        match set_parts(parts) {
            Ok(()) => fits = parts,
            Err(error) if error.sqlstate() == SqlState::DISK_FULL => {
                (refused, full) = (parts, error);
            }
            Err(error) => return Err(error),
        }
    }
    let left_free = fits.div_ceil(LEFT_FREE);
    let given = found.max(fits.saturating_sub(left_free));
    if given != fits {
        set_parts(given)?;
    }
    match given > found {
        true => Ok(given),
        false => Err(full),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use strandline_base::Error;

    /// Enlarges a file on a device with room for `room` parts; the result, and the file's parts.
    fn enlarged(found: u32, wanted: u32, room: u32) -> (Option<u32>, u32) {
        let parts = Cell::new(found);
        let set_parts = |to: u32| {
            if to > room {
                return Err(Error::invalid(SqlState::DISK_FULL, "no room"));
            }
            parts.set(to);
            Ok(())
        };
        let given = match enlarge(found, wanted, &set_parts) {
            Ok(given) => Some(given),
            Err(error) => {
                assert_eq!(error.sqlstate(), SqlState::DISK_FULL);
                None
            }
        };
        (given, parts.get())
    }

    #[test]
    fn a_file_that_does_not_fit_gets_three_quarters_of_the_room() {
        assert_eq!(enlarged(0, 1000, 1000), (Some(1000), 1000));
        for (wanted, room) in [(1000, 999), (1000, 400), (1 << 20, 3), (u32::MAX, 1 << 30)] {
            let (given, parts) = enlarged(0, wanted, room);
            let given = given.unwrap_or(0);
            let most = u64::from(room) * 3 / 4;
            let least = most.saturating_sub(u64::from(wanted / PRECISION));
            assert_eq!(given, parts);
            assert!(
                (least..=most).contains(&u64::from(given)),
                "{wanted}, {room}: {given}"
            );
        }
        assert_eq!(enlarged(0, 1000, 0), (None, 0));
    }

    #[test]
    fn a_file_keeps_its_parts_and_the_room_beside_it() {
        let (first, _) = enlarged(0, 1000, 400);
        let first = first.expect("some room");
        let (second, parts) = enlarged(first, 1000, 400);
        assert!(second.is_none_or(|second| second - first <= 1000 / PRECISION));
        assert!((first..=first + 1000 / PRECISION).contains(&parts));
        assert_eq!(enlarged(390, 1000, 400), (None, 390));
    }

    #[test]
    fn other_errors_are_errors() {
        let set_parts = |_| Err(Error::invalid(SqlState::IO_ERROR, "broken"));
        let error = enlarge(0, 10, &set_parts).expect_err("broken");
        assert_eq!(error.sqlstate(), SqlState::IO_ERROR);
    }
}
