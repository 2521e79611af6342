"""Every type, both ways."""

import datetime as dt
import decimal
import enum
import uuid
from decimal import Decimal

import numpy
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline

UTC = dt.timezone.utc

VALUES = [
    ("boolean", True),
    ("boolean", False),
    ("smallint", -32768),
    ("integer", 2**31 - 1),
    ("bigint", -(2**63)),
    ("bigint", 2**63 - 1),
    ("real", 1.5),
    ("double precision", 0.1),
    ("double precision", float("inf")),
    ("numeric(12,2)", Decimal("-12345.60")),
    ("numeric(38,10)", Decimal("0.0000000001")),
    ("numeric(38,0)", Decimal(10**38 - 1)),
    ("numeric(38,0)", Decimal("-1E+37")),
    ("text", "Grüße, 世界 🌍 '\"\\"),
    ("text", ""),
    ("varchar(5)", "abc"),
    ("bytea", b"\x00\xff'"),
    ("bytea", b""),
    ("date", dt.date(1, 1, 1)),
    ("date", dt.date(2024, 2, 29)),
    ("date", dt.date(9999, 12, 31)),
    ("time", dt.time(23, 59, 59, 999999)),
    ("timestamp", dt.datetime(1969, 12, 31, 23, 59, 59, 1)),
    ("timestamp", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("timestamptz", dt.datetime(2024, 2, 29, 12, 0, 0, 5, tzinfo=UTC)),
    ("interval", dt.timedelta(days=-3, seconds=5, microseconds=7)),
    ("interval", strandline.Interval(14, -3, 5)),
    ("uuid", uuid.UUID("12345678-1234-5678-1234-567812345678")),
    ("json", {"a": [1, None, "x"], "b": {"c": 1.5}}),
]


@pytest.mark.parametrize(("sql_type", "value"), VALUES)
def test_round_trip(auto, sql_type, value):
    auto.execute(f"CREATE TABLE t (a {sql_type}, b {sql_type})")
    auto.execute("INSERT INTO t VALUES (?, ?)", (value, None))
    auto.executemany("INSERT INTO t VALUES (?, ?)", [(value, None), (None, value)])
    with auto.appender("t") as appender:
        appender.append(value, None)
    rows = auto.execute("SELECT * FROM t").fetchall()
    assert sorted(rows, key=lambda row: row[0] is None) == [(value, None)] * 3 + [(None, value)]
    assert type(rows[0][0]) is type(value)
    if sql_type != "json":
        assert auto.execute("SELECT count(*) FROM t WHERE a = ?", (value,)).fetchone() == (3,)


def test_aware_datetimes_become_utc(auto):
    cest = dt.timezone(dt.timedelta(hours=2))
    value = dt.datetime(2024, 7, 1, 12, 0, tzinfo=cest)
    assert auto.execute("SELECT ?", (value,)).fetchone() == (value,)
    [(shown,)] = auto.execute("SELECT ?::timestamptz", (value,)).fetchall()
    assert shown.utcoffset() == dt.timedelta(0)


def test_subclasses(auto):
    class Text(str):
        pass

    class Number(int):
        pass

    class Colour(enum.IntEnum):
        RED = 3

    class Name(str, enum.Enum):
        ADA = "Ada"

    values = (Text("x"), Number(5), Colour.RED, Name.ADA, bytearray(b"x"), memoryview(b"y"))
    row = auto.execute("SELECT ?, ?, ?, ?, ?, ?", values).fetchone()
    assert row == ("x", 5, 3, "Ada", b"x", b"y")


def test_scalars_of_numpy_and_pandas(auto):
    values = (
        numpy.int16(-5),
        numpy.uint64(7),
        numpy.float32(1.5),
        numpy.float64(2.5),
        numpy.bool_(True),
        numpy.str_("x"),
        numpy.datetime64("2024-02-29T01:02:03.000004005"),
        numpy.timedelta64(90, "s"),
        pandas.Timestamp("2024-02-29 01:02:03"),
        pandas.NaT,
        pandas.NA,
    )
    row = auto.execute("SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?", values).fetchone()
    assert row == (
        -5,
        7,
        1.5,
        2.5,
        True,
        "x",
        dt.datetime(2024, 2, 29, 1, 2, 3, 4),
        dt.timedelta(seconds=90),
        dt.datetime(2024, 2, 29, 1, 2, 3),
        None,
        None,
    )


def test_lists_within_queries(auto):
    assert auto.execute("SELECT ARRAY[1, NULL, 3]").fetchone() == ([1, None, 3],)
    assert auto.execute("SELECT ARRAY['a', 'b']").fetchone() == (["a", "b"],)
    assert auto.execute("SELECT 2 = ANY (?)", ([1, 2],)).fetchone() == (True,)
    assert auto.execute("SELECT 'c' = ANY (?)", (["a", "b"],)).fetchone() == (False,)


@pytest.mark.parametrize(
    "value",
    [
        2**127,
        -(10**38),
        Decimal(10**38),
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("1E-40"),
        Decimal("1E+999999"),
    ],
)
def test_numbers_out_of_range(auto, value):
    with pytest.raises(strandline.DataError) as caught:
        auto.execute("SELECT ?", (value,))
    assert caught.value.sqlstate == "22003"


def test_integers_out_of_a_columns_range(auto):
    auto.execute("CREATE TABLE t (a smallint)")
    for insert in (
        lambda: auto.execute("INSERT INTO t VALUES (?)", (40000,)),
        lambda: auto.executemany("INSERT INTO t VALUES (?)", [(1,), (40000,)]),
    ):
        with pytest.raises(strandline.DataError):
            insert()
    assert auto.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_integers_beyond_64_bits_are_numeric(auto):
    assert auto.execute("SELECT ?", (2**64,)).fetchone() == (Decimal(2**64),)


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, dt.time(1, tzinfo=UTC), [1, "a"]])
def test_values_without_an_sql_type(auto, value):
    with pytest.raises(strandline.ProgrammingError):
        auto.execute("SELECT ?", (value,))


