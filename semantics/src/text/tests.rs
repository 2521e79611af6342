//! Text forms against PostgreSQL 15's.

use super::*;
use super::{binary::*, geometry::*, interval::*, number::*, temporal::*};
use crate::decimal::Shape;
use strandline_base::Error;
use strandline_base::value_text::*;

fn written(f: impl FnOnce(&mut String) -> std::fmt::Result) -> String {
    let mut out = String::new();
    f(&mut out).expect("writing to a string");
    out
}

fn state<T: std::fmt::Debug>(result: Result<T, Error>) -> &'static str {
    result.expect_err("must fail").sqlstate().0
}

#[test]
fn booleans() {
    for yes in ["t", "TRUE", " yes ", "y", "on", "1", "tru"] {
        assert!(parse_boolean(yes).expect(yes), "{yes}");
    }
    for no in ["f", "false", "no", "n", "off", "of", "0"] {
        assert!(!parse_boolean(no).expect(no), "{no}");
    }
    for bad in ["", "o", "truee", "2", "ja"] {
        assert_eq!(state(parse_boolean(bad)), "22P02", "{bad}");
    }
}

#[test]
fn integers() {
    let small = |s| parse_integer(s, "smallint", -32_768, 32_767);
    assert_eq!(small(" -32768 ").expect("fits"), -32_768);
    assert_eq!(small("+7").expect("fits"), 7);
    let error = small("40000").expect_err("too big");
    assert_eq!(
        error.message(),
        "value \"40000\" is out of range for type smallint"
    );
    let error = small("4x").expect_err("no number");
    assert_eq!(
        error.message(),
        "invalid input syntax for type smallint: \"4x\""
    );
    for bad in ["", " ", "-", "1.0", "1e3", "٣", "0x10"] {
        assert_eq!(state(small(bad)), "22P02", "{bad}");
    }
    assert_eq!(state(small("99999999999999999999999")), "22003");
}

#[test]
fn doubles() {
    for (text, value) in [
        ("1.5", 1.5),
        (" -0 ", -0.0),
        ("1e10", 1e10),
        (".5", 0.5),
        ("5.", 5.0),
    ] {
        assert_eq!(
            parse_double(text).expect(text).to_bits(),
            f64::to_bits(value),
            "{text}"
        );
    }
    assert!(parse_double("NaN").expect("special").is_nan());
    assert_eq!(
        parse_double("-Infinity").expect("special"),
        f64::NEG_INFINITY
    );
    assert_eq!(parse_double("inf").expect("special"), f64::INFINITY);
    for bad in ["", "abc", "1e", "1.5x", "infinit", "--1", "nan1"] {
        assert_eq!(state(parse_double(bad)), "22P02", "{bad}");
    }
    assert_eq!(state(parse_double("1e400")), "22003");
    assert_eq!(state(parse_double("1e-400")), "22003");
    assert_eq!(state(parse_real("1e39")), "22003");
}

#[test]
fn floats_are_written_shortest() {
    for (value, text) in [
        (1.0, "1"),
        (-0.0, "-0"),
        (0.1, "0.1"),
        (1e14, "100000000000000"),
        (1e15, "1e+15"),
        (123456789012345680.0, "1.2345678901234568e+17"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.5e-7, "1.5e-07"),
        (1e100, "1e+100"),
        (1234.5, "1234.5"),
        (f64::INFINITY, "Infinity"),
        (f64::NEG_INFINITY, "-Infinity"),
        (f64::NAN, "NaN"),
    ] {
        assert_eq!(written(|out| write_double(out, value)), text);
    }
    for (value, text) in [
        (0.1f32, "0.1"),
        (1e5, "100000"),
        (1e6, "1e+06"),
        (16777216.0, "1.6777216e+07"),
    ] {
        assert_eq!(written(|out| write_real(out, value)), text);
    }
}

