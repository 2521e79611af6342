use super::*;
use datafusion::execution::session_state::SessionStateBuilder;
use strandline_base::SqlType;
use strandline_engine::catalog::index::{IndexMethod, IndexState};
use strandline_semantics as semantics;

fn state() -> SessionState {
    let builder = SessionStateBuilder::new().with_config(semantics::session_config());
    semantics::configure(builder).build()
}

fn table(indexes: Vec<IndexDef>) -> Arc<TableDef> {
    let numeric = SqlType::Numeric {
        precision: 9,
        scale: 2,
    };
    let types = [
        ("a", SqlType::Integer),
        ("n", numeric),
        ("s", SqlType::Text),
        ("c", SqlType::Char(4)),
        ("f", SqlType::Double),
        ("j", SqlType::Json),
        ("d", SqlType::Timestamp),
    ];
    let columns = types.iter().enumerate();
    let columns =
        columns.map(|(i, (name, sql_type))| ColumnDef::new(ColumnId(i as u32), *name, *sql_type));
    Arc::new(TableDef {
        indexes: indexes.into_iter().map(Arc::new).collect(),
        next_index: 1,
        ..TableDef::new("public", "t", columns.collect())
    })
}

fn index(sql: &str) -> IndexDef {
    let expression = IndexExpression {
        sql: sql.into(),
        columns: vec![ColumnId(2)],
        sql_type: SqlType::Text,
    };
    IndexDef {
        id: IndexId(0),
        name: "t_idx".into(),
        method: IndexMethod::Ordered,
        parts: vec![IndexPart {
            value: IndexValue::Expression(expression),
            descending: false,
            nulls_first: false,
            operator_class: None,
        }],
        include: Vec::new(),
        unique: false,
        nulls_not_distinct: false,
        predicate: None,
        state: IndexState::Valid,
        complete_since: strandline_base::CommitTs::ZERO,
        options: Default::default(),
        comment: None,
        storage: Default::default(),
        stays_in_memory: false,
        was_moved: false,
        file_number: None,
    }
}

fn canonical(sql: &str) -> Expr {
    let schema = Arc::new(condition_schema(&table(Vec::new())).expect("a schema"));
    let parsed = parse::expression(sql).expect("an expression");
    let role = Role::Value;
    bare(&analyzed(parsed, role, &schema, &state()).unwrap_or_else(|e| panic!("{sql}: {e}")))
}

#[test]
fn spelling_and_constants_do_not_matter() {
    for (one, other) in [
        ("lower(s)", "LOWER( (t.\"s\") )"),
        ("a + 2", "t.a + (1 + 1)"),
        ("s || 'x'", "(s) || ('x')"),
        ("d::date", "CAST(t.d AS date)"),
        ("a IS NOT NULL", "t.a is not null"),
    ] {
        assert_eq!(canonical(one), canonical(other), "{one} and {other}");
    }
}

#[test]
fn what_may_have_another_value_is_another_expression() {
    for (one, other) in [
        ("lower(s)", "upper(s)"),
        ("lower(s)", "lower(s::varchar(2))"),
        ("s::varchar(2)", "s::varchar(3)"),
        ("s::char(2)", "s::varchar(2)"),
        ("c || s", "c::char(2) || s"),
        ("n::int", "n::bigint"),
        ("n::numeric(5,1)", "n::numeric(5,2)"),
        ("a - 1", "1 - a"),
        ("a / 2", "a / 2.0"),
        ("a / 2", "a / 2::double precision"),
        ("s < 'b'", "s <= 'b'"),
        ("j ->> 'k'", "j ->> 'l'"),
        ("j ->> 'k'", "j -> 'k'"),
        ("coalesce(s, 'x')", "coalesce('x', s)"),
        ("d::date", "d::time"),
        ("f * 'NaN'::double precision", "f * '1'::double precision"),
        ("a IN (1, 2)", "a NOT IN (1, 2)"),
        ("s LIKE 'a%'", "s ILIKE 'a%'"),
        ("s LIKE 'a!%' ESCAPE '!'", "s LIKE 'a!%'"),
        ("a BETWEEN 1 AND 2", "a NOT BETWEEN 1 AND 2"),
    ] {
        assert_ne!(canonical(one), canonical(other), "{one} and {other}");
    }
}

#[test]
fn expressions_are_planned_once_for_each_definition() {
    let (kept, state) = (KeptTerms::default(), state());
    let first = table(vec![index("lower(s)")]);
    let terms = kept.of(&first, &state).expect("terms");
    assert!(Arc::ptr_eq(&terms, &kept.of(&first, &state).expect("kept")));
    let second = table(vec![index("upper(s)")]);
    let other = kept.of(&second, &state).expect("terms");
    let part = &second.indexes[0].parts[0];
    assert!(other.id_of(part).is_some() && terms.id_of(part).is_none());
    // Nothing is planned for a table without expressions.
    let plain = table(Vec::new());
    let terms = Terms::of(&plain, std::iter::empty(), &state).expect("terms");
    assert!(terms.expressions.is_empty() && Arc::ptr_eq(&terms.columns, &plain));
}

/// A statement's functions have its options, such as the number of its partitions.
#[test]
fn kept_evaluators_are_found_by_statements_with_other_options() {
    let (kept, first) = (KeptTerms::default(), state());
    let table = table(vec![index("lower(s || 'x')")]);
    kept.of(&table, &first).expect("terms");
    let mut second = state();
    let options = second.config_mut().options_mut();
    options.execution.target_partitions += 1;
    let options = Arc::clone(second.config().options());
    second.execution_props_mut().config_options = Some(options);
    let terms = kept.of(&table, &second).expect("kept");
    let schema = Arc::new(condition_schema(&table).expect("a schema"));
    let found = |sql: &str, state: &SessionState| {
        let parsed = parse::expression(sql).expect("an expression");
        let planned = analyzed(parsed, Role::Value, &schema, state).expect("planned");
        let evaluator = physical(&planned, &schema, state).expect("an evaluator");
        terms.computed_by(&evaluator, schema.as_arrow())
    };
    for state in [&first, &second] {
        let part = &table.indexes[0].parts[0];
        assert_eq!(found("lower(s || 'x')", state), terms.id_of(part));
        assert_eq!(found("lower(s || 'y')", state), None);
    }
}
