"""PEP 249, point by point."""

import pickle
import warnings

import pytest

import strandline


def test_module_globals():
    assert strandline.apilevel == "2.0"
    assert strandline.threadsafety == 2
    assert strandline.paramstyle == "qmark"
    assert strandline.__version__


def test_exception_hierarchy():
    e = strandline
    assert issubclass(e.Warning, Exception) and not issubclass(e.Warning, e.Error)
    assert issubclass(e.Error, Exception)
    assert issubclass(e.InterfaceError, e.Error)
    assert issubclass(e.DatabaseError, e.Error)
    for name in (
        "DataError",
        "OperationalError",
        "IntegrityError",
        "InternalError",
        "ProgrammingError",
        "NotSupportedError",
    ):
        assert issubclass(getattr(e, name), e.DatabaseError)


def test_exceptions_are_attributes_of_connections(con):
    for name in ("Warning", "Error", "DataError", "ProgrammingError"):
        assert getattr(con, name) is getattr(strandline, name)


def test_constructors_and_type_objects():
    assert strandline.Date(2024, 2, 29).isoformat() == "2024-02-29"
    assert strandline.Time(1, 2, 3).isoformat() == "01:02:03"
    assert strandline.Timestamp(2024, 2, 29, 1, 2, 3).year == 2024
    assert strandline.DateFromTicks(0).year in (1969, 1970)
    assert strandline.TimestampFromTicks(86400 * 365).year in (1970, 1971)
    assert strandline.TimeFromTicks(0).second == 0
    assert strandline.Binary(b"x") == b"x"
    assert strandline.NUMBER != strandline.STRING
    assert strandline.ROWID == strandline.ROWID
    assert len({strandline.NUMBER, strandline.BINARY, strandline.DATETIME}) == 3


def test_description(con):
    cur = con.cursor()
    assert cur.description is None
    cur.execute(
        "SELECT 1 AS n, 'x' AS s, 1.25::numeric(8,3) AS d, now() AS t, '\\x00'::bytea AS b"
    )
    names = [column[0] for column in cur.description]
    assert names == ["n", "s", "d", "t", "b"]
    assert all(len(column) == 7 for column in cur.description)
    types = [column[1] for column in cur.description]
    api = strandline
    assert types == [api.NUMBER, api.STRING, api.NUMBER, api.DATETIME, api.BINARY]
    assert cur.description[2][4:6] == (8, 3)
    cur.execute("CREATE TABLE t (a int)")
    assert cur.description is None


def test_description_names_types_as_sql_does(con):
    con.execute("CREATE TABLE t (a varchar(5), b char(2), c json, d uuid, e smallint)")
    types = [column[1] for column in con.execute("SELECT * FROM t").description]
    assert types == ["character varying", "character", "json", "uuid", "smallint"]


def test_rowcount(con):
    cur = con.cursor()
    assert cur.rowcount == -1
    assert cur.execute("CREATE TABLE t (a int)").rowcount == -1
    assert cur.execute("INSERT INTO t VALUES (1), (2), (3)").rowcount == 3
    assert cur.execute("UPDATE t SET a = a + 1 WHERE a > 1").rowcount == 2
    assert cur.execute("DELETE FROM t WHERE a > 100").rowcount == 0
    assert cur.execute("SELECT * FROM t").rowcount == 3
    assert cur.execute("SELECT * FROM generate_series(1, 200000)").rowcount == -1


def test_fetching(con):
    cur = con.execute("SELECT * FROM generate_series(1, 10)")
    assert cur.arraysize == 1
    assert cur.fetchone() == (1,)
    assert cur.fetchmany() == [(2,)]
    cur.arraysize = 2
    assert cur.fetchmany() == [(3,), (4,)]
    assert cur.fetchmany(3) == [(5,), (6,), (7,)]
    assert next(cur) == (8,)
    assert cur.fetchall() == [(9,), (10,)]
    assert cur.fetchone() is None
    assert cur.fetchmany() == [] and cur.fetchall() == []
    with pytest.raises(StopIteration):
        next(cur)


@pytest.mark.parametrize("rows", [0, 1, 255, 256, 257, 8192, 8193, 100_000])
def test_iteration_gives_every_row_once(con, rows):
    cur = con.execute("SELECT n FROM generate_series(1, ?) s(n) ORDER BY n", (rows,))
    assert [n for (n,) in cur] == list(range(1, rows + 1))


def test_fetch_without_a_result(con):
    cur = con.cursor()
    for fetch in (cur.fetchone, cur.fetchmany, cur.fetchall):
        with pytest.raises(strandline.Error):
            fetch()
    cur.execute("CREATE TABLE t (a int)")
    with pytest.raises(strandline.Error):
        cur.fetchone()


def test_returning_gives_rows(con):
    con.execute("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, a text)")
    cur = con.execute("INSERT INTO t (a) VALUES ('x'), ('y') RETURNING id, a")
    assert cur.rowcount == 2
    assert cur.fetchall() == [(1, "x"), (2, "y")]