#[test]
fn numerics() {
    let parse = |s| parse_numeric(s, Shape::new(6, 2));
    for (text, unscaled) in [
        ("1", 100),
        ("-1.005", -101),
        ("1.004999", 100),
        ("1e2", 10_000),
        ("12345e-3", 1_235),
        (" .5 ", 50),
        ("9999.994", 999_999),
        ("0e10000", 0),
        ("1e-500", 0),
    ] {
        assert_eq!(parse(text).expect(text), unscaled, "{text}");
    }
    for bad in [
        "", ".", "1.2.3", "NaN", "Infinity", "1e", "e5", "1 2", "+-1",
    ] {
        assert_eq!(state(parse(bad)), "22P02", "{bad}");
    }
    for big in ["9999.995", "10000", "1e500"] {
        assert_eq!(state(parse(big)), "22003", "{big}");
    }
    let detail = parse("10000").expect_err("too big");
    assert_eq!(
        detail.detail(),
        Some("A field with precision 6, scale 2 must round to an absolute value less than 10^4.")
    );
    let widest = "99999999999999999999999999999999999999";
    assert_eq!(
        parse_numeric(widest, Shape::new(38, 0)).expect("fits"),
        10i128.pow(38) - 1
    );
    assert_eq!(
        state(parse_numeric(&format!("{widest}0"), Shape::new(38, 0))),
        "22003"
    );
    for (unscaled, scale, text) in [
        (5, 2, "0.05"),
        (-5, 2, "-0.05"),
        (100, 2, "1.00"),
        (7, 0, "7"),
        (-12345, 3, "-12.345"),
    ] {
        assert_eq!(written(|out| write_numeric(out, unscaled, scale)), text);
    }
}

#[test]
fn dates() {
    for (text, day) in [
        ("1970-01-01", 0),
        ("2024-02-29", 19_782),
        (" 2024/2/29 ", 19_782),
        ("20240229", 19_782),
        ("Feb 29, 2024", 19_782),
        ("29 February 2024", 19_782),
        ("2024-Feb-29", 19_782),
        ("2024-02-29 23:59:59", 19_782),
        ("0001-01-01 BC", -719_528),
        ("epoch", 0),
    ] {
        assert_eq!(parse_date(text).expect(text), day, "{text}");
    }
    for (text, expected) in [
        ("2023-02-29", "22008"),
        ("2024-13-01", "22008"),
        ("2024-00-10", "22008"),
        ("abc", "22007"),
        ("", "22007"),
        ("2024-02", "22007"),
        ("2024-02-29x", "22007"),
        ("2024-02-29 2024-02-28", "22007"),
    ] {
        assert_eq!(state(parse_date(text)), expected, "{text}");
    }
    assert_eq!(written(|out| write_date(out, 19_782)), "2024-02-29");
    assert_eq!(written(|out| write_date(out, -719_528)), "0001-01-01 BC");
    assert_eq!(written(|out| write_date(out, 2_932_897)), "10000-01-01");
}

#[test]
fn times() {
    for (text, micros) in [
        ("00:00", 0),
        ("04:05:06.789", 14_706_789_000),
        ("04:05:06.7890005", 14_706_789_001),
        ("04:05 PM", 57_900_000_000),
        ("12:00 am", 0),
        ("24:00:00", 86_400_000_000),
        ("23:59:60", 86_400_000_000),
    ] {
        assert_eq!(parse_time(text).expect(text), micros, "{text}");
    }
    for (text, expected) in [
        ("25:00", "22008"),
        ("10:60", "22008"),
        ("10", "22007"),
        ("a:b", "22007"),
        ("24:00:01", "22008"),
    ] {
        assert_eq!(state(parse_time(text)), expected, "{text}");
    }
    assert_eq!(
        written(|out| write_time(out, 14_706_789_000)),
        "04:05:06.789"
    );
    assert_eq!(written(|out| write_time(out, 0)), "00:00:00");
}

