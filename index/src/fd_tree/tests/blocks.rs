//! Blocks of entries: both layouts come back, and damage of either is found.

use crate::fd_tree::block::{Block, HEADER_BYTES, Identity, Kind, Limits, OpenBlock, common_bytes};
use strandline_base::bytes::PutBytes;
use strandline_base::checksum;
use strandline_base::rng::Rng;

const AT: Identity = Identity {
    tree: 9,
    number: 3,
    run: 5,
    ordinal: 200,
};
const LIMITS: Limits = Limits {
    bytes: 4096,
    entries: 1_000,
};
const SEQUENCE: u8 = 1;
const TABLE: u8 = 2;

/// Entries of several widths: a sequence.
fn sequence() -> OpenBlock {
    let mut block = OpenBlock::new(LIMITS);
    block.push(b"", Kind::Fence(4));
    block.push(b"abc", Kind::Insert);
    block.push(b"abd", Kind::Fence(5));
    block.push(b"abd", Kind::Delete);
    block.push(b"b", Kind::Fence(300));
    block
}

/// Entries of one width with constant bytes in between: a table.
fn table() -> OpenBlock {
    let mut block = OpenBlock::new(LIMITS);
    for (number, kind) in [(1, Kind::Fence(7)), (1, Kind::Insert), (2, Kind::Delete)] {
        block.push(&entry(number), kind);
    }
    for number in 3..9 {
        block.push(&entry(number), Kind::Insert);
    }
    block
}

fn entry(number: u8) -> [u8; 20] {
    let mut entry = [77; 20];
    (entry[5], entry[14]) = (number, number.wrapping_mul(91));
    entry
}

fn entries(block: &Block) -> Vec<(Vec<u8>, Kind)> {
    let entries = block.iter();
    entries.map(|(key, kind)| (key.to_vec(), kind)).collect()
}

fn decoded(open: &OpenBlock, block_bytes: usize, layout: u8) -> Block {
    let block = open.block();
    assert_eq!(block.used_bytes(), open.used_bytes());
    let bytes = block.encode(AT, block_bytes);
    assert_eq!(bytes[4], layout);
    assert_eq!(bytes.len(), block_bytes);
    let decoded = Block::decode(bytes, AT).unwrap();
    assert_eq!(entries(&decoded), entries(&block));
    assert_eq!(decoded.used_bytes(), block.used_bytes());
    decoded
}

#[test]
fn comes_back_and_is_searched() {
    let block = decoded(&sequence(), 256, SEQUENCE);
    assert_eq!(block.find(b"abd"), (Some(false), Some(5)));
    assert_eq!(block.find(b"abc"), (Some(true), Some(4)));
    assert_eq!(block.find(b"b"), (None, Some(300)));
    assert_eq!(block.find(b"ab"), (None, Some(4)));
    assert_eq!(block.floor_fence(b"abc"), Some(4));
    assert_eq!(block.floor_fence(b"abd"), Some(5));
    assert_eq!(block.floor_fence(b"zz"), Some(300));
    let block = decoded(&table(), 256, TABLE);
    assert_eq!(block.find(&entry(1)), (Some(true), Some(7)));
    assert_eq!(block.find(&entry(2)), (Some(false), Some(7)));
    assert_eq!(block.find(&entry(9)), (None, Some(7)));
    assert_eq!(block.find(b"A"), (None, None));
    decoded(&OpenBlock::new(LIMITS), 64, SEQUENCE);
}

/// Entries as they are pushed.
type Items = Vec<(Vec<u8>, Kind)>;

/// Entries of one width, random in some bytes, with kinds of one or several sorts, and what was
/// pushed.
fn random_block(rng: &mut Rng, bytes: usize) -> (OpenBlock, Items) {
    let width = rng.below(40) as usize;
    let constant: Vec<bool> = (0..width).map(|_| rng.below(3) > 0).collect();
    let letters = 1 + rng.below(256);
    let mut keys: Vec<Vec<u8>> = (0..rng.below(400))
        .map(|_| {
            let of = |constant: &bool| {
                if *constant {
                    9
                } else {
                    rng.below(letters) as u8
                }
            };
            constant.iter().map(of).collect()
        })
        .collect();
    if rng.below(4) == 0 {
        keys.extend((0..3).map(|length| vec![9; length * 7]));
    }
    keys.sort_unstable();
    keys.dedup();
    let limits = Limits {
        bytes,
        entries: 300,
    };
    let (mut block, mut items) = (OpenBlock::new(limits), Items::new());
    let (mixed, mut ordinal) = (rng.below(4), 0);
    for key in &keys {
        ordinal += rng.below(300);
        let kinds = match (mixed, rng.below(4)) {
            (0, _) => &[Kind::Insert][..],
            (1, _) => &[Kind::Fence(ordinal)],
            (_, 0) => &[Kind::Fence(ordinal), Kind::Insert],
            (_, 1) => &[Kind::Fence(ordinal)],
            (_, 2) => &[Kind::Delete],
            _ => &[Kind::Insert],
        };
        if !block.push_if_room(key, kinds) {
            break;
        }
        items.extend(kinds.iter().map(|kind| (key.clone(), *kind)));
    }
    (block, items)
}

