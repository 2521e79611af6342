//! Runs on a small image whose disk is fast, so that they take no time.

use std::time::Duration;

use strandline_storage::ssd_cache::Mode;

use super::*;
use crate::input::Scale;

fn image() -> Image {
    let scale = Scale {
        warehouses: 1,
        districts: 2,
        customers: 100,
        items: 500,
    };
    Image::load(scale, 1).expect("load")
}

fn plan(setting: Setting) -> Plan {
    Plan {
        time_scale: 100_000,
        terminals: 4,
        wait: Duration::ZERO,
        warm_up: Duration::from_millis(100),
        checkpoint_every: Duration::from_millis(50),
        ..Plan::new(setting, 25.0)
    }
}

const TIME: Duration = Duration::from_millis(100);

#[test]
fn every_setting_runs_and_stays_consistent_over_a_crash() {
    let image = image();
    let settings = [
        Setting::Cached(Mode::Pc),
        Setting::Cached(Mode::Pc2),
        Setting::Cached(Mode::Lc),
        Setting::AllHdd,
        Setting::AllSsd,
        Setting::Foyer,
    ];
    for setting in settings.into_iter().filter(|setting| setting.is_built()) {
        let what = setting.name();
        let mut running = Running::warm(&image, plan(setting)).expect(what);
        let window = running.measure(TIME, true).expect(what);
        assert!(window.timeline.transactions > 0, "{what}");
        assert!(!window.checkpoints.is_empty(), "{what}");
        let is_emulated = running.label().contains("emulated") || setting == Setting::AllSsd;
        assert!(is_emulated, "{}", running.label());
        let before = running.check().expect(what);
        let crashed = running.crash();
        let (again, _, _) = crashed.recover(plan(setting)).expect(what);
        assert_eq!(again.check().expect(what), before, "{what}");
    }
}

#[test]
fn a_window_is_void_if_something_else_than_the_disk_was_busy() {
    let window = Window::default();
    assert_eq!(window.void(), None);
    let busy = |processor_busy, ssd_busy, late_ms| {
        let window = Window {
            processor_busy,
            ssd_busy,
            late_ms,
            ..Window::default()
        };
        window.void().unwrap_or_default()
    };
    assert_eq!(busy(0.6, 0.6, 0.5), "");
    assert_eq!(busy(0.61, 0.0, 0.0), "void: processor 61 % busy");
    assert_eq!(busy(0.0, 0.7, 0.0), "void: SSD 70 % busy");
    assert_eq!(busy(0.0, 0.0, 2.0), "void: threads woke 2.0 ms late");
}

#[test]
fn a_build_without_foyer_refuses_the_setting() {
    let opened = Running::warm(&image(), plan(Setting::Foyer));
    assert_eq!(opened.is_ok(), Setting::Foyer.is_built());
}

#[test]
fn a_crash_can_be_recovered_without_its_cache() {
    let mut running = Running::warm(&image(), plan(Setting::Cached(Mode::Pc))).expect("warm");
    running.measure(TIME, false).expect("measure");
    let before = running.check().expect("consistent");
    let crashed = running.crash();
    assert!(crashed.log_bytes > 0);
    let alone = crashed
        .without_cache(plan(Setting::AllHdd))
        .expect("emptied");
    let (again, _, _) = alone.recover(plan(Setting::AllHdd)).expect("recovery");
    assert_eq!(again.check().expect("consistent"), before);
}
