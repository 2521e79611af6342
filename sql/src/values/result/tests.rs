use super::*;
use datafusion::arrow::array::{Decimal128Array, Int64Array, StringArray};
use std::sync::Arc;

fn result() -> QueryResult {
    let batch = RecordBatch::try_from_iter([
        (
            "n",
            Arc::new(Int64Array::from(vec![Some(1), None, Some(i64::MAX)])) as ArrayRef,
        ),
        (
            "s",
            Arc::new(StringArray::from(vec!["a", "", "é"])) as ArrayRef,
        ),
        (
            "d",
            Arc::new(
                Decimal128Array::from(vec![Some(150), Some(200), None])
                    .with_precision_and_scale(10, 2)
                    .expect("fits"),
            ) as ArrayRef,
        ),
    ])
    .expect("batch");
    QueryResult::new(
        batch.schema(),
        vec![batch.slice(0, 1), batch.slice(1, 0), batch.slice(1, 2)],
    )
}

#[test]
fn rows_cross_batches_and_read_by_position_and_name() {
    let result = result();
    assert_eq!(result.row_count(), 3);
    let rows: Vec<_> = result.rows().collect();
    assert_eq!(rows[0].get::<i64>(0).expect("1"), 1);
    assert_eq!(rows[0].get::<i32>("n").expect("1"), 1);
    assert_eq!(rows[1].get::<Option<i64>>("n").expect("null"), None);
    assert_eq!(rows[2].get::<String>("s").expect("é"), "é");
    assert_eq!(rows[0].get::<f64>("d").expect("1.5"), 1.5);
    assert_eq!(rows[1].get::<i64>("d").expect("2"), 2);
    assert_eq!(rows[0].text("d").expect("text").as_deref(), Some("1.50"));
    assert_eq!(result.to_batch().expect("one").num_rows(), 3);
}

#[test]
fn values_that_do_not_fit_are_errors() {
    let result = result();
    let rows: Vec<_> = result.rows().collect();
    assert!(
        rows[1]
            .get::<i64>("n")
            .expect_err("null")
            .message()
            .contains("Option")
    );
    assert!(rows[2].get::<i32>("n").is_err());
    assert!(rows[0].get::<i64>("d").is_err());
    assert!(rows[0].get::<bool>("s").is_err());
    assert_eq!(
        rows[0].get::<i64>(9).expect_err("9").sqlstate(),
        SqlState::UNDEFINED_COLUMN
    );
    assert!(rows[0].get::<i64>("x").is_err());
    assert!(result.single::<i64>().is_err());
}
