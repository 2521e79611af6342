//! Packed bits compared with a literal reading of docs/format.md.

use super::*;
use strandline_base::rng::Rng;

/// The summand per value number that marks unpacked values.
const NUMBERED: u64 = 1 << 40;

/// The `i`-th value, bit by bit.
fn bits_at(packed: &[u8], lane_bits: usize, bits: usize, i: usize) -> u64 {
    let lanes = 1024 / lane_bits;
    let bit = |b: usize| {
        let at = i / lanes * bits + b;
        let word = at / lane_bits * lanes + i % lanes;
        let bit = word * lane_bits + at % lane_bits;
        u64::from(packed[bit / 8] >> (bit % 8) & 1) << b
    };
    (0..bits).map(bit).sum()
}

fn check<L: Lane + PartialEq + std::fmt::Debug>() {
    for bits in 1..=L::BITS {
        for count in [
            0,
            1,
            L::COUNT - 1,
            L::COUNT,
            L::COUNT + 1,
            1000,
            1024,
            4095,
            4096,
        ] {
            let mut rng = Rng::new(u64::from(bits) << 32 | count as u64);
            // Bits above the width are cut off.
            let values: Vec<u64> = (0..count).map(|_| rng.next_u64()).collect();
            let mut bytes = vec![1, 2, 3];
            pack::<L>(&values, bits, &mut bytes);
            let what = format!("{count} values of {bits} bits in lanes of {}", L::BITS);
            let cut = u64::MAX >> (64 - bits);
            let expected: Vec<u64> = values.iter().map(|v| v & cut).collect();
            let literal: Vec<u64> = (0..count)
                .map(|i| bits_at(&bytes[3..], L::BITS as usize, bits as usize, i))
                .collect();
            assert_eq!(literal, expected, "{what}");

            let mut reader = ByteReader::new(&bytes[3..]);
            let packed = Packed::<L>::read(&mut reader, count, bits).unwrap();
            assert_eq!(reader.remaining(), 0, "{what}");
            for unpacked in unpacked_by_each_set(packed) {
                assert_eq!(unpacked[0], 7, "{what}");
                let numbered = expected.iter().zip(0u64..);
                let numbered = numbered.map(|(v, i)| v.wrapping_add(NUMBERED * i));
                assert!(unpacked[1..].iter().copied().eq(numbered), "{what}");
            }
            let short = &bytes[3..bytes.len() - usize::from(count > 0)];
            let short = Packed::<L>::read(&mut ByteReader::new(short), count, bits);
            assert_eq!(short.is_none(), count > 0, "{what}");
        }
    }
}

/// The values after a 7, unpacked with each instruction set of the processor.
fn unpacked_by_each_set<L: Lane>(packed: Packed<'_, L>) -> Vec<Vec<u64>> {
    let by = |append: &dyn Fn(&mut Vec<u64>)| {
        let mut out = vec![7];
        append(&mut out);
        out
    };
    let best = Level::new();
    let mut sets = vec![best, Level::baseline()];
    #[cfg(target_arch = "x86_64")]
    sets.extend(best.as_avx2().map(Level::Avx2));
    let word = |i: usize, v: L| v.word().wrapping_add(NUMBERED * i as u64);
    let unpacked = |set: Level| by(&|out| packed.append_at(set, word, out));
    let mut all: Vec<_> = sets.into_iter().map(unpacked).collect();
    all.push(by(&|out| packed.append(word, out)));
    all
}

#[test]
fn every_width_comes_back() {
    check::<u16>();
    check::<u32>();
    check::<u64>();
}
