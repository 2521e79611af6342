//! Every damaged byte of a page is found; damaged records never panic.

use super::super::header::{PageBody, PageImage, decode, encode};
use super::super::{record, space};
use super::*;
use crate::pages::record::Base;

fn page_id(file: u32, number: u32) -> PageId {
    PageId {
        file: PageFileId(file),
        number: PageNumber(number),
    }
}

fn body_of(bytes: &[u8]) -> PageBody {
    let mut body = PageBody::zeroed();
    body.copy_from_slice(bytes);
    body
}

#[test]
fn every_damaged_byte_of_a_page_is_found() {
    let rng = &mut Rng::new(4);
    let body: Vec<u8> = (0..PAGE_BODY_BYTES).map(|_| rng.next_u64() as u8).collect();
    let image = PageImage {
        lsn: Lsn(0x0102_0304_0506),
        body: body_of(&body),
    };
    let id = page_id(3, 5);
    let mut bytes = encode(ID, id, &image);
    assert_eq!(bytes.len(), PAGE_BYTES);
    let found = decode(ID, id, bytes.clone(), &"here").unwrap();
    assert_eq!((found.lsn, &found.body), (image.lsn, &image.body));
    for at in 0..PAGE_BYTES {
        bytes[at] ^= 1 << (at % 8);
        assert!(decode(ID, id, bytes.clone(), &"here").is_err(), "byte {at}");
        bytes[at] ^= 1 << (at % 8);
    }
    for other in [page_id(3, 6), page_id(4, 5)] {
        assert!(decode(ID, other, bytes.clone(), &"here").is_err());
    }
    assert!(
        decode(ID + 1, id, bytes.clone(), &"here").is_err(),
        "another database"
    );
    assert!(decode(ID, id, bytes[..PAGE_BYTES - 1].to_vec(), &"here").is_err());
    assert!(decode(ID, id, vec![0; PAGE_BYTES], &"here").is_err());
    bytes.push(0);
    assert!(decode(ID, id, bytes, &"here").is_err(), "too long");
}

#[test]
fn records_round_trip_and_damage_never_panics() {
    let rng = &mut Rng::new(8);
    let mut before = vec![0; PAGE_BODY_BYTES];
    for round in 0..200 {
        let mut after = before.clone();
        for _ in 0..rng.below(5) {
            let at = rng.below(PAGE_BODY_BYTES as u64) as usize;
            let end = (at + rng.below(30) as usize).min(PAGE_BODY_BYTES);
            after[at..end]
                .iter_mut()
                .for_each(|byte| *byte = rng.next_u64() as u8);
        }
        let mut out = record::begin(FILE, 2);
        record::put_delta(&mut out, PageNumber(1), Lsn(9), &before, &after);
        record::put_image(&mut out, PageNumber(2), &after);
        let (file, pages) = record::decode(&out).unwrap();
        assert_eq!(
            (file, pages[0].base, pages[1].base),
            (FILE, Base::Exactly(Lsn(9)), Base::Zeros)
        );
        let mut delta = before.clone();
        pages[0].apply(&mut delta);
        assert!(delta == after, "round {round}");
        let mut image = vec![0; PAGE_BODY_BYTES];
        pages[1].apply(&mut image);
        assert!(image == after, "round {round}");
        assert!(
            describe_record(&out)
                .unwrap()
                .starts_with("page file 7: 1 delta of ")
        );
        if round % 20 == 1 {
            damage(&out);
        }
        before = after;
    }
}

fn damage(record: &[u8]) {
    let apply = |bytes: &[u8]| {
        if let Ok((_, pages)) = record::decode(bytes) {
            let mut body = vec![0; PAGE_BODY_BYTES];
            pages.iter().for_each(|page| page.apply(&mut body));
        }
    };
    for len in 0..record.len() {
        assert!(record::decode(&record[..len]).is_err(), "cut at {len}");
    }
    let mut bytes = record.to_vec();
    for at in 0..bytes.len() {
        for mask in [1, 0x80, 0xff] {
            bytes[at] ^= mask;
            apply(&bytes);
            bytes[at] ^= mask;
        }
    }
}

#[test]
fn a_small_change_has_a_small_record() {
    let before = vec![7; PAGE_BODY_BYTES];
    let mut after = before.clone();
    after[100..108].fill(1);
    after[PAGE_BODY_BYTES - 1] = 1;
    let mut out = record::begin(FILE, 1);
    record::put_delta(&mut out, PageNumber(1), Lsn(9), &before, &after);
    assert!(out.len() < 40, "{} bytes", out.len());
}

#[test]
fn space_is_found_again_from_its_maps() {
    let mut maps = vec![vec![0; PAGE_BODY_BYTES]; 3];
    let mapped = space::MAPPED_PAGES;
    for page in [0, 1, 4, mapped, mapped + 2, 2 * mapped] {
        space::set_used(&mut maps[(page / mapped) as usize], page, true);
    }
    let mut found = space::Space::default();
    for (k, map) in maps.iter().enumerate() {
        found.add_map(k as u32 * mapped, map);
    }
    let mut free: Vec<u32> = (1..2 * mapped)
        .filter(|page| !page.is_multiple_of(mapped))
        .collect();
    free.retain(|page| ![1, 4, mapped + 2].contains(page));
    assert_eq!(found.free_pages(), free.len());
    for page in free {
        assert_eq!(found.reserve(&[]).unwrap(), page);
    }
    assert_eq!(found.reserve(&[]).unwrap(), 2 * mapped + 1);
    for page in 2 * mapped + 2..3 * mapped {
        assert_eq!(found.reserve(&[]).unwrap(), page);
    }
    assert_eq!(
        found.reserve(&[]).unwrap(),
        3 * mapped + 1,
        "a map page is not given out"
    );
}

#[test]
fn a_slots_record_has_its_bytes_and_a_version_of_its_own() {
    let slot = SlotWrite {
        offset: 300,
        bytes: vec![7; 20],
    };
    let mut out = record::begin_slot(FILE);
    record::put_slot(&mut out, PageNumber(5), Lsn(9), &slot);
    assert_eq!(out[0], 2);
    let (file, pages) = record::decode(&out).unwrap();
    assert_eq!((file, pages[0].base), (FILE, Base::AtLeast(Lsn(9))));
    let mut body = vec![1; PAGE_BODY_BYTES];
    pages[0].apply(&mut body);
    assert_eq!(body[299..321], [&[1][..], &[7; 20], &[1]].concat());
    let described = describe_record(&out).unwrap();
    assert_eq!(described, "page file 7: 5 slot of 20 bytes");
    for end in 0..out.len() {
        assert!(record::decode(&out[..end]).is_err(), "{end} bytes");
    }
}
