use super::bounds::collect;
use super::*;
use crate::planning::provider::table_schema::arrow_schema;
use datafusion::logical_expr::{col, lit};
use strandline_base::{SqlType, Value};
use strandline_engine::CompareOp;
use strandline_engine::catalog::ColumnDef;

fn table() -> TableDef {
    let types = [
        ("i", SqlType::Integer),
        ("b", SqlType::BigInt),
        (
            "n",
            SqlType::Numeric {
                precision: 15,
                scale: 2,
            },
        ),
        ("d", SqlType::Date),
        ("ts", SqlType::Timestamp),
        ("tz", SqlType::TimestampTz),
        ("s", SqlType::Text),
        ("c", SqlType::Char(5)),
        ("ok", SqlType::Boolean),
    ];
    let columns = types.into_iter().enumerate();
    let columns =
        columns.map(|(i, (name, sql_type))| ColumnDef::new(ColumnId(i as u32), name, sql_type));
    TableDef::new("public", "t", columns.collect())
}

fn bounds_of(expr: Expr) -> Vec<(u32, CompareOp, Value)> {
    let mut bounds = Vec::new();
    collect(&expr, &table(), &mut bounds);
    bounds
        .into_iter()
        .map(|b| (b.column.0, b.op, b.value))
        .collect()
}

fn decimal(value: i128, scale: i8) -> Expr {
    lit(ScalarValue::Decimal128(Some(value), 38, scale))
}

#[test]
fn comparisons_become_bounds() {
    use CompareOp::*;
    assert_eq!(
        bounds_of(col("i").gt(lit(5i32))),
        [(0, Gt, Value::Integer(5))]
    );
    assert_eq!(
        bounds_of(lit(5i64).gt(col("b"))),
        [(1, Lt, Value::BigInt(5))]
    );
    assert_eq!(
        bounds_of(col("s").eq(lit("x"))),
        [(6, Eq, Value::Text("x".into()))]
    );
    // char(n) compares by bytes, like text: analysis pads the literals.
    assert_eq!(
        bounds_of(col("c").eq(lit("x  "))),
        [(7, Eq, Value::Text("x  ".into()))]
    );
    assert_eq!(bounds_of(col("ok")), [(8, Eq, Value::Boolean(true))]);
    let between = col("d").between(
        lit(ScalarValue::Date32(Some(3))),
        lit(ScalarValue::Date32(Some(9))),
    );
    assert_eq!(
        bounds_of(between),
        [(3, Ge, Value::Date(3)), (3, Le, Value::Date(9))]
    );
    let list = col("i").in_list(
        vec![lit(7i32), lit(ScalarValue::Int32(None)), lit(3i32)],
        false,
    );
    assert_eq!(
        bounds_of(list),
        [(0, Ge, Value::Integer(3)), (0, Le, Value::Integer(7))]
    );
    let both = col("i").gt(lit(1i32)).and(col("b").lt(lit(2i64)));
    assert_eq!(bounds_of(both).len(), 2);
}

#[test]
fn constants_between_two_stored_values_round_outward() {
    use CompareOp::*;
    // 1.005 lies between 1.00 and 1.01
    assert_eq!(
        bounds_of(col("n").gt(decimal(1005, 3))),
        [(2, Gt, Value::Numeric(100))]
    );
    assert_eq!(
        bounds_of(col("n").gt_eq(decimal(1005, 3))),
        [(2, Ge, Value::Numeric(101))]
    );
    assert_eq!(
        bounds_of(col("n").lt(decimal(1005, 3))),
        [(2, Lt, Value::Numeric(101))]
    );
    assert_eq!(
        bounds_of(col("n").lt_eq(decimal(-1005, 3))),
        [(2, Le, Value::Numeric(-101))]
    );
    assert_eq!(bounds_of(col("n").eq(decimal(1005, 3))), []);
    assert_eq!(
        bounds_of(col("n").eq(decimal(1010, 3))),
        [(2, Eq, Value::Numeric(101))]
    );
    assert_eq!(
        bounds_of(col("i").lt(decimal(-15, 1))),
        [(0, Lt, Value::Integer(-1))]
    );
    let ns = lit(ScalarValue::TimestampNanosecond(Some(1_500), None));
    assert_eq!(bounds_of(col("ts").gt(ns)), [(4, Gt, Value::Timestamp(1))]);
    let noon = lit(ScalarValue::TimestampMicrosecond(
        Some(43_200_000_000),
        None,
    ));
    assert_eq!(bounds_of(col("d").gt_eq(noon)), [(3, Ge, Value::Date(1))]);
}

#[test]
fn what_does_not_compare_gives_no_bound() {
    let unzoned = lit(ScalarValue::TimestampMicrosecond(Some(1), None));
    for expr in [
        col("i").not_eq(lit(5i32)),
        col("i").gt(lit(ScalarValue::Int32(None))),
        col("i").gt(lit(f64::NAN)),
        col("i").gt(lit(i64::MAX)),
        col("tz").gt(unzoned),
        col("i").gt(lit(1i32)).or(col("b").gt(lit(1i64))),
        Expr::Not(Box::new(col("i").gt(lit(1i32)))),
        col("s").like(lit("%x")),
        col("n").gt(decimal(i128::MAX, 0)),
    ] {
        assert_eq!(bounds_of(expr.clone()), [], "{expr}");
    }
}

#[test]
fn prefixes_become_ranges() {
    use CompareOp::*;
    let text = |s: &str| Value::Text(s.into());
    assert_eq!(
        bounds_of(col("s").like(lit("ab%"))),
        [(6, Ge, text("ab")), (6, Lt, text("ac"))]
    );
    assert_eq!(
        bounds_of(col("s").like(lit("é_"))),
        [(6, Ge, text("é")), (6, Lt, text("ê"))]
    );
    assert_eq!(bounds_of(col("s").ilike(lit("ab%"))), []);
}

#[test]
fn only_conditions_that_cannot_fail_are_pushed() {
    let def = table();
    let schema = arrow_schema(&def);
    let pushed = |expr: Expr| is_pushable(&expr, &def, &schema);
    let cast =
        |e: Expr, t: DataType| Expr::Cast(datafusion::logical_expr::Cast::new(Box::new(e), t));
    assert!(pushed(col("i").gt(lit(5i32)).and(col("s").like(lit("a%")))));
    assert!(pushed(cast(col("i"), DataType::Int64).gt(col("b"))));
    assert!(pushed(
        cast(col("n"), DataType::Decimal128(20, 3)).gt(decimal(1, 3))
    ));
    assert!(!pushed(cast(col("b"), DataType::Int32).gt(lit(5i32))));
    assert!(!pushed(cast(col("s"), DataType::Int64).gt(lit(5i64))));
    assert!(!pushed((col("i") / lit(0i32)).gt(lit(5i32))));
    assert!(!pushed((col("i") + lit(1i32)).gt(lit(5i32))));
    assert!(!pushed(col("_rowid").gt(lit(5u64))));
}
