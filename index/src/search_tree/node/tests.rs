//! Nodes against sorted lists; damage of every byte.

use super::*;
use std::collections::BTreeMap;
use strandline_base::rng::Rng;

fn frame(level: u8, low: &[u8], high: Option<&[u8]>) -> Frame {
    Frame {
        kind: 1,
        level,
        right: high.map(|_| PageNumber(9)),
        low: low.into(),
        high: high.map(Box::from),
    }
}

fn read(body: &[u8]) -> Node<'_> {
    Node::read(body, 1).expect("whole").expect("a node")
}

fn tail(rng: &mut Rng, level: u8) -> Tail {
    match (level, rng.below(3)) {
        (0, 0) => Tail::Retired(CommitTs(rng.next_u64() >> 2)),
        (0, _) => Tail::Live,
        _ => Tail::Child(PageNumber(rng.below(1 << 32) as u32)),
    }
}

#[test]
fn changes_in_place_agree_with_a_map() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let level = (seed % 2) as u8;
        let (low, high) = [(&b"abc"[..], Some(&b"abd"[..])), (b"", None)][(seed / 2 % 2) as usize];
        let frame = frame(level, low, high);
        let mut body = vec![0xee; 700];
        let mut model = BTreeMap::from([(low.to_vec(), tail(&mut rng, level))]);
        let mut first = Entries::default();
        first.push(low, model[low]);
        frame.write(&first, 0..1, &mut body).expect("it fits");
        for _ in 0..300 {
            let mut key = low.to_vec();
            key.extend((0..rng.below(12)).map(|_| rng.below(4) as u8));
            let node = read(&body);
            let place = node.search(&key).expect("whole");
            match place {
                Ok(at) => {
                    assert_eq!(node.tail(at).expect("whole"), model[&key]);
                    if key != low {
                        remove(&mut body, 1, at).expect("whole");
                        model.remove(&key);
                    }
                }
                Err(at) => {
                    let tail = tail(&mut rng, level);
                    if insert(&mut body, 1, at, &key, tail).expect("whole") {
                        model.insert(key, tail);
                    } else {
                        let entries = read(&body).entries().expect("whole");
                        let size = frame.size(&entries, 0..entries.len());
                        assert_eq!(size, read(&body).size());
                        frame
                            .write(&entries, 0..entries.len(), &mut body)
                            .expect("it fits");
                    }
                }
            }
            let node = read(&body);
            node.verify().expect("whole");
            let entries = node.entries().expect("whole");
            let found = entries.iter().map(|(bytes, tail)| (bytes.to_vec(), tail));
            assert!(found.eq(model.iter().map(|(bytes, tail)| (bytes.clone(), *tail))));
            assert_eq!(node.frame(1), frame);
        }
    }
}

#[test]
fn bounds_are_found_for_bytes_outside_the_prefix() {
    let mut entries = Entries::default();
    for bytes in [&b"abc"[..], b"abcd", b"abcz"] {
        entries.push(bytes, Tail::Live);
    }
    let mut body = vec![0; 300];
    let frame = frame(0, b"abc", Some(b"abd"));
    frame.write(&entries, 0..3, &mut body).expect("it fits");
    let node = read(&body);
    for (bytes, at) in [
        ("", 0),
        ("ab", 0),
        ("abc", 0),
        ("abca", 1),
        ("abd", 3),
        ("b", 3),
    ] {
        assert_eq!(node.lower_bound(bytes.as_bytes()), Ok(at), "{bytes}");
    }
    for (bytes, at, before) in [
        ("abb", false, false),
        ("abc", true, false),
        ("abcz", true, true),
    ] {
        let bytes = bytes.as_bytes();
        assert_eq!(node.begins_by(Probe::At(bytes)), at);
        assert_eq!(node.begins_by(Probe::Before(Some(bytes))), before);
    }
    for (bytes, at, before) in [
        ("abcz", true, true),
        ("abd", false, true),
        ("abda", false, false),
    ] {
        let bytes = bytes.as_bytes();
        assert_eq!(node.ends_behind(Probe::At(bytes)), at);
        assert_eq!(node.ends_behind(Probe::Before(Some(bytes))), before);
    }
    assert!(node.begins_with(1, b"ab").expect("whole"));
    assert!(node.begins_with(1, b"abcd").expect("whole"));
    assert!(!node.begins_with(1, b"abcda").expect("whole"));
    assert!(!node.begins_with(1, b"abd").expect("whole"));
}

/// No damage makes a read panic, and `verify` accepts only nodes whose every entry can be read.
#[test]
fn damage_of_any_byte_is_an_error_or_another_whole_node() {
    for level in [0, 1] {
        let mut entries = Entries::default();
        let mut rng = Rng::new(5);
        for no in 0..8_u8 {
            entries.push(&[b"ab", &[no][..]].concat(), tail(&mut rng, level));
        }
        let mut body = vec![0; 240];
        let frame = frame(level, b"ab\0", Some(b"ac"));
        frame.write(&entries, 0..8, &mut body).expect("it fits");
        remove(&mut body, 1, 3).expect("whole");
        let mut refused = 0;
        for at in 0..body.len() {
            for value in 0..=255 {
                let mut damaged = body.clone();
                damaged[at] = value;
                refused += usize::from(!is_whole(&damaged));
                // Changes of a damaged node do not panic either.
                let _ = insert(&mut damaged.clone(), 1, 7, b"ab\x10", Tail::Live);
                let _ = remove(&mut damaged.clone(), 1, 6);
            }
        }
        assert!(refused > 3000, "{refused}");
        for len in 0..body.len() {
            is_whole(&body[..len]);
        }
    }
}

/// Reads everything of a body; whether it is a whole node.
fn is_whole(body: &[u8]) -> bool {
    let Ok(Some(node)) = Node::read(body, 1) else {
        return false;
    };
    let is_whole = node.verify().is_ok();
    for at in 0..node.len() {
        assert!(!is_whole || node.parts(at).is_ok() && node.tail(at).is_ok());
    }
    let _ = (
        node.size(),
        node.search(b"ab\x03"),
        node.child_at(Probe::At(b"ab")),
    );
    let _ = node.entries().map(|entries| {
        let frame = node.frame(1);
        let size = frame.size(&entries, 0..entries.len());
        frame.write(&entries, 0..entries.len(), &mut vec![0; size.min(4096)])
    });
    is_whole
}
