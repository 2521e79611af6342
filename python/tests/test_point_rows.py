"""A row found by its key and the same row found by a query are the same Python objects."""

import datetime as dt
from decimal import Decimal

import pytest
from test_types import VALUES

import strandline

POINT = "SELECT v, id, v AS again FROM t WHERE id = ?"
QUERY = "SELECT v, id, v AS again FROM t WHERE id + 0 = ?"

MORE = [
    ("smallint", 0),
    ("integer", -(2**31)),
    ("real", -0.0),
    ("real", 3.25e38),
    ("real", float("-inf")),
    ("double precision", 5e-324),
    ("numeric(5,0)", Decimal(-99999)),
    ("numeric(18,18)", Decimal("-0.000000000000000001")),
    ("numeric(19,4)", Decimal("0.0000")),
    ("numeric(38,38)", Decimal("0." + 38 * "9")),
    ("char(5)", "ab   "),
    ("varchar(3)", "äöü"),
    ("text", "\x01\x7f\n"),
    ("bytea", bytes(range(256))),
    ("date", dt.date(1969, 12, 31)),
    ("time", dt.time(0)),
    ("timestamp", dt.datetime(1, 1, 1)),
    ("timestamptz", dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.timezone.utc)),
    ("interval", dt.timedelta(microseconds=-1)),
    ("interval", strandline.Interval(-1, 0, 0)),
    ("json", [1, "x", None, True, {"a": 1e3}]),
    ("json", "text"),
    ("boolean", None),
]


def point_statements(con):
    """How many statements have run on one row by its key."""
    sql = "SELECT value FROM strandline_stats() WHERE name = 'statements_point'"
    return con.execute(sql).fetchone()[0]


def fill(con, sql_type, value):
    con.execute(f"CREATE TABLE t (id bigint PRIMARY KEY, v {sql_type})")
    given = strandline.Json(value) if sql_type == "json" else value
    con.execute("INSERT INTO t VALUES (1, ?), (2, NULL)", (given,))


@pytest.fixture
def one(auto):
    """A table with a row."""
    fill(auto, "text", "one")
    return auto


@pytest.mark.parametrize(("sql_type", "value"), VALUES + MORE)
def test_both_ways_give_the_same_objects(auto, sql_type, value):
    fill(auto, sql_type, value)
    ways = {
        "fetchone": lambda cur: cur.fetchone(),
        "fetchall": lambda cur: cur.fetchall(),
        "fetchmany": lambda cur: [cur.fetchmany(0), cur.fetchmany(), cur.fetchmany(5)],
        "iteration": list,
        "description": lambda cur: cur.description,
        "rowcount": lambda cur: cur.rowcount,
        "repr": repr,
        "arrow": lambda cur: cur.arrow().to_pydict(),
        "schema": lambda cur: cur.arrow().schema,
        "shown": lambda cur: cur._repr_html_(),
    }
    for key in (1, 2, 3, None):
        for name, way in ways.items():
            before = point_statements(auto)
            found = way(auto.execute(POINT, (key,)))
            assert point_statements(auto) == before + 1, "it was found by its key"
            queried = way(auto.execute(QUERY, (key,)))
            assert point_statements(auto) == before + 1
            # `repr` tells types, zeros and scales apart, which compare as equal.
            assert repr(found) == repr(queried), (name, key)
            if name not in ("repr", "shown"):
                assert found == queried, (name, key)


def test_rows_are_given_once(one):
    cur = one.execute(POINT, (1,))
    assert cur.fetchone() == ("one", 1, "one")
    assert cur.fetchone() is None
    assert cur.fetchall() == []
    assert cur.arrow().num_rows == 0
    assert cur.fetchone() is None
    assert [c[0] for c in cur.description] == ["v", "id", "again"]


def test_rows_that_were_looked_at_are_still_there(one):
    cur = one.execute(POINT, (1,))
    assert "one" in cur._repr_html_()
    assert cur.arrow().to_pylist() == [{"v": "one", "id": 1, "again": "one"}]
    assert cur.fetchone() is None
    cur = one.execute(POINT, (1,))
    cur._repr_html_()
    assert cur.fetchall() == [("one", 1, "one")]


def test_rows_outlive_what_comes_after(one):
    cur = one.execute(POINT, (1,))
    one.execute("BEGIN")
    inside = one.execute(POINT, (1,))
    one.execute("UPDATE t SET v = 'two' WHERE id = 1")
    one.execute("ROLLBACK")
    one.execute("DROP TABLE t")
    assert cur.fetchone() == inside.fetchone() == ("one", 1, "one")


def test_a_closed_cursor_gives_nothing(one):
    cur = one.cursor()
    cur.execute(POINT, (1,))
    cur.close()
    with pytest.raises(strandline.InterfaceError):
        cur.fetchone()


@pytest.mark.parametrize(
    ("sql_type", "text"),
    [("date", "0044-03-15 BC"), ("timestamptz", "10000-01-01"), ("time", "24:00")],
)
def test_what_python_does_not_have(auto, sql_type, text):
    auto.execute(f"CREATE TABLE t (id bigint PRIMARY KEY, v {sql_type})")
    auto.execute(f"INSERT INTO t VALUES (1, '{text}')")
    said = []
    for sql in (POINT, QUERY):
        cur = auto.execute(sql, (1,))
        with pytest.raises(strandline.DataError) as caught:
            cur.fetchone()
        said.append((caught.value.sqlstate, str(caught.value)))
        assert cur.fetchone() is None
    assert said[0] == said[1]


def test_equal_texts_are_one_statement(one):
    texts = ["".join((POINT, " ")).strip() for _ in range(50)]
    assert len({id(text) for text in texts}) == 50
    assert {one.execute(text, (1,)).fetchone() for text in texts} == {("one", 1, "one")}


def test_a_text_is_told_by_how_its_values_come(auto):
    sql = "SELECT 1::text, ':x'"
    for _ in range(2):
        assert auto.execute(sql).fetchone() == ("1", ":x")
        assert auto.execute(sql, {}).fetchone() == ("1", ":x")
    sql = "SELECT 7 AS \"?\" WHERE 1 = :one"
    for _ in range(2):
        assert auto.execute(sql, {"one": 1}).fetchone() == (7,)
        with pytest.raises(strandline.Error):
            auto.execute(sql, (1,))