/// Searches for these keys find what a naive one finds among the items.
fn check_searches(block: &Block, items: &Items, wanted: impl Iterator<Item = Vec<u8>>) {
    for wanted in wanted {
        let below = items.iter().filter(|(key, _)| *key < wanted).count();
        let up_to = items.iter().filter(|(key, _)| *key <= wanted).count();
        let fence = items[..up_to]
            .iter()
            .rev()
            .find_map(|(_, kind)| match kind {
                Kind::Fence(to) => Some(*to),
                _ => None,
            });
        let data = items[below..up_to].iter().find(|(_, kind)| kind.is_data());
        let is_insert = data.map(|(_, kind)| *kind == Kind::Insert);
        assert_eq!(block.below(&wanted), below, "{wanted:?} in {items:?}");
        assert_eq!(block.up_to(&wanted), up_to, "{wanted:?} in {items:?}");
        assert_eq!(
            block.find(&wanted),
            (is_insert, fence),
            "{wanted:?} in {items:?}"
        );
        assert_eq!(block.floor_fence(&wanted), fence, "{wanted:?} in {items:?}");
    }
}

/// A block is never larger than its room, comes back, and takes entries as one that was not read
/// again does.
#[test]
fn random_blocks_come_back_and_go_on() {
    let mut rng = Rng::new(3);
    let mut layouts = [0; 2];
    for _ in 0..2_000 {
        let bytes = 128 + rng.below(1024) as usize;
        let (mut open, items) = random_block(&mut rng, bytes);
        assert!(open.used_bytes() <= bytes && open.len() <= 300);
        let layout = open.block().encode(AT, bytes)[4];
        layouts[usize::from(layout) - 1] += 1;
        let block = decoded(&open, bytes, layout);
        assert_eq!(entries(&block), items);
        let near = items.iter().flat_map(|(key, _)| {
            let mut other = key.clone();
            if let Some(last) = other.last_mut() {
                *last = last.wrapping_add(rng.below(3) as u8).wrapping_sub(1);
            }
            let cut = key[..rng.below(1 + key.len() as u64) as usize].to_vec();
            [key.clone(), other, cut, [key, &[0][..]].concat()]
        });
        check_searches(
            &block,
            &items,
            near.collect::<Vec<_>>().into_iter().take(60),
        );
        let limits = Limits {
            bytes,
            entries: 300,
        };
        let mut again = OpenBlock::of(&block, limits).unwrap();
        let last = block.last_key().unwrap_or_default().to_vec();
        for rest in [&[][..], &[0], &[200, 1]] {
            let key = [&last, rest].concat();
            let kinds = [Kind::Fence(1 << 40)];
            let fits = again.push_if_room(&key, &kinds);
            assert_eq!(open.push_if_room(&key, &kinds), fits);
            assert!(again.used_bytes() <= bytes && open.used_bytes() == again.used_bytes());
            assert_eq!(entries(&again.block()), entries(&open.block()));
        }
    }
    assert!(layouts.iter().all(|count| *count > 200), "{layouts:?}");
}

/// Random keys with row ids, as most indexes have them. A sequence has 250 of them in 4 KiB.
#[test]
fn a_table_has_more_entries_than_a_sequence() {
    let mut rng = Rng::new(1);
    let mut keys: Vec<_> = (0..1_000_u64)
        .map(|row| (u128::from(rng.next_u64() >> 8) << 64 | u128::from(row)).to_be_bytes())
        .collect();
    keys.sort_unstable();
    let mut block = OpenBlock::new(LIMITS);
    let room = keys
        .iter()
        .take_while(|key| block.push_if_room(&key[..], &[Kind::Insert]));
    // Nine bytes each: seven of the key, two of the row.
    assert!((430..460).contains(&room.count()), "{}", block.len());
    decoded(&block, 4096, TABLE);
}

