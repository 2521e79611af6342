use super::*;
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::Int32Type;
use strandline_base::SqlType;

fn options() -> CsvOptions {
    CsvOptions {
        header: false,
        delimiter: b',',
        null: String::new(),
        quote: b'"',
        escape: b'"',
        force_quote: vec![],
        force_not_null: vec![],
        force_null: vec![],
    }
}

fn columns() -> Vec<FileColumn> {
    vec![
        FileColumn {
            name: "a".into(),
            sql_type: SqlType::Integer,
        },
        FileColumn {
            name: "b".into(),
            sql_type: SqlType::Text,
        },
    ]
}

type Row = (Option<i32>, Option<String>);

fn parse(text: &str, options: CsvOptions) -> Result<Vec<Row>> {
    let parser = CsvParser::new(Path::new("f.csv"), options, columns())?;
    let (rows, columns) = parser.parse(&Block {
        text: text.into(),
        first_line: 1,
        end: text.len() as u64,
    })?;
    let (a, b) = (
        columns[0].as_primitive::<Int32Type>(),
        columns[1].as_string_view(),
    );
    assert_eq!((a.len(), b.len()), (rows, rows));
    Ok(a.iter()
        .zip(b.iter())
        .map(|(a, b)| (a, b.map(String::from)))
        .collect())
}

fn row(a: impl Into<Option<i32>>, b: impl Into<Option<&'static str>>) -> Row {
    (a.into(), b.into().map(String::from))
}

#[test]
fn nulls_are_unquoted_and_empty_texts_quoted() {
    let rows = parse("1,\n2,\"\"\n,x\n", options()).unwrap();
    assert_eq!(rows, [row(1, None), row(2, ""), row(None, "x")]);
}

#[test]
fn quotes_hide_delimiters_line_ends_and_quotes() {
    let rows = parse(
        "1,\"a,b\nc\"\"d\"\"\"\n\"2\",e\"f,g\"h\n3,\"\"\"\"",
        options(),
    )
    .unwrap();
    assert_eq!(rows, [row(1, "a,b\nc\"d\""), row(2, "ef,gh"), row(3, "\"")]);
}

#[test]
fn an_escape_of_its_own_hides_quotes_only_inside_quotes() {
    let options = CsvOptions {
        escape: b'\\',
        ..options()
    };
    let rows = parse("1,\"a\\\"b\\\\c\\d\"\n2,x\\y\n", options).unwrap();
    assert_eq!(rows, [row(1, "a\"b\\c\\d"), row(2, "x\\y")]);
}

#[test]
fn line_ends_of_both_kinds_and_none_at_the_end() {
    assert_eq!(
        parse("1,a\r\n2,b", options()).unwrap(),
        [row(1, "a"), row(2, "b")]
    );
    assert_eq!(
        parse("1,a\n2,\"b\"\r\n", options()).unwrap(),
        [row(1, "a"), row(2, "b")]
    );
    let bare = parse("1,a\r2,b\n", options()).unwrap_err();
    assert!(
        bare.message().contains("unquoted carriage return"),
        "{bare}"
    );
}

#[test]
fn header_null_text_and_delimiter() {
    let with = CsvOptions {
        header: true,
        delimiter: b';',
        null: "NA".into(),
        ..options()
    };
    let rows = parse("\"x\n\";y\n1;NA\nNA;\"NA\"\n3;\n", with).unwrap();
    assert_eq!(rows, [row(1, None), row(None, "NA"), row(3, "")]);
}

#[test]
fn forced_rules_of_null() {
    let never = CsvOptions {
        force_not_null: vec!["b".into()],
        ..options()
    };
    assert_eq!(parse("1,\n", never).unwrap(), [row(1, "")]);
    let always = CsvOptions {
        force_null: vec!["b".into()],
        ..options()
    };
    assert_eq!(parse("1,\"\"\n", always).unwrap(), [row(1, None)]);
    assert!(
        parse(
            "",
            CsvOptions {
                force_null: vec!["z".into()],
                ..options()
            }
        )
        .is_err()
    );
}

#[test]
fn errors_name_file_line_and_column() {
    for (text, message) in [
        (
            "1,a\nx,b\n",
            "f.csv, line 2, column a: invalid input syntax for type integer: \"x\"",
        ),
        (
            "1,\"a\n\"\n2\n",
            "f.csv, line 3: missing data for column \"b\"",
        ),
        (
            "1,a,b\n",
            "f.csv, line 1: extra data after last expected column",
        ),
        ("\n", "f.csv, line 1: missing data for column \"b\""),
        ("1,\"a\n", "f.csv, line 1: unterminated CSV quoted field"),
        (
            "99999999999,a\n",
            "f.csv, line 1, column a: value \"99999999999\" is out of range",
        ),
    ] {
        let e = parse(text, options()).unwrap_err();
        assert!(e.message().starts_with(message), "{text:?}: {e}");
    }
}

#[test]
fn random_rows_round_trip() {
    let seed = 0x5eed_u64;
    let mut state = seed;
    let mut random = |n: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let alphabet = ['a', ',', '"', '\n', '\r', ' ', 'ä', '\\', ';'];
    for _ in 0..500 {
        let rows: Vec<Row> = (0..random(5))
            .map(|_| {
                let text: String = (0..random(6))
                    .map(|_| alphabet[random(alphabet.len() as u64) as usize])
                    .collect();
                (
                    (random(3) > 0).then(|| random(1000) as i32),
                    (random(4) > 0).then_some(text),
                )
            })
            .collect();
        let mut csv = String::new();
        for (a, b) in &rows {
            csv += &a.map_or(String::new(), |a| a.to_string());
            csv.push(',');
            if let Some(b) = b {
                csv += &format!("\"{}\"", b.replace('"', "\"\""));
            }
            csv.push('\n');
        }
        assert_eq!(
            parse(&csv, options()).unwrap(),
            rows,
            "seed {seed:#x}: {csv:?}"
        );
    }
}
