"""Arrow, pandas and Polars, out and in."""

import datetime as dt
from decimal import Decimal

import pandas
import polars
import pyarrow
import pytest

import strandline


def test_arrow(auto):
    auto.execute("CREATE TABLE t (a bigint, b text, c numeric(10,2), d timestamptz, e uuid)")
    auto.execute("INSERT INTO t VALUES (1, 'x', 1.5, '2024-01-01', gen_random_uuid()), (2, NULL, NULL, NULL, NULL)")
    table = auto.execute("SELECT * FROM t ORDER BY a").arrow()
    assert isinstance(table, pyarrow.Table)
    assert table.column_names == ["a", "b", "c", "d", "e"]
    assert table["b"].to_pylist() == ["x", None]
    assert table["c"].to_pylist() == [Decimal("1.50"), None]
    assert table["d"].to_pylist()[0] == dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)


def test_frames_have_the_rows_that_are_left(auto):
    for convert in (
        lambda cur: cur.arrow().column(0).to_pylist(),
        lambda cur: cur.df()["n"].tolist(),
        lambda cur: cur.pl()["n"].to_list(),
        lambda cur: cur.fetch_record_batch().read_all().column(0).to_pylist(),
        lambda cur: pyarrow.table(cur).column(0).to_pylist(),
        lambda cur: [n for (n,) in cur.fetchall()],
    ):
        cur = auto.execute("SELECT n FROM generate_series(1, 20000) s(n) ORDER BY n")
        assert cur.fetchone() == (1,)
        assert cur.fetchmany(2) == [(2,), (3,)]
        assert convert(cur) == list(range(4, 20001))
        assert cur.fetchone() is None


def test_an_empty_result_keeps_its_columns(auto):
    cur = auto.execute("SELECT 1 AS a, 'x' AS b WHERE false")
    assert cur.arrow().column_names == ["a", "b"]
    assert auto.execute("SELECT 1 AS a WHERE false").df().shape == (0, 1)
    assert auto.execute("SELECT 1 AS a WHERE false").pl().shape == (0, 1)


def test_a_frame_needs_a_result(auto):
    with pytest.raises(strandline.Error):
        auto.cursor().arrow()


def test_errors_while_a_frame_is_made_are_the_databases(auto):
    auto.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 100000) s(n)")
    with pytest.raises(strandline.DataError):
        auto.execute("SELECT 1 / (n - 99999) FROM t").arrow()


def test_streaming_is_not_ahead(auto):
    cur = auto.execute("SELECT * FROM generate_series(1, 1000000000000)")
    reader = cur.fetch_record_batch()
    assert reader.read_next_batch().num_rows > 0
    cur.close()


FRAMES = {
    "pyarrow": pyarrow.table({"a": [1, 2, None], "b": ["x", None, "z"]}),
    "batch": pyarrow.record_batch({"a": [1, 2, None], "b": ["x", None, "z"]}),
    "pandas": pandas.DataFrame({"a": pandas.array([1, 2, None], "Int64"), "b": ["x", None, "z"]}),
    "polars": polars.DataFrame({"a": [1, 2, None], "b": ["x", None, "z"]}),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_register_and_append(auto, frame):
    auto.register("Frame", frame)
    rows = [(1, "x"), (2, None), (None, "z")]
    assert auto.execute("SELECT * FROM frame").fetchall() == rows
    assert auto.execute("SELECT sum(f.a) FROM frame f JOIN frame g USING (a)").fetchone() == (3,)
    auto.execute("CREATE TABLE t (a bigint, b varchar(3))")
    assert auto.append("t", frame) == 3
    auto.execute("INSERT INTO t SELECT * FROM frame")
    assert auto.execute("SELECT count(*), sum(a) FROM t").fetchone() == (6, 6)


def test_results_of_a_connection_can_be_appended_to_it(con):
    con.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 20000) s(n)")
    assert con.append("t", con.execute("SELECT * FROM t").fetch_record_batch()) == 20000
    con.register("r", con.execute("SELECT n + 1 AS n FROM t"))
    assert con.execute("SELECT count(*), max(n) FROM r").fetchone() == (40000, 20001)


def test_registered_frames_belong_to_their_connection(auto):
    auto.execute("CREATE TABLE t AS SELECT 1 AS a")
    auto.register("t", pyarrow.table({"a": [2]}))
    auto.register("f", pyarrow.table({"a": [3]}))
    other = auto.duplicate()
    assert auto.execute("SELECT a FROM t").fetchone() == (2,)
    assert other.execute("SELECT a FROM t").fetchone() == (1,)
    with pytest.raises(strandline.ProgrammingError):
        other.execute("SELECT * FROM f")
    for refused in (
        "CREATE VIEW v AS SELECT * FROM f",
        "INSERT INTO f VALUES (1)",
        "DROP TABLE f",
        "SELECT * FROM f FOR SYSTEM_TIME AS OF now()",
    ):
        with pytest.raises(strandline.ProgrammingError):
            auto.execute(refused)
    auto.register("f", pyarrow.table({"b": [4]}))
    assert auto.execute("SELECT b FROM f").fetchone() == (4,)
    auto.unregister("t")
    assert auto.execute("SELECT a FROM t").fetchone() == (1,)
    for again in ("t", "no such"):
        with pytest.raises(strandline.ProgrammingError):
            auto.unregister(again)
    auto.rollback()
    assert auto.execute("SELECT b FROM f").fetchone() == (4,)


