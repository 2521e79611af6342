use super::*;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{col, lit};
use strandline_base::{ColumnId, SqlType};
use strandline_engine::catalog::ColumnDef;

fn table() -> (TableDef, Statistics) {
    let column = |id, name: &str| ColumnDef::new(ColumnId(id), name, SqlType::Integer);
    let def = TableDef::new("public", "t", vec![column(0, "a"), column(1, "b")]);
    let known = ColumnStatistics {
        min_value: Precision::Inexact(ScalarValue::Int32(Some(0))),
        max_value: Precision::Inexact(ScalarValue::Int32(Some(100))),
        distinct_count: Precision::Inexact(50),
        null_count: Precision::Inexact(10),
        ..ColumnStatistics::new_unknown()
    };
    let statistics = Statistics {
        num_rows: Precision::Inexact(1000),
        total_byte_size: Precision::Inexact(8000),
        column_statistics: vec![known, ColumnStatistics::new_unknown()],
    };
    (def, statistics)
}

fn rows(filters: &[Expr]) -> usize {
    let (def, statistics) = table();
    let left = filtered(statistics, filters, &def);
    *left.num_rows.get_value().expect("an estimate")
}

#[test]
fn bounds_and_distinct_counts_are_used() {
    assert_eq!(rows(&[]), 1000);
    assert_eq!(rows(&[col("a").lt(lit(25i32))]), 250);
    assert_eq!(rows(&[col("a").gt(lit(25i32))]), 750);
    assert_eq!(rows(&[lit(25i32).gt(col("a"))]), 250);
    assert_eq!(rows(&[col("a").eq(lit(7i32))]), 20);
    assert_eq!(rows(&[col("a").between(lit(20i32), lit(30i32))]), 100);
    assert_eq!(rows(&[col("a").is_null()]), 10);
    assert_eq!(
        rows(&[col("a").in_list(vec![lit(1i32), lit(2i32)], false)]),
        40
    );
    assert_eq!(rows(&[col("a").lt(lit(50i32)), col("a").eq(lit(7i32))]), 10);
}

#[test]
fn guesses_stay_within_the_table() {
    for filter in [
        col("a").lt(lit(-5i32)),
        col("a").gt(lit(500i32)).or(col("b").eq(lit(1i32))),
        Expr::Not(Box::new(col("b").like(lit("x%")))),
        col("b").lt(lit(1i32)),
        Expr::Cast(datafusion::logical_expr::Cast::new(
            Box::new(col("b")),
            DataType::Int64,
        ))
        .eq(col("a")),
    ] {
        assert!(rows(std::slice::from_ref(&filter)) <= 1000, "{filter}");
    }
}
