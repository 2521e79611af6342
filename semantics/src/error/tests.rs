use super::*;

#[test]
fn our_errors_pass_through_plans_unchanged() {
    let ours = Error::invalid(SqlState::CHECK_VIOLATION, "m")
        .with_detail("d")
        .with_hint("h");
    for wrapped in [
        raise(ours.clone()),
        DataFusionError::Context("while".into(), Box::new(raise(ours.clone()))),
        DataFusionError::Shared(std::sync::Arc::new(raise(ours.clone()))),
        DataFusionError::ArrowError(
            Box::new(ArrowError::ExternalError(Box::new(raise(ours.clone())))),
            None,
        ),
    ] {
        let back = convert(wrapped);
        assert_eq!(back.sqlstate(), SqlState::CHECK_VIOLATION);
        assert_eq!(
            (back.message(), back.detail(), back.hint()),
            ("m", Some("d"), Some("h"))
        );
    }
}

#[test]
fn arithmetic_errors_have_postgres_states() {
    let division = convert(DataFusionError::ArrowError(
        Box::new(ArrowError::DivideByZero),
        None,
    ));
    assert_eq!(division.sqlstate(), SqlState::DIVISION_BY_ZERO);
    assert_eq!(division.message(), "division by zero");
    let overflow = ArrowError::ArithmeticOverflow("Overflow happened on: 1 + 2".into());
    let overflow = convert(DataFusionError::ArrowError(Box::new(overflow), None));
    assert_eq!(overflow.sqlstate(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
}

#[test]
fn bad_casts_name_type_and_value() {
    let text = "Cannot cast string 'abc' to value of Int64 type";
    let error = from_arrow(&ArrowError::CastError(text.into()));
    assert_eq!(
        error.message(),
        "invalid input syntax for type bigint: \"abc\""
    );
    assert_eq!(error.sqlstate(), SqlState::INVALID_TEXT_REPRESENTATION);
}

#[test]
fn jargon_is_stripped() {
    let text = "Execution error: External error: odd value\n\nbacktrace:   0: main";
    let error = convert(DataFusionError::Execution(text.into()));
    assert_eq!(error.message(), "odd value");
    let missing = convert(DataFusionError::Plan(
        "table 'strandline.public.x' not found".into(),
    ));
    assert_eq!(missing.message(), "relation \"x\" does not exist");
    assert_eq!(missing.sqlstate(), SqlState::UNDEFINED_TABLE);
}