def test_parameter_styles(con):
    assert con.execute("SELECT ?, ?", (1, "a")).fetchone() == (1, "a")
    assert con.execute("SELECT $2, $1, $2", (1, 2)).fetchone() == (2, 1, 2)
    assert con.execute("SELECT :a, :b, :a", {"a": 1, "b": 2}).fetchone() == (1, 2, 1)
    assert con.execute("SELECT ?", [7]).fetchone() == (7,)
    assert con.execute("SELECT ?::bigint", range(5, 6)).fetchone() == (5,)


def test_what_only_looks_like_a_parameter(con):
    row = con.execute(
        """SELECT '?', E'\\'?', "?", $$?$$, $x$ ? $$ ? $x$, ?::text -- ?
        , 'it''s ?' /* ? /* :a */ ? */ FROM (SELECT 5 AS "?") t""",
        ("given",),
    ).fetchone()
    assert row == ("?", "'?", 5, "?", " ? $$ ? ", "given", "it's ?")
    assert con.execute("SELECT ':a', :a::int + 1", {"a": 1}).fetchone() == (":a", 2)
    assert con.execute("SELECT '1'::int, ':b'").fetchone() == (1, ":b")


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT ?", ()),
        ("SELECT ?", (1, 2)),
        ("SELECT 1", (1,)),
        ("SELECT :a", {"b": 1}),
        ("SELECT ?, ?", (1,)),
    ],
)
def test_wrong_number_of_parameters(con, sql, parameters):
    with pytest.raises(strandline.ProgrammingError):
        con.execute(sql, parameters)


def test_parameters_are_no_string(con):
    with pytest.raises(strandline.InterfaceError):
        con.execute("SELECT ?", "a")


def test_executemany(con):
    con.execute("CREATE TABLE t (a int PRIMARY KEY, b text DEFAULT 'none')")
    cur = con.executemany("INSERT INTO t (a) VALUES (?)", [(n,) for n in range(10)])
    assert cur.rowcount == 10
    assert con.execute("SELECT DISTINCT b FROM t").fetchall() == [("none",)]
    con.executemany("UPDATE t SET b = ? WHERE a = ?", [("one", 1), ("two", 2)])
    assert con.execute("SELECT b FROM t WHERE a = 2").fetchone() == ("two",)
    con.executemany("INSERT INTO t VALUES (:a, :b)", [{"b": "x", "a": 77}])
    assert con.execute("SELECT b FROM t WHERE a = 77").fetchone() == ("x",)
    assert con.executemany("DELETE FROM t WHERE a = ?", ((n,) for n in range(5))).rowcount == 5
    assert con.executemany("DELETE FROM t WHERE a = ?", []).rowcount == 0


def test_executemany_is_all_or_nothing(auto):
    auto.execute("CREATE TABLE t (a int PRIMARY KEY, b int CHECK (b > 0))")
    for rows in ([(1, 1), (2, 2), (1, 3)], [(1, 1), (2, -1)], [(1, 1), ("no", 1)]):
        with pytest.raises(strandline.Error):
            auto.executemany("INSERT INTO t VALUES (?, ?)", rows)
        assert auto.execute("SELECT count(*) FROM t").fetchone() == (0,)
        assert not auto.in_transaction


def test_executemany_of_statements_that_are_not_loaded_in_bulk(con):
    con.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
    upsert = "INSERT INTO t VALUES (?, ?) ON CONFLICT (a) DO UPDATE SET b = t.b + excluded.b"
    con.executemany(upsert, [(1, 1), (1, 10), (2, 5)])
    con.executemany("INSERT INTO t VALUES (?, ? + 1)", [(3, 1)])
    con.executemany("INSERT INTO t SELECT ?, ?", [(4, 1)])
    rows = con.execute("SELECT * FROM t ORDER BY a").fetchall()
    assert rows == [(1, 11), (2, 5), (3, 2), (4, 1)]


def test_executemany_with_rows_of_several_types(con):
    con.execute("CREATE TABLE t (a numeric(10,2), b text)")
    rows = [(1, "x"), (2.5, None), (None, "y")]
    con.executemany("INSERT INTO t VALUES (?, ?)", rows)
    assert con.execute("SELECT sum(a)::text FROM t").fetchone() == ("3.50",)
    con.executemany("INSERT INTO t (b) VALUES (?)", [("z",), (5,)])
    assert con.execute("SELECT count(*) FROM t WHERE b = '5'").fetchone() == (1,)


def test_rows_of_executemany_have_one_width(con):
    con.execute("CREATE TABLE t (a int, b int)")
    with pytest.raises(strandline.ProgrammingError):
        con.executemany("INSERT INTO t VALUES (?, ?)", [(1, 2), (3,)])


