//! A node's entries against a sorted list.

use super::*;
use strandline_base::rng::Rng;

fn random_entry(rng: &mut Rng) -> Vec<u8> {
    let stem: &[u8] = [&b""[..], b"common", b"common stem of many"][rng.below(3) as usize];
    let tail = (0..rng.below(12)).map(|_| rng.below(3) as u8 * 127);
    stem.iter()
        .copied()
        .chain(tail)
        .chain([0; ROW_BYTES])
        .collect()
}

fn all(entries: &Entries) -> Vec<Vec<u8>> {
    (0..entries.len()).map(|at| entries.get(at)).collect()
}

#[test]
fn entries_agree_with_a_sorted_list() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let (mut entries, mut model) = (Entries::default(), Vec::<Vec<u8>>::new());
        for _ in 0..150 {
            let entry = random_entry(&mut rng);
            let expected = model.binary_search(&entry);
            assert_eq!(entries.search(&entry), expected, "seed {seed}");
            match (expected, rng.below(10)) {
                (Err(at), 0..6) => {
                    let size = entries.size_with(&entry);
                    entries.insert(at, &entry);
                    model.insert(at, entry);
                    assert_eq!(entries.size(), size, "seed {seed}");
                }
                (Ok(at), 0..6) => {
                    entries.remove(at);
                    model.remove(at);
                }
                (_, 6) => {
                    entries.retain(|entries, at| entries.get(at).len() % 3 > 0);
                    model.retain(|entry| entry.len() % 3 > 0);
                }
                (_, 7) if model.len() > 1 => {
                    let at = entries.split_place();
                    let separator = entries.separator(at);
                    assert!(model[at - 1].as_slice() < &*separator, "seed {seed}");
                    assert!(&*separator <= model[at].as_slice(), "seed {seed}");
                    let right = entries.slice(at..entries.len());
                    let mut left = entries.slice(0..at);
                    let size = left.joint_size(&right);
                    left.append(right);
                    assert_eq!(left.size(), size, "seed {seed}");
                    entries = left;
                }
                (_, 8) => {
                    let refs: Vec<&[u8]> = model.iter().map(Vec::as_slice).collect();
                    entries = Entries::of(&refs);
                }
                (found, _) => {
                    let at = found.unwrap_or_else(|at| at);
                    let copy = entries.copy_of(at..entries.len());
                    assert_eq!(all(&copy), model[at..], "seed {seed}");
                }
            }
            assert_eq!(all(&entries), model, "seed {seed}");
        }
    }
}

#[test]
fn keys_and_rows_come_apart_wherever_the_prefix_ends() {
    let row = RowId(0x0102_0304_0506);
    let mut entry = b"key".to_vec();
    entry.extend(row_bytes(row).expect("48 bits"));
    for len in 0..=entry.len() {
        let mut other = entry[..len].to_vec();
        other.resize(entry.len(), 255);
        let both: &[&[u8]] = if other == entry {
            &[&entry]
        } else {
            &[&entry, &other]
        };
        let entries = Entries::of(both);
        assert_eq!(entries.entry(0), (KeyBytes::encoded(*b"key"), row), "{len}");
        assert_eq!(entries.row(0), row, "{len}");
        for end in 0..=3 {
            assert!(entries.begins_with(0, &b"key"[..end]), "{len}");
        }
        assert!(!entries.begins_with(0, b"kez"), "{len}");
    }
    let long = EntryBytes::new(&[7; 100], row).expect("48 bits");
    assert_eq!((long.key(), long.as_slice().len()), (&[7; 100][..], 106));
    let short = EntryBytes::new(b"key", row).expect("48 bits");
    assert_eq!(
        (short.key(), short.as_slice()),
        (&b"key"[..], entry.as_slice())
    );
}
