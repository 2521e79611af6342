use super::*;
use strandline_base::rng::Rng;

const DISK: HddModel = HddModel::RPM_7200;

/// Serves everything that waits; the numbers in order, and when each ends.
fn serve_all(actuator: &mut Actuator) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| actuator.begin_next(actuator.free_at_ns().max(1 << 40))).collect()
}

#[test]
fn random_accesses_take_the_average_of_the_data_sheet() {
    let (mut actuator, mut rng) = (Actuator::new(DISK, 1), Rng::new(3));
    let (accesses, bytes) = (20_000, 4_096);
    for _ in 0..accesses {
        let now = actuator.free_at_ns();
        actuator.arrive(now, rng.below(DISK.span), bytes, true);
        actuator.begin_next(now).expect("the head is free");
    }
    let mean_ms = actuator.free_at_ns() as f64 / f64::from(accesses) / 1e6;
    let expected_ms = 8.5 + 4.17 + 4_096.0 / 77_000.0;
    assert!((mean_ms / expected_ms - 1.0).abs() < 0.01, "{mean_ms} ms");
}

#[test]
fn every_access_takes_what_the_formula_says() {
    let mut actuator = Actuator::new(DISK, 1);
    let mut at = |now, place, bytes, may_stream| {
        actuator.arrive(now, place, bytes, may_stream);
        actuator.begin_next(now).expect("free").1 - now
    };
    let megabyte = 1_000_000_000 / 77;
    let quarter = DISK.span / 4;
    // A quarter of the span is half of the stroke's part that grows.
    let seek = 1_000_000 + (DISK.stroke_ns - DISK.track_ns) / 2;
    let random = at(0, quarter, 1_000_000, true);
    assert!(random.abs_diff(seek + DISK.rotation_ns + megabyte) <= 2);
    let now = 1 << 40;
    assert_eq!(at(now, quarter + 1_000_000, 1_000_000, true), megabyte);
    let write = at(now * 2, quarter + 2_000_000, 1_000_000, false);
    assert_eq!(
        write,
        DISK.rotation_ns + megabyte,
        "a write waits for its sector"
    );
    let mut masm = Actuator::new(HddModel::MASM, 1);
    masm.arrive(0, 99 << 30, 0, true);
    assert_eq!(masm.begin_next(0), Some((0, 4_170_000)));
}

#[test]
fn the_time_scale_divides_all_times() {
    let ends = [1, 8].map(|scale| {
        let mut actuator = Actuator::new(DISK, scale);
        actuator.arrive(0, DISK.span / 3, 1 << 20, true);
        actuator.begin_next(0).expect("free").1
    });
    assert_eq!(ends[1], ends[0] / 8);
}

#[test]
fn waiting_requests_are_served_as_by_an_elevator() {
    let gib = |n: u64| n << 30;
    let mut actuator = Actuator::new(DISK, 1);
    actuator.arrive(0, gib(50), 0, true);
    let (_, busy_until) = actuator.begin_next(0).expect("free");
    for place in [60, 10, 40, 90, 51] {
        actuator.arrive(1, gib(place), 0, true);
    }
    assert_eq!(
        actuator.begin_next(busy_until - 1),
        None,
        "the head is busy"
    );
    let order: Vec<u64> = serve_all(&mut actuator).iter().map(|(n, _)| *n).collect();
    assert_eq!(order, [5, 1, 4, 3, 2], "51, 60, 90, then 40, 10");
    // It goes on downwards before it turns.
    for place in [70, 5] {
        actuator.arrive(2, gib(place), 0, true);
    }
    let order: Vec<u64> = serve_all(&mut actuator).iter().map(|(n, _)| *n).collect();
    assert_eq!(order, [7, 6]);
}

#[test]
fn an_elevator_beats_the_order_of_arrival() {
    let mut rng = Rng::new(11);
    let places: Vec<u64> = (0..32).map(|_| rng.below(DISK.span)).collect();
    let (mut queued, mut single) = (Actuator::new(DISK, 1), Actuator::new(DISK, 1));
    for place in &places {
        queued.arrive(0, *place, 4_096, true);
        single.arrive(0, *place, 4_096, true);
        single.begin_next(single.free_at_ns()).expect("free");
    }
    serve_all(&mut queued);
    assert!(queued.free_at_ns() * 4 < single.free_at_ns() * 3);
}

#[test]
fn an_idle_disk_begins_when_the_request_arrives() {
    let mut actuator = Actuator::new(HddModel::MASM, 1);
    actuator.arrive(5_000, 1 << 30, 0, true);
    let (_, end) = actuator.begin_next(9_000_000).expect("noticed late");
    assert_eq!(end, 5_000 + 4_170_000);
}
