"""Errors in the DB-API's hierarchy."""

import pytest

import strandline


@pytest.mark.parametrize(
    ("sql", "kind", "state"),
    [
        ("SELEC 1", "ProgrammingError", "42601"),
        ("SELECT * FROM nowhere", "ProgrammingError", "42P01"),
        ("SELECT a FROM generate_series(1, 2) s(b)", "ProgrammingError", "42703"),
        ("SELECT 1 / 0", "DataError", "22012"),
        ("SELECT 'x'::int", "DataError", "22P02"),
        ("INSERT INTO t VALUES (1)", "IntegrityError", "23505"),
        ("INSERT INTO t VALUES (NULL)", "IntegrityError", "23502"),
        ("INSERT INTO t VALUES (-1)", "IntegrityError", "23514"),
        ("CREATE TEMPORARY VIEW v AS SELECT 1", "NotSupportedError", "0A000"),
        ("SELECT 1; SELECT 2", "ProgrammingError", "42601"),
    ],
)
def test_classes(auto, sql, kind, state):
    auto.execute("CREATE TABLE t (a int PRIMARY KEY CHECK (a > 0))")
    auto.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(getattr(strandline, kind)) as caught:
        auto.execute(sql)
    assert type(caught.value).__name__ == kind
    assert caught.value.sqlstate == state


def test_detail_and_hint(auto):
    auto.execute("CREATE TABLE t (a int PRIMARY KEY)")
    auto.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(strandline.IntegrityError) as caught:
        auto.execute("INSERT INTO t VALUES (1)")
    assert "(a)=(1)" in caught.value.detail
    assert caught.value.detail in str(caught.value)
    with pytest.raises(strandline.ProgrammingError) as caught:
        auto.execute("SELECT amoun FROM (SELECT 1 AS amount) t")
    assert caught.value.hint


def test_conflicts(tmp_path):
    one = strandline.connect(tmp_path / "db", autocommit=True)
    one.execute("CREATE TABLE t (a int)")
    one.execute("INSERT INTO t VALUES (1)")
    two = one.duplicate()
    for con in (one, two):
        con.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        con.execute("SELECT * FROM t").fetchall()
    one.execute("UPDATE t SET a = 2")
    one.commit()
    with pytest.raises(strandline.OperationalError) as caught:
        two.execute("UPDATE t SET a = 3")
    assert caught.value.sqlstate == "40001"
    one.close()
    two.close()


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(strandline.Error):
        strandline.connect(tmp_path / "a" / "b")
    with pytest.raises(strandline.Error):
        strandline.connect(tmp_path / "db", create=False)
    assert not (tmp_path / "db").exists()


def test_settings(tmp_path):
    con = strandline.connect(
        tmp_path / "db", memory_bytes=64 << 20, synchronous_commit=False, statement_timeout="7s"
    )
    assert con.execute("SHOW memory_bytes").fetchone() == (str(64 << 20),)
    assert con.execute("SHOW synchronous_commit").fetchone() == ("off",)
    assert con.execute("SHOW statement_timeout").fetchone() == ("7s",)
    with pytest.raises(strandline.OperationalError):
        strandline.connect(tmp_path / "db", memory_bytes=32 << 20)
    strandline.connect(tmp_path / "db").close()
    for wrong in ({"no_such_setting": 1}, {"memory_bytes": 1}, {"statement_timeout": "soon"}):
        with pytest.raises(strandline.Error):
            strandline.connect(**wrong)
    with pytest.raises(TypeError):
        strandline.connect(**{"x = 1; --": 1})
    con.close()


def test_a_capacity_directory(tmp_path):
    path, capacity = tmp_path / "db", tmp_path / "big"
    with strandline.connect(path, autocommit=True, capacity_dir=capacity) as con:
        con.execute("CREATE TABLE t AS SELECT 7 AS a")
        con.execute("VACUUM FULL")
        assert con.execute("SHOW capacity_dir").fetchone() == (str(capacity.resolve()),)
    assert any(file.name.startswith("chunks-") for file in capacity.iterdir())
    with strandline.connect(path) as con:
        assert con.execute("SELECT a FROM t").fetchone() == (7,)
    with pytest.raises(strandline.Error, match="overlap"):
        strandline.connect(path, capacity_dir=path / "inside")
    with pytest.raises(strandline.Error, match="needs a database in a directory"):
        strandline.connect(capacity_dir=str(capacity))


def test_a_capacity_url(tmp_path):
    path, url = tmp_path / "db", f"memory://{tmp_path.name}/python"
    with strandline.connect(path, autocommit=True, capacity_url=url) as con:
        con.execute("CREATE TABLE t AS SELECT 7 AS a")
        con.execute("VACUUM FULL")
        assert con.execute("SHOW capacity_url").fetchone() == (url,)
        assert con.execute("SHOW capacity_dir").fetchone() == ("",)
    assert not any(file.name.startswith("chunks-") for file in path.iterdir())
    with strandline.connect(path) as con:
        assert con.execute("SELECT a FROM t").fetchone() == (7,)
    for url, message in [
        ("gs://bucket/p", "scheme \"gs\" is unknown"),
        ("s3:///p", "the bucket is missing"),
        (f"file://{path}/inside", "overlap"),
    ]:
        with pytest.raises(strandline.Error, match=message):
            strandline.connect(path, capacity_url=url)
    with pytest.raises(strandline.Error, match="are both set"):
        strandline.connect(path, capacity_dir=tmp_path / "big", capacity_url="memory://x")
    with pytest.raises(strandline.Error, match="needs a database in a directory"):
        strandline.connect(capacity_url="memory://x")


def test_connections_share_a_database(tmp_path):
    one = strandline.connect(tmp_path / "db", autocommit=True)
    two = strandline.connect(f"{tmp_path}/./db")
    one.execute("CREATE TABLE t AS SELECT 1 AS a")
    assert two.execute("SELECT a FROM t").fetchone() == (1,)
    one.close()
    assert two.execute("SELECT a FROM t").fetchone() == (1,)
    two.close()
    with strandline.connect(tmp_path / "db") as again:
        assert again.execute("SELECT a FROM t").fetchone() == (1,)