#[test]
fn timestamps() {
    let base = 1_704_164_645_000_000;
    for (text, micros) in [
        ("2024-01-02 03:04:05", base),
        ("2024-01-02T03:04:05", base),
        ("2024-01-02 03:04:05.123456", base + 123_456),
        ("2024-01-02", base - 11_045_000_000),
        ("Jan 2 2024 03:04:05", base),
    ] {
        assert_eq!(parse_timestamp(text).expect(text), micros, "{text}");
        assert_eq!(parse_timestamptz(text).expect(text), micros, "{text}");
    }
    for (text, micros) in [
        ("2024-01-02 03:04:05+02", base - 7_200_000_000),
        ("2024-01-02 03:04:05 -03:30", base + 12_600_000_000),
        ("2024-01-02T03:04:05Z", base),
        ("2024-01-02 03:04:05 UTC", base),
    ] {
        assert_eq!(parse_timestamptz(text).expect(text), micros, "{text}");
        assert_eq!(
            parse_timestamp(text).expect(text),
            base,
            "{text}: a zone is ignored"
        );
    }
    for (text, expected) in [
        ("2024-01-02 03:04:05 Mars", "22007"),
        ("03:04:05", "22007"),
        ("2024-01-32 00:00", "22008"),
        ("nonsense", "22007"),
    ] {
        assert_eq!(state(parse_timestamp(text)), expected, "{text}");
    }
    assert_eq!(
        written(|out| write_timestamp(out, base)),
        "2024-01-02 03:04:05"
    );
    assert_eq!(
        written(|out| write_timestamp(out, -1)),
        "1969-12-31 23:59:59.999999"
    );
    assert_eq!(
        written(|out| write_timestamptz(out, base + 500_000)),
        "2024-01-02 03:04:05.5+00"
    );
}

#[test]
fn intervals() {
    for (text, shown) in [
        ("1 day", "1 day"),
        (
            "1 year 2 months 3 days 4 hours 5 minutes 6 seconds",
            "1 year 2 mons 3 days 04:05:06",
        ),
        ("1-2", "1 year 2 mons"),
        ("-1-2", "-1 years -2 mons"),
        ("3 4:05:06", "3 days 04:05:06"),
        ("1.5 days", "1 day 12:00:00"),
        ("1.5 months", "1 mon 15 days"),
        ("0.5 years", "6 mons"),
        ("2 weeks", "14 days"),
        ("1 day ago", "-1 days"),
        ("@ 1 minute 30 seconds", "00:01:30"),
        ("P1Y2M3DT4H5M6.5S", "1 year 2 mons 3 days 04:05:06.5"),
        ("PT36H", "36:00:00"),
        ("-1 days +02:03:00", "-1 days +02:03:00"),
        ("1 mon -1 day", "1 mon -1 days"),
        ("-00:00:01.5", "-00:00:01.5"),
        ("5", "00:00:05"),
        ("1day2hours", "1 day 02:00:00"),
        ("100 ms", "00:00:00.1"),
        ("0", "00:00:00"),
        ("1 century", "100 years"),
    ] {
        let parsed = parse_interval(text).expect(text);
        assert_eq!(written(|out| write_interval(out, parsed)), shown, "{text}");
        let again = parse_interval(shown).expect(shown);
        assert_eq!(parsed, again, "{shown} reads back");
    }
    for (text, expected) in [
        ("", "22007"),
        ("abc", "22007"),
        ("1 fortnight", "22007"),
        ("day", "22007"),
        ("1 day 2", "22007"),
        ("P", "22007"),
        ("P1H", "22007"),
        ("99999999999 years", "22008"),
    ] {
        let result = parse_interval(text);
        if text == "1 day 2" {
            assert_eq!(
                written(|out| write_interval(out, result.expect(text))),
                "1 day 00:00:02"
            );
            continue;
        }
        assert_eq!(state(result), expected, "{text}");
    }
}

#[test]
fn bytes() {
    assert_eq!(parse_bytea("\\xDEAD be").expect("hex"), [0xde, 0xad, 0xbe]);
    assert_eq!(
        parse_bytea("a\\\\b\\000").expect("escape"),
        [b'a', b'\\', b'b', 0]
    );
    for bad in ["\\xf", "\\xzz"] {
        assert_eq!(state(parse_bytea(bad)), "22023", "{bad}");
    }
    for bad in ["\\9", "\\", "\\400"] {
        assert_eq!(state(parse_bytea(bad)), "22P02", "{bad}");
    }
    assert_eq!(written(|out| write_bytea(out, &[0, 255])), "\\x00ff");
}

