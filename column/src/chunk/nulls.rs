//! The positions of a block's NULLs, in the smallest form for their number: the positions of the
//! NULLs, the positions of the other values (two bytes each), or one bit per row. Blocks without
//! NULLs and blocks of only NULLs store nothing.

use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use strandline_base::Result;
use strandline_base::bytes::{ByteReader, PutBytes};

use super::undecodable;

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Nothing,
    NullPositions,
    ValidPositions,
    Bits,
}

fn form(rows: usize, nulls: usize) -> Form {
    let bits = rows.div_ceil(8);
    if nulls == 0 || nulls == rows {
        Form::Nothing
    } else if nulls * 2 < bits {
        Form::NullPositions
    } else if (rows - nulls) * 2 < bits {
        Form::ValidPositions
    } else {
        Form::Bits
    }
}

/// Appends the positions of the NULLs of one block.
pub(super) fn encode(nulls: &NullBuffer, out: &mut Vec<u8>) {
    match form(nulls.len(), nulls.null_count()) {
        Form::Nothing => {}
        Form::NullPositions => {
            (0..nulls.len())
                .filter(|&i| nulls.is_null(i))
                .for_each(|i| out.put_u16(i as u16));
        }
        Form::ValidPositions => nulls.valid_indices().for_each(|i| out.put_u16(i as u16)),
        Form::Bits => {
            let mut bits = vec![0u8; nulls.len().div_ceil(8)];
            nulls
                .valid_indices()
                .for_each(|i| bits[i / 8] |= 1 << (i % 8));
            out.extend_from_slice(&bits);
        }
    }
}

/// Reads the NULLs of a block of `rows` rows with `nulls` NULLs, and appends one bit per row, set
/// for a value.
///
/// # Errors
/// Bytes without exactly that many NULLs are a corruption error.
pub(super) fn decode(
    rows: usize,
    nulls: usize,
    reader: &mut ByteReader<'_>,
    valid: &mut BooleanBufferBuilder,
) -> Result<()> {
    let start = valid.len();
    let form = form(rows, nulls);
    if form == Form::Nothing {
        valid.append_n(rows, nulls == 0);
        return Ok(());
    }
    if form == Form::Bits {
        let bits = reader.take(rows.div_ceil(8)).ok_or_else(cut_off)?;
        valid.append_packed_range(0..rows, bits);
        let set: usize = bits.iter().map(|b| b.count_ones() as usize).sum();
        return if set == rows - nulls {
            Ok(())
        } else {
            Err(miscounted())
        };
    }
    let positions_are_valid = form == Form::ValidPositions;
    valid.append_n(rows, !positions_are_valid);
    let count = if positions_are_valid {
        rows - nulls
    } else {
        nulls
    };
    let mut last = None;
    for _ in 0..count {
        let position = usize::from(reader.u16().ok_or_else(cut_off)?);
        if position >= rows || last.is_some_and(|l| position <= l) {
            return Err(miscounted());
        }
        valid.set_bit(start + position, positions_are_valid);
        last = Some(position);
    }
    Ok(())
}

fn cut_off() -> strandline_base::Error {
    undecodable("the bytes end early".to_owned())
}

fn miscounted() -> strandline_base::Error {
    undecodable("the NULLs of a block are not as many as its entry says".to_owned())
}
