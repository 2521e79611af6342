//! The binary form of numerics in PostgreSQL's numeric_send and numeric_recv: groups of four
//! decimal digits.

use strandline_base::{Error, Result, SqlState};

const GROUP: u128 = 10_000;
const NEGATIVE: u16 = 0x4000;

/// 10^`exponent`; the exponent is at most 38.
fn power(exponent: u32) -> u128 {
    10u128.pow(exponent)
}

/// Appends `unscaled` / 10^`scale` in the form of numeric_send.
pub fn write_numeric(out: &mut Vec<u8>, unscaled: i128, scale: u8) {
    let magnitude = unscaled.unsigned_abs();
    let mut groups = [0u16; 24];
    // Groups before the point, the lowest at index 10.
    let mut whole = magnitude / power(u32::from(scale));
    let mut first = 11;
    while whole > 0 {
        first -= 1;
        groups[first] = (whole % GROUP) as u16;
        whole /= GROUP;
    }
    let mut end = 11;
    let mut fraction = magnitude % power(u32::from(scale));
    let mut digits_left = u32::from(scale);
    while digits_left > 0 {
        let taken = digits_left.min(4);
        digits_left -= taken;
        let rest = power(digits_left);
        groups[end] = (fraction / rest * power(4 - taken)) as u16;
        fraction %= rest;
        end += 1;
    }
    while first < end && groups[first] == 0 {
        first += 1;
    }
    while end > first && groups[end - 1] == 0 {
        end -= 1;
    }
    let weight = if first == end { 0 } else { 10 - first as i16 };
    let sign = if unscaled < 0 { NEGATIVE } else { 0 };
    out.extend_from_slice(&((end - first) as u16).to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&u16::from(scale).to_be_bytes());
    for group in &groups[first..end] {
        out.extend_from_slice(&group.to_be_bytes());
    }
}

fn invalid() -> Error {
    Error::invalid(
        SqlState("22P03"),
        "invalid external \"numeric\" value in binary form",
    )
}

/// The unscaled integer and its scale.
pub fn read_numeric(bytes: &[u8]) -> Result<(i128, u8)> {
    let (header, rest) = bytes.split_at_checked(8).ok_or_else(invalid)?;
    let field = |i: usize| u16::from_be_bytes([header[2 * i], header[2 * i + 1]]);
    let (count, weight, sign, scale) = (field(0), field(1) as i16, field(2), field(3));
    if rest.len() != usize::from(count) * 2 {
        return Err(invalid());
    }
    if !matches!(sign, 0 | NEGATIVE) {
        return Err(Error::invalid(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            "numeric has neither NaN nor infinity",
        ));
    }
    let too_long = || {
        Error::invalid(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            "a numeric has at most 38 digits",
        )
    };
    let scale = u8::try_from(scale).ok().filter(|s| *s <= 38);
    let scale = scale.ok_or_else(too_long)?;
    let mut unscaled: u128 = 0;
    for (i, group) in rest.chunks_exact(2).enumerate() {
        let group = u128::from(u16::from_be_bytes([group[0], group[1]]));
        if group >= GROUP {
            return Err(invalid());
        }
        let exponent = (i32::from(weight) - i as i32) * 4 + i32::from(scale);
        let part = match exponent {
            0..=38 => group
                .checked_mul(power(exponent as u32))
                .ok_or_else(too_long)?,
            -3..=-1 => group / power(-exponent as u32),
            _ if group == 0 || exponent < 0 => 0,
            _ => return Err(too_long()),
        };
        unscaled = unscaled.checked_add(part).ok_or_else(too_long)?;
    }
    if unscaled >= power(38) {
        return Err(too_long());
    }
    let unscaled = unscaled as i128;
    Ok((
        if sign == NEGATIVE {
            -unscaled
        } else {
            unscaled
        },
        scale,
    ))
}
