use super::*;

fn marked(sql: &str) -> Vec<String> {
    let mut query = crate::parse::query(sql).expect(sql);
    Survey::of(&mut query).expect(sql);
    row_id::mark(&mut query).expect(sql);
    let found = Collector::default().run(&mut query);
    found
        .into_iter()
        .filter(|r| r.row_id)
        .map(|r| r.name.to_string())
        .collect()
}

#[test]
fn row_ids_mark_the_tables_they_name() {
    let none: [&str; 0] = [];
    assert_eq!(marked("SELECT a FROM t"), none);
    assert_eq!(marked("SELECT _rowid FROM t"), ["t"]);
    assert_eq!(
        marked("SELECT t._rowid, u.x FROM t JOIN u ON t.a = u.a"),
        ["t"]
    );
    assert_eq!(marked("SELECT q._ROWID FROM s.t AS q, u"), ["s.t"]);
    assert_eq!(marked("SELECT a FROM t ORDER BY _rowid"), ["t"]);
    assert_eq!(
        marked("WITH c AS (SELECT 1 AS a) SELECT t._rowid FROM t, c"),
        ["t"]
    );
    assert_eq!(marked("SELECT \"_ROWID\" FROM t"), none);
}

#[test]
fn wildcards_never_show_row_ids() {
    let mut query = crate::parse::query("SELECT *, _rowid FROM t").expect("parses");
    row_id::mark(&mut query).expect("marks");
    assert!(query.to_string().contains("EXCLUDE"), "{query}");
    let mut two = crate::parse::query("SELECT *, t._rowid, u._rowid FROM t, u").expect("parses");
    assert!(row_id::mark(&mut two).is_err());
}

#[test]
fn table_oids_come_from_subqueries_of_the_tables_they_name() {
    let expanded = |sql: &str| {
        let mut query = crate::parse::query(sql).expect(sql);
        table_oid::expand(&mut query).expect(sql);
        query.to_string()
    };
    for unchanged in [
        "SELECT a FROM t",
        "SELECT \"TABLEOID\" FROM t",
        "WITH c AS (SELECT 1 AS tableoid) SELECT c.tableoid FROM c",
        "SELECT a.tableoid FROM t AS a (x, tableoid)",
    ] {
        assert_eq!(expanded(unchanged), unchanged);
    }
    assert_eq!(
        expanded("SELECT u.*, q.tableoid FROM \"s'\".t AS q LEFT JOIN u ON q.a = u.a"),
        "SELECT u.*, q.tableoid FROM (SELECT *, '\"s''\".t'::REGCLASS::oid AS tableoid \
         FROM \"s'\".t) AS q LEFT JOIN u ON q.a = u.a"
    );
    assert!(expanded("SELECT *, tableoid FROM t").contains("EXCLUDE"));
}

#[test]
fn clauses_that_would_be_ignored_are_refused() {
    for sql in [
        "SELECT * FROM t FOR UPDATE",
        "SELECT * FROM (SELECT * FROM t FOR SHARE) s",
        "SELECT * FROM t TABLESAMPLE BERNOULLI (10)",
        "SELECT a INTO u FROM t",
        "SELECT * FROM t FETCH FIRST 3 ROWS WITH TIES",
    ] {
        let mut query = crate::parse::query(sql).expect(sql);
        let error = Survey::of(&mut query).err().expect(sql);
        assert_eq!(error.sqlstate(), SqlState::FEATURE_NOT_SUPPORTED, "{sql}");
    }
}

#[test]
fn files_are_told_by_their_quotes() {
    let mut query = crate::parse::query("SELECT * FROM 'a b.parquet', \"c.csv\"").expect("parses");
    let found = Collector::default().run(&mut query);
    assert_eq!(found.len(), 1);
    assert_eq!(file_path(&found[0].name), Some("a b.parquet"));
    assert_eq!(default_alias(&found[0].name).value, "a b");
}