def test_a_registered_frame_hides_a_table_from_lookups_by_key(auto):
    auto.execute("CREATE TABLE t (id int PRIMARY KEY, a int)")
    auto.execute("INSERT INTO t VALUES (1, 1)")
    get = "SELECT a FROM t WHERE id = ?"
    assert auto.execute(get, (1,)).fetchone() == (1,)
    auto.register("t", pyarrow.table({"id": [1], "a": [2]}))
    assert auto.execute(get, (1,)).fetchone() == (2,)
    auto.unregister("t")
    assert auto.execute(get, (1,)).fetchone() == (1,)


def test_types_that_tables_do_not_have(auto):
    frame = pyarrow.table(
        {
            "a": pyarrow.array([2**64 - 1], pyarrow.uint64()),
            "b": pyarrow.array(["x"], pyarrow.dictionary(pyarrow.int8(), pyarrow.string())),
            "c": pyarrow.array([1_000_000_001], pyarrow.timestamp("ns")),
            "d": pyarrow.array([b"x"], pyarrow.large_binary()),
            "e": pyarrow.array([[1, 2]], pyarrow.list_(pyarrow.int64())),
            "f": pyarrow.array([{"x": 1, "y": "z"}]),
            "g": pyarrow.array([1.5], pyarrow.float16()),
            "h": pyarrow.array([90], pyarrow.duration("s")),
        }
    )
    auto.register("f", frame)
    assert auto.execute("SELECT * FROM f").fetchone() == (
        Decimal(2**64 - 1),
        "x",
        dt.datetime(1970, 1, 1, 0, 0, 1),
        b"x",
        [1, 2],
        {"x": 1, "y": "z"},
        1.5,
        dt.timedelta(seconds=90),
    )


@pytest.mark.parametrize("thing", [5, [1], {"a": [1]}, "text", None])
def test_what_is_no_frame(auto, thing):
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        auto.register("x", thing)


def test_append_is_all_or_nothing(auto):
    auto.execute("CREATE TABLE t (a int PRIMARY KEY)")
    frames = [
        pyarrow.table({"a": [1, 2, 1]}),
        pyarrow.table({"a": [1, None]}),
        pyarrow.table({"a": [1], "b": [1]}),
        pyarrow.table({"a": ["x"]}),
    ]
    for frame in frames:
        with pytest.raises(strandline.Error):
            auto.append("t", frame)
        assert auto.execute("SELECT count(*) FROM t").fetchone() == (0,)
    with pytest.raises(strandline.ProgrammingError):
        auto.append("nowhere", frames[0])


def test_appender(con):
    con.execute("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, a text NOT NULL)")
    con.commit()
    appender = con.appender("t")
    for i in range(10_000):
        appender.append(None, f"row {i}")
    assert appender.close() == 10_000
    assert con.execute("SELECT count(*), max(id) FROM t").fetchone() == (10_000, 10_000)
    con.rollback()
    assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)
    for use in (appender.close, lambda: appender.append(None, "x")):
        with pytest.raises(strandline.InterfaceError):
            use()


def test_an_appender_gives_up_with_its_block(auto):
    auto.execute("CREATE TABLE t (a int)")
    with pytest.raises(ZeroDivisionError), auto.appender("t") as appender:
        appender.append(1)
        1 / 0
    with pytest.raises(strandline.ProgrammingError), auto.appender("t") as appender:
        appender.append(1, 2)
    with pytest.raises(strandline.ProgrammingError), auto.appender("t") as appender:
        appender.append(object())
    assert auto.execute("SELECT count(*) FROM t").fetchone() == (0,)
    assert not auto.in_transaction


def test_the_past(auto):
    auto.execute("CREATE TABLE t AS SELECT 1 AS a")
    [(before,)] = auto.execute("SELECT now()").fetchall()
    auto.execute("UPDATE t SET a = 2")
    assert auto.table("t").fetchone() == (2,)
    assert auto.table("public.t", as_of=before).fetchone() == (1,)
    assert auto.table("t", as_of=before.replace(tzinfo=None)).fetchone() == (1,)
    assert auto.table("t", as_of=str(before)).fetchone() == (1,)
    auto.execute('CREATE TABLE "a ""b" AS SELECT 3 AS c')
    assert auto.table('a "b').fetchone() == (3,)
    with pytest.raises(strandline.ProgrammingError):
        auto.table("t; DROP TABLE t")
    with pytest.raises(strandline.DataError):
        auto.table("t", as_of="2999-01-01")