#[test]
fn uuids() {
    let plain = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    let bytes = parse_uuid(plain).expect("plain");
    assert_eq!(written(|out| write_uuid(out, &bytes)), plain);
    for same in [
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
        "a0eebc999c0b4ef8bb6d6bb9bd380a11",
    ] {
        assert_eq!(parse_uuid(same).expect(same), bytes, "{same}");
    }
    for bad in [
        "",
        "a0eebc99",
        "{a0eebc999c0b4ef8bb6d6bb9bd380a11",
        "a0eebc999c0b4ef8bb6d6bb9bd380a11-",
        "g0eebc999c0b4ef8bb6d6bb9bd380a11",
        "a0eebc999c0b4ef8bb6d6bb9bd380a1100",
    ] {
        assert_eq!(state(parse_uuid(bad)), "22P02", "{bad}");
    }
}

#[test]
fn json() {
    for good in ["1", "null", "{\"a\": [1, 2]}", " \"x\" "] {
        check_json(good).expect(good);
    }
    for bad in ["", "{", "{a:1}", "1 2", "'x'"] {
        assert_eq!(state(check_json(bad)), "22P02", "{bad}");
    }
}

#[test]
fn points_and_boxes() {
    let point = |text: &str| {
        let point = parse_point(text).expect(text);
        written(|out| write_point(out, point.coordinates()))
    };
    for (text, shown) in [
        ("(1,2)", "(1,2)"),
        (" ( 1 , -2.5 ) ", "(1,-2.5)"),
        ("1,2", "(1,2)"),
        ("(1e300,-0)", "(1e+300,-0)"),
        ("NaN,-inf", "(NaN,-Infinity)"),
    ] {
        assert_eq!(point(text), shown, "{text}");
        assert_eq!(point(shown), shown, "{shown} reads back");
    }
    for bad in [
        "", "1", "(1,2", "1,2)", "((1,2))", "1,2,3", "1 2", "(,2)", "[1,2]", "(1,2),",
    ] {
        assert_eq!(state(parse_point(bad)), "22P02", "{bad}");
    }
    assert_eq!(state(parse_point("1,1e999")), "22003");
    let message = parse_point("(1,x)")
        .expect_err("no number")
        .message()
        .to_string();
    assert_eq!(message, "invalid input syntax for type point: \"(1,x)\"");

    let corners = |text: &str| {
        let found = parse_box(text).expect(text);
        written(|out| write_box(out, found.high(), found.low()))
    };
    for text in [
        "((1,2),(3,4))",
        "(1,2),(3,4)",
        "(1,2)(3,4)",
        "(1,2,3,4)",
        "1,2,3,4",
        " ( ( 3 , 2 ) , ( 1 , 4 ) ) ",
        "((3,4),(1,2))",
        "1,2,(3,4)",
    ] {
        assert_eq!(corners(text), "(3,4),(1,2)", "{text}");
    }
    for bad in [
        "",
        "1,2",
        "1,2,3",
        "(1,2),(3,4",
        "((1,2),(3,4)",
        "(1,2,3,4),",
        "1,2,3,4,5",
    ] {
        assert_eq!(state(parse_box(bad)), "22P02", "{bad}");
    }
}

#[test]
fn every_coordinate_reads_back() {
    let mut rng = strandline_base::rng::Rng::new(1);
    for _ in 0..20_000 {
        let point = strandline_base::Point::from_words([rng.next_u64(), rng.next_u64()]);
        let coordinates = point.coordinates();
        let text = written(|out| write_point(out, coordinates));
        let back = parse_point(&text).expect(&text).coordinates();
        for (was, is) in coordinates.iter().zip(back) {
            let is_same = was.to_bits() == is.to_bits() || (was.is_nan() && is.is_nan());
            assert!(is_same, "{text}: {was:e} {is:e}");
        }
    }
}
