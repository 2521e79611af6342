//! The entries of one key, at every step of compactions, beside a set.

use super::*;

fn entry(number: u64, row: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..].copy_from_slice(&row.to_be_bytes());
    bytes
}

fn rows_of(tree: &FdTree, number: u64) -> Vec<u64> {
    let mut rows = Vec::new();
    let each = |entry: &[u8]| {
        let (key, row) = entry.split_at(8);
        assert_eq!(key, number.to_be_bytes());
        rows.push(u64::from_be_bytes(row.try_into().unwrap()));
        true
    };
    tree.scan_key(&number.to_be_bytes(), each).unwrap();
    rows
}

/// Keys with no, one, a few entries, entries in several blocks, and more than are gathered without
/// a cursor; the wavefront also stands between entries of one key.
#[test]
fn a_key_has_the_entries_of_a_set_at_every_step() {
    for seed in 1..5 {
        let mut rng = Rng::new(seed);
        let settings = Settings {
            filter_bits: 10 * (seed % 2) as usize,
            filter_of: filter_of(seed),
            ..small(Mode::Fc)
        };
        let blocks = Arc::new(MemoryBlocks::new(256));
        let tree = FdTree::open(settings, blocks, Pool::new(1 << 20)).unwrap();
        let mut model = BTreeSet::new();
        let mut cut_keys = 0;
        for step in 0..5_000 {
            // The higher the number of a key, the more rows it has, up to 100.
            let number = rng.below(12);
            let row = rng.below(1 + number * number);
            match rng.below(10) {
                0 => drop(tree.compact_step().unwrap()),
                1..4 => {
                    let was = model.remove(&(number, row));
                    assert_eq!(tree.remove(&entry(number, row)).unwrap(), was);
                }
                _ => {
                    let is_new = model.insert((number, row));
                    assert_eq!(tree.add(&entry(number, row)).unwrap(), is_new);
                }
            }
            if let Some(old) = &tree.shared.state.lock().old
                && let Some(wave) = &old.wavefront
            {
                cut_keys += usize::from(wave.ends_with(&[3]));
            }
            for number in [number, rng.below(13)] {
                let rows = model.range((number, 0)..(number + 1, 0));
                let rows: Vec<u64> = rows.map(|(_, row)| *row).collect();
                assert_eq!(rows_of(&tree, number), rows, "seed {seed}, step {step}");
            }
        }
        assert!(cut_keys > 0, "the wavefront stood within keys");
        let many = model.iter().filter(|(number, _)| *number == 11).count();
        assert!(many > 64, "{many} entries of the last key");
    }
}