def test_dates_that_python_does_not_have(auto):
    for sql in ("SELECT '0044-03-15 BC'::date", "SELECT '10000-01-01'::timestamp"):
        with pytest.raises(strandline.DataError):
            auto.execute(sql).fetchone()
    with pytest.raises(strandline.DataError):
        auto.execute("SELECT '24:00'::time").fetchone()


def test_decimals_are_exact_in_any_context(auto):
    with decimal.localcontext(prec=3):
        value = Decimal("123456.789")
        assert auto.execute("SELECT ?", (value,)).fetchone() == (value,)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.floats(allow_nan=False),
            st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
            st.none() | st.binary(),
            st.none() | st.dates(),
            st.none() | st.datetimes(),
            st.none() | st.booleans(),
            st.none() | st.decimals(-(10**20), 10**20, places=8),
            st.none() | st.timedeltas(dt.timedelta(-(10**6)), dt.timedelta(10**6)),
            st.none() | st.uuids(),
        ),
        max_size=20,
    )
)
def test_any_rows_come_back(rows):
    columns = (
        "bigint, double precision, text, bytea, date, timestamp, boolean, numeric(38,8), "
        "interval, uuid"
    ).split(", ")
    names = ", ".join(f"c{i} {t}" for i, t in enumerate(columns))
    marks = ", ".join("?" for _ in range(len(columns) + 1))
    with strandline.connect(autocommit=True) as con:
        con.execute(f"CREATE TABLE t (n int, {names})")
        numbered = [(n, *row) for n, row in enumerate(rows)]
        con.executemany(f"INSERT INTO t VALUES ({marks})", numbered)
        for row in numbered:
            con.execute(f"INSERT INTO t VALUES ({marks})", row)
        back = con.execute("SELECT * FROM t ORDER BY n").fetchall()
        assert back == [row for row in numbered for _ in range(2)]
