//! The bytes of the file are those of docs/format.md, "Block cache".

use strandline_base::bytes::PutBytes;
use strandline_base::checksum;
use strandline_device::Device;

use super::*;

const LOW: u64 = IDENTITY as u64;
const HIGH: u64 = (IDENTITY >> 64) as u64;

fn header() -> Vec<u8> {
    let mut bytes = b"STRDBLKC".to_vec();
    bytes.put_u32(1);
    bytes.put_u32(SEGMENT_BYTES);
    bytes.put_u128(IDENTITY);
    let sum = checksum(&[], &bytes);
    bytes.put_u32(sum);
    bytes.resize(4_096, 0);
    bytes
}

/// A segment in slot `slot`, with `places` as they are told and the bytes of `blocks`.
fn segment(slot: u64, number: u64, places: &[BlockKey], blocks: &[BlockKey]) -> Vec<u8> {
    let mut head = Vec::new();
    head.put_u64(number);
    head.put_u64(FILES_END);
    head.put_u32(places.len() as u32);
    head.put_u32(0);
    for place in places {
        head.put_u64(place.file);
        head.put_u64(place.offset);
        head.put_u32(place.len);
        let words = [LOW, HIGH, place.file, place.offset, u64::from(place.len)];
        head.put_u32(checksum(&words, &content(*place)));
    }
    let mut bytes = b"BSG1".to_vec();
    bytes.put_u32(checksum(&[LOW, HIGH, slot], &head));
    bytes.extend_from_slice(&head);
    for block in blocks {
        bytes.extend_from_slice(&content(*block));
    }
    bytes.resize(SEGMENT_BYTES as usize, 0);
    bytes
}

/// A disk with a cache of these segments.
fn written(segments: &[Vec<u8>]) -> Rig {
    let rig = Rig::new();
    let file = rig.disk.device().create(BLOCK_CACHE_FILE).unwrap();
    file.write_all_at(&header(), 0).unwrap();
    file.write_all_at(&segments.concat(), 4_096).unwrap();
    rig
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let rig = Rig::new();
    let cache = rig.open(settings(2));
    let blocks = [block(3, 5), block(1, 2)];
    for block in blocks {
        read_through(&cache, block);
    }
    cache.flush().unwrap();
    drop(cache);
    let found = rig.disk.content(BLOCK_CACHE_FILE).unwrap();
    let nothing = vec![0; SEGMENT_BYTES as usize];
    let expected = [header(), segment(0, 1, &blocks, &blocks), nothing].concat();
    assert!(found == expected, "other bytes");
    // And back.
    let rig = written(&[segment(0, 1, &blocks, &blocks)]);
    let cache = rig.open(settings(2));
    assert!(blocks.iter().all(|block| is_cached(&cache, *block)));
}

/// A device that writes a segment to the place of another.
#[test]
fn a_segment_in_the_place_of_another_is_damage() {
    let blocks = [block(3, 5)];
    let misplaced = segment(0, 1, &blocks, &blocks);
    let rig = written(&[vec![0; SEGMENT_BYTES as usize], misplaced]);
    assert_eq!(rig.inspect().problems.len(), 1);
    assert_eq!(rig.open(settings(2)).stats().blocks, 0);
}

/// A head that matches its checksum, with a block beyond the segment's end.
#[test]
fn a_block_beyond_its_segment_is_damage() {
    let beyond = [
        block(3, 5),
        BlockKey {
            len: SEGMENT_BYTES,
            ..block(1, 2)
        },
    ];
    let rig = written(&[segment(0, 1, &beyond, &beyond[..1])]);
    let inspection = rig.inspect();
    assert!(inspection.segments.is_empty() && inspection.problems.len() == 1);
    assert_eq!(rig.open(settings(2)).stats().blocks, 0);
}