def test_transactions(con):
    con.execute("CREATE TABLE t (a int)")
    assert con.in_transaction
    con.commit()
    assert not con.in_transaction
    con.execute("INSERT INTO t VALUES (1)")
    con.rollback()
    assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)
    con.execute("INSERT INTO t VALUES (1)")
    con.commit()
    con.commit()
    con.rollback()
    assert con.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_commit_of_a_failed_transaction_raises(con):
    con.execute("CREATE TABLE t (a int)")
    con.commit()
    con.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(strandline.DataError):
        con.execute("SELECT 1 / 0")
    with pytest.raises(strandline.InternalError) as failed:
        con.execute("SELECT 1")
    assert failed.value.sqlstate == "25P02"
    with pytest.raises(strandline.InternalError):
        con.commit()
    assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_autocommit(con):
    assert con.autocommit is False
    con.execute("CREATE TABLE t (a int)")
    with pytest.raises(strandline.ProgrammingError):
        con.autocommit = True
    con.commit()
    con.autocommit = True
    con.execute("INSERT INTO t VALUES (1)")
    con.rollback()
    assert con.execute("SELECT count(*) FROM t").fetchone() == (1,)
    con.execute("BEGIN")
    con.execute("INSERT INTO t VALUES (2)")
    con.rollback()
    assert con.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_begin_by_hand_needs_no_second_one(con):
    con.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
    assert con.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
    assert con.messages == []
    con.execute("COMMIT")
    con.execute("COMMIT")
    [(kind, message)] = con.messages
    assert kind is strandline.Warning and "no transaction" in str(message)


def test_settings_outlive_transactions(con):
    con.execute("SET statement_timeout = '5s'")
    con.execute("SELECT 1")
    con.rollback()
    assert con.execute("SHOW statement_timeout").fetchone() == ("5s",)


def test_connection_as_context_manager(tmp_path):
    path = tmp_path / "db"
    with strandline.connect(path) as con:
        con.execute("CREATE TABLE t (a int)")
    with pytest.raises(ZeroDivisionError), strandline.connect(path) as con:
        con.execute("INSERT INTO t VALUES (1)")
        1 / 0
    with strandline.connect(path) as con:
        assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)
        con.close()


def test_close(con):
    cur = con.cursor()
    with cur as same:
        assert same is cur
    for use in (cur.fetchone, lambda: cur.execute("SELECT 1"), lambda: cur.rowcount):
        with pytest.raises(strandline.InterfaceError):
            use()
    cur.close()
    open_cursor = con.execute("SELECT * FROM generate_series(1, 100000)")
    con.close()
    con.close()
    for use in (con.cursor, con.commit, con.rollback, lambda: con.execute("SELECT 1")):
        with pytest.raises(strandline.InterfaceError):
            use()
    with pytest.raises(strandline.InterfaceError):
        open_cursor.fetchall()
    assert repr(con) == "<strandline.Connection: closed>"


def test_rows_survive_the_end_of_their_transaction(con):
    con.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 50000) s(n)")
    cur = con.execute("SELECT n FROM t")
    first = cur.fetchone()
    con.execute("DELETE FROM t")
    con.rollback()
    assert len(cur.fetchall()) == 49_999 and first is not None


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_end_of_a_transaction_reads_no_open_cursor(con, end):
    cur = con.execute("SELECT n FROM generate_series(1, 1000000000000) s(n)")
    assert cur.fetchone() == (1,)
    getattr(con, end)()
    with pytest.raises(strandline.Error, match="their transaction has ended") as raised:
        for _ in cur:
            pass
    assert raised.value.sqlstate == "24000"
    assert con.execute("SELECT 1").fetchone() == (1,)


def test_small_results_outlive_their_transaction(con):
    cur = con.execute("SELECT n FROM generate_series(1, 100) s(n)")
    con.commit()
    assert len(cur.fetchall()) == 100


def test_rows_beside_other_statements(auto):
    auto.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 50000) s(n)")
    cur = auto.execute("SELECT n FROM t")
    cur.fetchone()
    auto.execute("DELETE FROM t")
    assert len(cur.fetchall()) == 49_999


def test_unneeded_parts(con):
    cur = con.cursor()
    cur.setinputsizes([1])
    cur.setoutputsize(1)
    cur.setoutputsize(1, 2)
    assert cur.lastrowid is None
    assert cur.connection is con
    for name in ("callproc", "nextset"):
        assert not hasattr(cur, name)


def test_pickling_is_refused(con):
    for thing in (con, con.cursor()):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)


def test_exceptions_can_be_pickled():
    error = strandline.DataError("message", "22012", None, "hint")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.sqlstate, again.hint) == ("message", "22012", "hint")


def test_nothing_is_left_open():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        con = strandline.connect()
        cur = con.execute("SELECT * FROM generate_series(1, 100000)")
        cur.fetchone()
        del con, cur


def test_executescript(con):
    con.executescript("CREATE TABLE t (a text); INSERT INTO t VALUES ('a;b'); -- end")
    assert con.execute("SELECT a FROM t").fetchone() == ("a;b",)


def test_display(con, capsys):
    cur = con.execute("SELECT 1 AS n, '<b>' AS s UNION ALL SELECT 2, NULL ORDER BY 1")
    assert repr(cur) == "<strandline.Cursor: 2 columns, 2 rows>"
    html = cur._repr_html_()
    assert "&lt;b&gt;" in html and "<em>NULL</em>" in html and "(2 rows)" in html
    cur.show(1)
    assert "(1 rows shown, there are more)" in capsys.readouterr().out
    assert cur.fetchall() == [(1, "<b>"), (2, None)]
    assert con.cursor()._repr_html_() is None
