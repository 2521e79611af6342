use super::*;
use datafusion::sql::sqlparser::ast::{SetExpr, TableFactor, TableVersion};

fn first_table(sql: &str) -> TableFactor {
    let Statement::Query(query) = statement(sql).expect(sql) else {
        panic!("{sql}")
    };
    let SetExpr::Select(select) = *query.body else {
        panic!("{sql}")
    };
    select.from[0].relation.clone()
}

#[test]
fn as_of_parses_with_alias_and_in_joins() {
    for sql in [
        "SELECT * FROM t FOR SYSTEM_TIME AS OF '2024-01-01'",
        "SELECT * FROM t FOR SYSTEM_TIME AS OF now() - interval '5 min' AS h WHERE h.a = 1",
        "SELECT * FROM t FOR SYSTEM_TIME AS OF $1 h JOIN u ON h.a = u.a",
        "select * from t for system_time as of timestamp '2024-01-01 00:00:00'",
    ] {
        let TableFactor::Table { version, .. } = first_table(sql) else {
            panic!("{sql}")
        };
        assert!(
            matches!(version, Some(TableVersion::ForSystemTimeAsOf(_))),
            "{sql}"
        );
    }
}

/// An expression with parentheses around every operation and nowhere else.
fn shape(expr: &Expr) -> String {
    match expr {
        Expr::Nested(inner) => shape(inner),
        Expr::BinaryOp { left, op, right } => format!("({} {op} {})", shape(left), shape(right)),
        Expr::UnaryOp { op, expr } => format!("({op} {})", shape(expr)),
        Expr::IsDistinctFrom(left, right) => format!("({} is not {})", shape(left), shape(right)),
        Expr::IsNotDistinctFrom(left, right) => format!("({} is {})", shape(left), shape(right)),
        other => other.to_string(),
    }
}

#[test]
fn is_distinct_from_binds_as_is_does() {
    for (written, meant) in [
        (
            "i IS NOT DISTINCT FROM 20 AND (b)",
            "(i IS NOT DISTINCT FROM 20) AND (b)",
        ),
        (
            "a OR i IS DISTINCT FROM 1 + 2 OR b",
            "a OR (i IS DISTINCT FROM (1 + 2)) OR b",
        ),
        ("i IS DISTINCT FROM j = k", "i IS DISTINCT FROM (j = k)"),
        (
            "NOT i IS DISTINCT FROM NULL",
            "NOT (i IS DISTINCT FROM NULL)",
        ),
    ] {
        let shape = |text: &str| shape(&expression(text).expect(text));
        assert_eq!(shape(written), shape(meant), "{written}");
    }
}

#[test]
fn words_of_the_versioned_dialect_stay_aliases() {
    for alias in ["at", "before", "changes"] {
        let TableFactor::Table {
            alias: Some(found), ..
        } = first_table(&format!("SELECT * FROM t {alias}"))
        else {
            panic!("{alias}")
        };
        assert_eq!(found.name.value, alias);
    }
}

#[test]
fn postgres_syntax_survives_the_versioned_dialect() {
    let sql = "SELECT E'a\\n', a::int, b -> 'x', $$q$$, x ~* 'y' \
               FROM t FOR SYSTEM_TIME AS OF now() ORDER BY 1 FOR UPDATE";
    assert!(statement(sql).is_ok(), "{:?}", statement(sql));
}

#[test]
fn scripts_split_at_top_level_semicolons() {
    let sql = "SELECT ';' ;\n/* ; /* ; */ */ SELECT \";\";; -- ;\nSELECT $$;$$ , 'ü;'; select 4 ";
    let pieces = split_script(sql).expect("splits");
    let texts: Vec<_> = pieces.iter().map(|p| p.sql).collect();
    assert_eq!(
        texts,
        [
            "SELECT ';'",
            "SELECT \";\"",
            "SELECT $$;$$ , 'ü;'",
            "select 4"
        ]
    );
    assert!(!pieces[3].terminated && pieces[2].terminated);
    for piece in &pieces {
        assert!(sql[piece.offset..].starts_with(piece.sql));
    }
    assert_eq!(split_script(" -- nothing\n ; ;").expect("splits"), []);
    assert!(split_script("SELECT 'open").is_err());
}

#[test]
fn syntax_errors_carry_state_and_place() {
    for sql in ["SELEC 1", "SELECT 1 FROM", "SELECT (1", "SELECT 1 2 3", ""] {
        let error = statement(sql).expect_err(sql);
        assert_eq!(error.sqlstate(), SqlState::SYNTAX_ERROR, "{sql}");
    }
    let error = statement("SELECT 1 FROM t WHERE").expect_err("no condition");
    assert_eq!(error.position(), Some(22), "{error}");
    assert!(statement("SELECT 1; SELECT 2").is_err());
}

#[test]
fn deep_nesting_is_an_error_not_a_crash() {
    let sql = format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000));
    assert!(statement(&sql).is_err());
}

#[test]
fn identity_options_come_in_any_order() {
    for options in [
        "START WITH 10 INCREMENT BY 5",
        "CYCLE CACHE 3 START 7 NO MAXVALUE MINVALUE 1 INCREMENT 2",
        "NO CYCLE START WITH -1 NO MINVALUE INCREMENT BY -1",
        "INCREMENT BY 5",
    ] {
        let sql = format!("CREATE TABLE t (a int GENERATED ALWAYS AS IDENTITY ( {options} ))");
        assert!(statement(&sql).is_ok(), "{options}: {:?}", statement(&sql));
    }
    assert!(statement("SELECT identity (start, increment) FROM t").is_ok());
}
