//! Random numbers and texts [TPC-C 2.1.6, 4.3.2].

use strandline_base::rng::Rng;

/// The constants C of NURand: of last names while loading and while running, which differ by 65 to
/// 119 [TPC-C 2.1.6.1]; of customers; of items.
const C_LAST_LOADED: u64 = 157;
const C_LAST_RUN: u64 = 223;
const C_CUSTOMER: u64 = 259;
const C_ITEM: u64 = 7_911;

const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

/// A number in `least..=most`.
pub fn between(rng: &mut Rng, least: u64, most: u64) -> u64 {
    least + rng.below(most - least + 1)
}

/// NURand(a, least, most) with its constant c.
fn nurand(rng: &mut Rng, (a, c): (u64, u64), least: u64, most: u64) -> u64 {
    let both = between(rng, 0, a) | between(rng, least, most);
    (both + c) % (most - least + 1) + least
}

/// A customer of a district, from 1 on.
pub fn customer(rng: &mut Rng, customers: u32) -> u32 {
    nurand(rng, (1_023, C_CUSTOMER), 1, customers.into()) as u32
}

/// An item, from 1 on.
pub fn item(rng: &mut Rng, items: u32) -> u32 {
    nurand(rng, (8_191, C_ITEM), 1, items.into()) as u32
}

/// The last name of an input; `customers` is the number of customers of a district.
pub fn last_name_of_input(rng: &mut Rng, customers: u32) -> String {
    let most = u64::from(customers.min(1_000)) - 1;
    last_name(nurand(rng, (255, C_LAST_RUN), 0, most))
}

/// The last name of customer `id`: the first 1,000 have all names.
pub fn last_name_of_customer(rng: &mut Rng, id: u32) -> String {
    match id {
        1..=1_000 => last_name(u64::from(id) - 1),
        _ => last_name(nurand(rng, (255, C_LAST_LOADED), 0, 999)),
    }
}

fn last_name(number: u64) -> String {
    let syllable = |digit: u64| SYLLABLES[(digit % 10) as usize];
    [
        syllable(number / 100),
        syllable(number / 10),
        syllable(number),
    ]
    .concat()
}

/// A text of `N` letters.
pub fn text<const N: usize>(rng: &mut Rng) -> [u8; N] {
    let mut text = [0; N];
    for eight in text.chunks_mut(8) {
        let bits = rng.next_u64().to_le_bytes();
        for (byte, bits) in eight.iter_mut().zip(bits) {
            *byte = b'a' + bits % 26;
        }
    }
    text
}

/// A text of `N` letters; one of ten has "ORIGINAL" in it [TPC-C 4.3.3.1].
pub fn data<const N: usize>(rng: &mut Rng) -> [u8; N] {
    const ORIGINAL: &[u8] = b"ORIGINAL";
    let mut data = text(rng);
    if rng.one_in(10) {
        let at = rng.below((N - ORIGINAL.len() + 1) as u64) as usize;
        for (byte, letter) in data.iter_mut().skip(at).zip(ORIGINAL) {
            *byte = *letter;
        }
    }
    data
}

/// The numbers from 1 to `most` in random order.
pub fn permutation(rng: &mut Rng, most: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (1..=most).collect();
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, rng.below(at as u64 + 1) as usize);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_three_syllables() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(0), "BARBARBAR");
        let rng = &mut Rng::new(1);
        assert_eq!(last_name_of_customer(rng, 1_000), "EINGEINGEING");
        assert!((65..=119).contains(&(C_LAST_RUN - C_LAST_LOADED)));
    }

    #[test]
    fn customers_and_items_are_skewed_and_within_their_bounds() {
        let rng = &mut Rng::new(2);
        let mut counts = vec![0_u32; 3_001];
        (0..300_000).for_each(|_| counts[customer(rng, 3_000) as usize] += 1);
        assert_eq!(counts[0], 0);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u32 = counts.iter().take(300).sum();
        assert!(hot > 90_000, "a tenth of them has {hot} of 300,000");
        assert!((0..10_000).all(|_| (1..=100).contains(&item(rng, 100))));
    }

    #[test]
    fn a_permutation_has_each_number_once() {
        let mut numbers = permutation(&mut Rng::new(3), 100);
        assert_ne!(numbers, (1..=100).collect::<Vec<_>>());
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
    }
}
