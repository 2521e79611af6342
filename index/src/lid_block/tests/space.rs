//! The blocks' file: pages without blocks go back to it, and a checkpoint cuts it.

use super::blocks::Put;
use super::layout::State;
use super::support::*;
use super::*;

const ENTRIES: i64 = 6_000;

/// What a page file of the tests grows by, and what is left at its end by a cut.
const GROWTH: u64 = 8 << 13;

fn bytes(tested: &Tested) -> u64 {
    tested.store.checkpoint().expect("checkpoint");
    tested.store.file_bytes(FILES.1).expect("open")
}

fn add_all(tested: &Tested, rows: std::ops::Range<u64>) {
    for number in 0..ENTRIES {
        for row in rows.clone() {
            let key = tested.key(number * 7919 % ENTRIES);
            tested.index.add(&key, RowId(row)).expect("added");
        }
    }
}

#[test]
fn a_file_of_blocks_that_are_moved_gives_pages_back() {
    let mut cuts = 0;
    for kind in KINDS {
        let mut tested = Tested::new(kind, 4, 400);
        let least = bytes(&tested);
        let mut peak = 0;
        for round in 0..4 {
            add_all(&tested, round..round + 1);
            let used = bytes(&tested);
            assert!(used >= least + GROWTH, "{kind:?}, {round}: {used}");
            match round {
                0 => peak = used,
                // Sparse blocks are those of leaves, and each round adds leaves.
                _ => {
                    let leaves = if kind == BlockKind::Sparse {
                        round + 1
                    } else {
                        1
                    };
                    let most = leaves * peak + GROWTH;
                    assert!(used <= most, "{kind:?}, {round}: {used} of {peak}");
                }
            }
            assert_sound(&tested.index);
            if round % 2 == 1 {
                tested.reopen();
            }
            tested.index.move_all().expect("moved");
            // Pages that were in use at the begin of a checkpoint are left to the next one.
            bytes(&tested);
            let left = bytes(&tested);
            // A checkpoint leaves a file alone that it would cut by less.
            if used > least + 2 * GROWTH {
                assert!(left <= used / 2, "{kind:?}, {round}: {left} of {used}");
                cuts += 1;
            }
            assert_sound(&tested.index);
            let last = tested.rows(ENTRIES - 1);
            assert_eq!(last, (0..=round).collect::<Vec<_>>(), "{kind:?}");
        }
        assert_eq!(tested.vacuumed(), 4 * ENTRIES as usize);
    }
    assert!(cuts >= 4, "{cuts}");
}

/// Pages with blocks stay where they are; those before them that are empty are used again first.
#[test]
fn blocks_that_stay_keep_their_pages() {
    for kind in KINDS {
        let tested = Tested::new(kind, 4, 400);
        add_all(&tested, 0..1);
        let everything = (&[][..], None);
        let directory = &tested.index.blocks.directory;
        let all = directory.within(everything, Direction::Forward, usize::MAX);
        let stay: Vec<_> = all.iter().step_by(40).map(|block| block.page).collect();
        for (at, block) in all.iter().enumerate() {
            if at % 40 > 0 {
                tested.index.move_block(block).expect("moved");
            }
        }
        let left = directory.within(everything, Direction::Forward, usize::MAX);
        let pages: Vec<_> = left.iter().map(|block| block.page).collect();
        assert_eq!(pages, stay, "{kind:?}");
        bytes(&tested);
        assert_sound(&tested.index);
        let pages: BTreeSet<_> = tested
            .index
            .blocks
            .pages()
            .expect("read")
            .into_iter()
            .collect();
        let (pages, stay) = (pages.len(), stay.into_iter().collect::<BTreeSet<_>>().len());
        let areas = tested.index.form().areas();
        // As many free areas as blocks, and those of a page.
        assert!(
            pages <= stay + left.len() / areas + 2,
            "{kind:?}: {pages} pages, {stay} stay"
        );
        add_all(&tested, 1..2);
        assert_sound(&tested.index);
        assert_eq!(tested.vacuumed(), 2 * ENTRIES as usize, "{kind:?}");
    }
}

/// A reader and a writer that have found a block before it is freed: its page is free, or cut off.
#[test]
fn a_freed_block_reads_as_empty_and_takes_nothing() {
    for is_cut in [false, true] {
        for kind in KINDS {
            let tested = Tested::new(kind, 4, 400);
            add_all(&tested, 0..1);
            // The file has the blocks as they are now.
            bytes(&tested);
            let everything = (&[][..], None);
            let directory = &tested.index.blocks.directory;
            let held = directory.within(everything, Direction::Forward, usize::MAX);
            assert!(held.len() > 100, "{}", held.len());
            tested.index.move_all().expect("moved");
            if is_cut {
                bytes(&tested);
            }
            for block in &held {
                assert!(tested.index.blocks.read(block).expect("gone").is_empty());
                let entry = block.header.low.to_vec();
                let put = tested.index.blocks.put(block, &entry, &|_| State::Live);
                assert!(matches!(put, Ok(Put::Gone)), "{kind:?}");
                tested.index.move_block(block).expect("nothing to do");
            }
            assert_sound(&tested.index);
            assert_eq!(tested.vacuumed(), ENTRIES as usize, "{kind:?}");
        }
    }
}
