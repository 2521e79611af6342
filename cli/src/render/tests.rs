use super::*;
use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use std::sync::Arc;

struct Rows(SchemaRef, Vec<RecordBatch>);

impl Batches for Rows {
    fn schema(&self) -> SchemaRef {
        self.0.clone()
    }
    fn next_batch(&mut self) -> EngineResult<Option<RecordBatch>> {
        Ok((!self.1.is_empty()).then(|| self.1.remove(0)))
    }
}

fn sample() -> Rows {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("name", DataType::Utf8, true),
    ]));
    let batch = |ids: Vec<Option<i64>>, names: Vec<Option<&str>>| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(ids)),
            Arc::new(StringArray::from(names)),
        ];
        RecordBatch::try_new(schema.clone(), columns).expect("a batch")
    };
    let batches = vec![
        batch(vec![Some(1), Some(20)], vec![Some("ä|b"), None]),
        batch(vec![], vec![]),
        batch(vec![None], vec![Some("two\nlines, \"q\"")]),
    ];
    Rows(schema.clone(), batches)
}

fn printed(mut rows: Rows, style: &Style) -> String {
    let mut out = Vec::new();
    print(&mut rows, style, &mut out).expect("no error");
    String::from_utf8(out).expect("UTF-8")
}

fn style(format: Format) -> Style {
    Style {
        format,
        ..Style::table()
    }
}

#[test]
fn aligned() {
    let expected = concat!(
        " id |    name\n",
        "----+------------\n",
        "  1 | ä|b\n",
        " 20 | ∅\n",
        "  ∅ | two       +\n",
        "    | lines, \"q\"\n",
        "(3 rows)\n\n",
    );
    let style = Style {
        null: "∅".into(),
        ..Style::table()
    };
    assert_eq!(printed(sample(), &style), expected);
    let bare = Style {
        header: false,
        row_count: false,
        ..Style::table()
    };
    assert_eq!(printed(sample(), &bare).lines().next(), Some("  1 | ä|b"));
}

#[test]
fn expanded_blocks() {
    let style = Style {
        expanded: Expanded::On,
        ..Style::table()
    };
    let text = printed(sample(), &style);
    let expected = "\
-[ RECORD 1 ]---------------------------
id   | 1
name | ä|b
-[ RECORD 2 ]---------------------------
id   | 20
name |
-[ RECORD 3 ]---------------------------
id   |
name | two
     | lines, \"q\"

";
    assert_eq!(text, expected);
}

#[test]
fn csv_keeps_null_and_empty_apart() {
    let expected = "id,name\n1,ä|b\n20,\n,\"two\nlines, \"\"q\"\"\"\n";
    assert_eq!(printed(sample(), &style(Format::Csv)), expected);
    let empty = text::TextBatches::new(&["a"], &[], &[vec![String::new()]]);
    let mut out = Vec::new();
    let mut empty = empty;
    print(&mut empty, &style(Format::Csv), &mut out).expect("no error");
    assert_eq!(out, b"a\n\"\"\n");
}

#[test]
fn json_is_json() {
    let text = printed(sample(), &style(Format::Json));
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value[0]["id"], 1);
    assert_eq!(value[1]["name"], serde_json::Value::Null);
    assert_eq!(value[2]["name"], "two\nlines, \"q\"");
    assert_eq!(value.as_array().map(Vec::len), Some(3));
    let lines = printed(sample(), &style(Format::Jsonlines));
    assert_eq!(lines.lines().count(), 3);
    assert_eq!(
        printed(Rows(sample().0, vec![]), &style(Format::Json)),
        "[]\n"
    );
}

#[test]
fn json_names_are_distinct() {
    let mut rows = text::TextBatches::new(
        &["a", "a", "a_2"],
        &[],
        &[vec!["1".into(), "2".into(), "3".into()]],
    );
    let mut out = Vec::new();
    print(&mut rows, &style(Format::Jsonlines), &mut out).expect("no error");
    assert_eq!(out, b"{\"a\":\"1\",\"a_2\":\"2\",\"a_2_2\":\"3\"}\n");
}

#[test]
fn markdown_table() {
    let expected = "\
| id | name |
| ---: | --- |
| 1 | ä\\|b |
| 20 |  |
|  | two<br>lines, \"q\" |

";
    assert_eq!(printed(sample(), &style(Format::Markdown)), expected);
}

#[test]
fn narrow_terminals_shorten_text_and_then_expand() {
    let long = "x".repeat(200);
    let rows = |n: usize| {
        let names: Vec<String> = (0..n).map(|i| format!("column{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        text::TextBatches::new(&names, &[true], &[vec![long.clone(); n]])
    };
    let narrow = Style {
        width: Some(80),
        expanded: Expanded::Auto,
        ..Style::table()
    };
    let mut out = Vec::new();
    let two_texts = text::TextBatches::new(&["a", "b"], &[], &[vec![long.clone(), "short".into()]]);
    let mut two_texts = two_texts;
    print(&mut two_texts, &narrow, &mut out).expect("no error");
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.lines().all(|line| display_width(line) <= 80), "{text}");
    assert!(
        text.contains("x… | short") && text.contains("1 column shortened"),
        "{text}"
    );
    let mut out = Vec::new();
    print(&mut rows(20), &narrow, &mut out).expect("no error");
    assert!(
        String::from_utf8(out)
            .expect("UTF-8")
            .starts_with("-[ RECORD 1 ]")
    );
}

#[test]
fn wide_characters_count_twice_and_controls_are_escaped() {
    assert_eq!(fit("日本語", 6), "日本語");
    assert_eq!(fit("日本語", 5), "日本…");
    assert_eq!(fit("abc", 2), "a…");
    assert_eq!(printable("a\x1b[31m\tb\n"), "a\\x1B[31m\\tb\n");
}

#[test]
fn later_pages_are_printed_too() {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let batch = |from: i64| {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + 7_000));
        RecordBatch::try_new(schema.clone(), vec![numbers]).expect("a batch")
    };
    let rows = Rows(schema.clone(), vec![batch(0), batch(7_000), batch(14_000)]);
    let text = printed(rows, &Style::table());
    assert_eq!(text.lines().count(), 21_000 + 4);
    assert!(
        text.contains("\n 20999\n(21000 rows)\n"),
        "the end of {}",
        text.len()
    );
}