/// Entries of one width, of which many begin alike: with the second beginning almost all bytes
/// differ, a table of more than 60 entries is full, and a sequence goes on.
#[test]
fn a_sequence_goes_on_where_a_table_is_full() {
    let mut rng = Rng::new(2);
    let mut keys = Vec::new();
    for _ in 0..4 {
        let shared: Vec<u8> = (0..60).map(|_| rng.next_u64() as u8).collect();
        let of = |number: u32| [&shared[..], &number.to_be_bytes()].concat();
        keys.extend((0..100).map(of));
    }
    keys.sort_unstable();
    let mut block = OpenBlock::new(LIMITS);
    for (at, key) in keys.iter().enumerate() {
        assert!(block.push_if_room(key, &[Kind::Insert]), "{at}");
        let layout = if at < 100 { TABLE } else { SEQUENCE };
        if [0, 1, 99, 100, 399].contains(&at) {
            let block = decoded(&block, 4096, layout);
            assert_eq!(entries(&block)[at].0, *key);
        }
    }
    check_searches(
        &block.block(),
        &keys.iter().map(|key| (key.clone(), Kind::Insert)).collect(),
        keys.iter().cloned(),
    );
}

#[test]
fn bytes_in_common_are_counted() {
    let bytes: Vec<u8> = (0..40).collect();
    for length in 0..40 {
        for differs_at in 0..=length {
            let mut other = bytes[..length].to_vec();
            other.extend_from_slice(b"longer");
            other[differs_at] ^= 128;
            let common = common_bytes(&bytes[..length], &other);
            assert_eq!(common, differs_at, "of {length}");
            assert_eq!(common_bytes(&other, &bytes[..length]), common);
        }
    }
}

/// Searches against a naive one: entries of one length and of several, with bytes in common
/// and without, and keys before, between, behind and within them.
#[test]
fn searches_find_what_a_naive_one_finds() {
    let mut rng = Rng::new(7);
    for round in 0..300 {
        let prefix = vec![round as u8; rng.below(12) as usize];
        let key = |rng: &mut Rng, length: u64| {
            let rest = (0..length).map(|_| [0, 1, 255][rng.below(3) as usize]);
            prefix.iter().copied().chain(rest).collect::<Vec<u8>>()
        };
        let width = (round % 2 == 0).then(|| rng.below(6) * 2);
        let count = rng.below(40);
        let mut keys: Vec<_> = (0..count)
            .map(|_| {
                let length = width.unwrap_or_else(|| rng.below(12));
                key(&mut rng, length)
            })
            .collect();
        keys.sort_unstable();
        // A fence and a data entry may be equal.
        keys = keys
            .chunk_by(|a, b| a == b)
            .flat_map(|same| same.iter().take(2).cloned())
            .collect();
        let mut block = OpenBlock::new(LIMITS);
        for key in &keys {
            block.push(key, Kind::Insert);
        }
        let block = block.block();
        let decoded = Block::decode(block.encode(AT, 4096), AT).unwrap();
        assert_eq!(entries(&decoded), entries(&block));
        let mut wanted = keys.clone();
        wanted.extend((0..40).map(|_| {
            let length = rng.below(14);
            key(&mut rng, length)
        }));
        wanted.extend([vec![], vec![0], vec![round as u8], vec![255; 30]]);
        for wanted in &wanted {
            let below = keys.iter().filter(|key| *key < wanted).count();
            assert_eq!(decoded.below(wanted), below, "{wanted:?} in {keys:?}");
            let (found, _) = decoded.find(wanted);
            assert_eq!(found.is_some(), keys.contains(wanted));
        }
    }
}

