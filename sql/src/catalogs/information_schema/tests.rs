use super::*;

#[test]
fn every_listed_table_exists_and_is_rectangular() {
    let catalog = Catalog::initial();
    for name in TABLES {
        let table = table(INFORMATION_SCHEMA, name, &catalog, &ViewColumns::new()).expect(name);
        assert!(table.is_some(), "{name}");
    }
    assert!(
        table(INFORMATION_SCHEMA, "no_such", &catalog, &ViewColumns::new())
            .expect("none")
            .is_none()
    );
    let elsewhere = table("public", "tables", &catalog, &ViewColumns::new());
    assert!(elsewhere.expect("none").is_none());
}

#[test]
fn numbers_are_integers() {
    let mut rows = Rows::new(&["ordinal_position", "column_name"]);
    rows.push(vec![text("7"), text("a")]);
    rows.push(vec![None, None]);
    let batch = rows.into_batch().expect("batch");
    assert_eq!(batch.schema().field(0).data_type(), &DataType::Int32);
    assert_eq!((batch.num_rows(), batch.column(0).null_count()), (2, 1));
}
