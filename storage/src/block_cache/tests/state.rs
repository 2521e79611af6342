//! The index alone: moments that no user of the cache can time.

use super::super::layout::Place;
use super::super::state::{Lookup, State};
use super::*;

/// An index of one slot with a block in it, and where it is.
fn with_block(block: BlockKey) -> (State, u64, Place) {
    let mut state = State::new(settings(2), FILES_END);
    state.slots.resize_with(1, Default::default);
    write(&mut state, block);
    let (number, place) = stored(&mut state, block);
    (state, number, place)
}

/// Writes a segment of one block over the slot.
fn write(state: &mut State, block: BlockKey) {
    state.admit(block, 1, content(block).into());
    state.seal();
    let mut places: Vec<Place> = state
        .waiting()
        .into_iter()
        .map(|(place, _)| place)
        .collect();
    state.clear_slot(0);
    places.iter_mut().for_each(|place| place.at = 56);
    state.end_write(0, &places);
}

fn stored(state: &mut State, block: BlockKey) -> (u64, Place) {
    match state.look_up(block) {
        Some(Lookup::Stored { number, place, .. }) => (number, place),
        other => panic!("{block}: {other:?}"),
    }
}

/// A reader that has looked a block up finds other bytes, since its slot is overwritten. By then
/// the same block is there again, at the same place: it is not damaged.
#[test]
fn a_block_of_a_later_segment_is_not_removed_for_an_earlier_one() {
    let block = block(1, 0);
    let (mut state, number, place) = with_block(block);
    write(&mut state, block);
    let (later, same) = stored(&mut state, block);
    assert!(later > number && same == place);
    assert!(!state.remove_found(0, number, place));
    assert_eq!(stored(&mut state, block), (later, place));
    assert!(state.remove_found(0, later, place), "found in this one");
    assert!(state.look_up(block).is_none());
}

/// A touched block is kept only if it is still in the slot that is about to be overwritten.
#[test]
fn a_block_that_has_left_its_slot_is_not_reinserted() {
    let block = block(1, 0);
    let (mut state, _, place) = with_block(block);
    assert_eq!(state.touched_of(0), [place]);
    state.forget_file(1);
    assert!(state.touched_of(0).is_empty());
    assert!(
        !state.reinsert(0, place, content(block).into()),
        "its file was dropped"
    );
    assert!(state.look_up(block).is_none());
}

/// The list of segments has the blocks that a reader would find there.
#[test]
fn a_replaced_block_is_none_of_its_segment() {
    let block = block(1, 0);
    let (mut state, ..) = with_block(block);
    assert_eq!(
        (state.segments()[0].blocks, state.segments()[0].bytes),
        (1, 60)
    );
    let longer = BlockKey { len: 61, ..block };
    state.admit(longer, 1, content(longer).into());
    assert_eq!(
        (state.segments()[0].blocks, state.segments()[0].bytes),
        (0, 0)
    );
}