/// A block with these bytes of entries and a right checksum.
fn with_body(layout: u8, entries: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u32(0);
    bytes.put_u16(layout.into());
    bytes.put_u16(entries);
    bytes.put_u32((HEADER_BYTES + body.len()) as u32);
    bytes.put_u64(AT.run);
    bytes.put_u64(AT.ordinal);
    bytes.extend_from_slice(body);
    let sum = checksum(&[AT.tree, AT.number], &bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Bytes with a right checksum that no writer makes.
#[test]
fn a_sequence_that_no_writer_makes_is_damage() {
    for shared in [1, 4, u64::MAX] {
        let mut body = Vec::new();
        for shared in [0, 0, shared] {
            body.put_u8(0);
            body.put_varint(shared);
            body.put_bytes(b"abc");
        }
        let decoded = Block::decode(with_body(SEQUENCE, 3, &body), AT);
        assert_eq!(decoded.is_ok(), shared == 1, "{shared}");
    }
}

#[test]
fn a_table_that_no_writer_makes_is_damage() {
    // Width 3, the middle byte differs, kinds, one fence, rows.
    let whole = [3, 0b010, 7, 8, 3, 0b0010, 5, 1, 2];
    assert!(Block::decode(with_body(TABLE, 2, &whole), AT).is_ok());
    for (entries, body) in [
        (3, &whole[..]),
        (1, &whole),
        (0, &whole),
        (2, &[]),
        (
            2,
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ),
        (2, &[200, 1, 0]),
        // A bit behind the width.
        (2, &[3, 0b1010, 7, 8, 0, 1, 2, 3, 4]),
        // Kinds that there are not.
        (2, &[3, 0b010, 7, 8, 4, 1, 2]),
        (2, &[3, 0b010, 7, 8, 3, 0b1110, 5, 1, 2]),
        // No ordinal, and one too many.
        (2, &[3, 0b010, 7, 8, 2, 5]),
        (2, &[3, 0b010, 7, 8, 0, 5, 1, 2]),
    ] {
        let decoded = Block::decode(with_body(TABLE, entries, body), AT);
        assert!(decoded.is_err(), "{entries} of {body:?}");
    }
    let error = Block::decode(with_body(3, 0, &[]), AT).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("block 3 of index levels-00000009: layout 3"),
        "{error}"
    );
}

/// Whatever the bytes are, decoding and searching end.
#[test]
fn bodies_with_a_few_other_bytes_are_read_or_refused() {
    let mut rng = Rng::new(11);
    let (mut read, mut refused) = (0, 0);
    for round in 0..20_000 {
        let block = match round % 3 {
            0 => sequence().block(),
            1 => table().block(),
            _ => random_block(&mut rng, 200).0.block(),
        };
        let bytes = block.encode(AT, 256);
        let mut body = bytes[HEADER_BYTES..block.used_bytes()].to_vec();
        for _ in 0..1 + rng.below(3) {
            match body.len() as u64 {
                0 => body.push(1),
                len => body[rng.below(len) as usize] = rng.next_u64() as u8,
            }
        }
        let entries = match rng.below(3) {
            0 => rng.below(1 << 16) as u16,
            _ => block.len() as u16,
        };
        match Block::decode(with_body(bytes[4], entries, &body), AT) {
            Ok(block) => {
                read += 1;
                assert_eq!(block.len(), usize::from(entries));
                let some = block.iter().take(1_000).chain(block.iter().rev().take(5));
                for (key, _) in some {
                    let _ = (block.find(&key), block.floor_fence(&key));
                }
                let _ = (block.find(&[]), block.find(&[255; 40]));
                let _ = OpenBlock::of(&block, LIMITS);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(read > 1_000 && refused > 1_000, "{read} {refused}");
}

/// Many entries, evenly spread, in clusters, and with most at one end: the guess is right, and as
/// wrong as it can be.
#[test]
fn searches_in_large_tables_find_what_a_naive_one_finds() {
    let mut rng = Rng::new(5);
    let shapes: [fn(u64, &mut Rng) -> u64; 5] = [
        |at, _| at * 1_000_003,
        |_, rng| rng.next_u64() >> 8,
        |at, rng| (at / 50) << 50 | rng.below(1 << 20),
        |at, _| if at < 299 { at } else { u64::MAX >> 8 },
        |at, _| {
            if at == 0 {
                0
            } else {
                (u64::MAX >> 8) - 400 + at
            }
        },
    ];
    let mut tables = 0;
    for shape in shapes {
        for count in [17, 18, 40, 300] {
            let mut keys: Vec<_> = (0..count)
                .map(|at| shape(at, &mut rng).to_be_bytes())
                .collect();
            keys.sort_unstable();
            keys.dedup();
            let mut open = OpenBlock::new(LIMITS);
            let items: Items = keys
                .iter()
                .map(|key| (key.to_vec(), Kind::Insert))
                .collect();
            items.iter().for_each(|(key, kind)| open.push(key, *kind));
            let layout = open.block().encode(AT, 4096)[4];
            tables += usize::from(layout == TABLE);
            let block = decoded(&open, 4096, layout);
            let wanted = items.iter().flat_map(|(key, _)| {
                let number = u64::from_be_bytes(key.as_slice().try_into().unwrap());
                let near = [number.saturating_sub(1), number, number + 1];
                near.map(|number| number.to_be_bytes().to_vec())
            });
            check_searches(&block, &items, wanted);
            let far = (0..50).map(|_| rng.next_u64().to_be_bytes().to_vec());
            check_searches(&block, &items, far.collect::<Vec<_>>().into_iter());
        }
    }
    assert!(tables > 10, "{tables} tables");
}

#[test]
fn damage_of_every_byte_and_a_wrong_place_are_found() {
    for block in [sequence().block(), table().block()] {
        let bytes = block.encode(AT, 128);
        for at in 0..block.used_bytes() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 16;
            assert!(Block::decode(damaged, AT).is_err(), "byte {at}");
        }
        for at in [
            Identity { number: 4, ..AT },
            Identity { tree: 1, ..AT },
            Identity { run: 6, ..AT },
            Identity { ordinal: 1, ..AT },
        ] {
            assert!(Block::decode(bytes.clone(), at).is_err());
        }
        for length in 0..block.used_bytes() {
            assert!(Block::decode(bytes[..length].to_vec(), AT).is_err());
        }
    }
}
