"""psycopg 3: types both ways, COPY, pipelines, cursors, async, errors, cancellation."""

import asyncio
import datetime as dt
import decimal
import threading
import uuid

import psycopg
from psycopg import errors

VALUES = [
    ("boolean", True),
    ("smallint", -7),
    ("integer", 2**31 - 1),
    ("bigint", -(2**63)),
    ("double precision", 1.5),
    ("numeric(20,4)", decimal.Decimal("-12345.6789")),
    ("text", "é 'x' \\ \n"),
    ("bytea", b"\x00\xff"),
    ("date", dt.date(2024, 2, 29)),
    ("time", dt.time(23, 59, 59, 500000)),
    ("timestamp", dt.datetime(2024, 2, 29, 1, 2, 3, 4)),
    ("timestamptz", dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.timezone.utc)),
    ("interval", dt.timedelta(days=3, seconds=5)),
    ("uuid", uuid.UUID(int=77)),
]


def types(connection):
    for i, (name, value) in enumerate(VALUES):
        v = f"v{i}"
        connection.execute(f"CREATE TABLE {v} (a {name})")
        for binary in [False, True]:
            placeholder = "%b" if binary else "%t"
            connection.execute(f"INSERT INTO {v} VALUES ({placeholder})", [value])
            cursor = connection.cursor(binary=binary)
            row = cursor.execute(f"SELECT a FROM {v} WHERE a = {placeholder}", [value]).fetchone()
            assert row == (value,), (name, binary, row)
            assert cursor.execute(f"SELECT a FROM {v}").fetchone() == (value,), (name, binary)
        connection.execute(f"INSERT INTO {v} VALUES (%s)", [None])
        connection.execute(f"DROP TABLE {v}")
    assert connection.execute("SELECT ARRAY[1, NULL, 3]").fetchone() == ([1, None, 3],)
    connection.commit()


def statements(connection):
    connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    connection.cursor().executemany(
        "INSERT INTO t VALUES (%s, %s)", [(i, f"row {i}") for i in range(100)]
    )
    connection.commit()
    # Prepared by name after some executions.
    for i in range(20):
        row = connection.execute("SELECT b FROM t WHERE a = %s", [i]).fetchone()
        assert row == (f"row {i}",)
    cursor = connection.execute("UPDATE t SET b = 'x' WHERE a < %s RETURNING a", [3])
    assert cursor.fetchall() == [(0,), (1,), (2,)]
    assert cursor.statusmessage == "UPDATE 3"
    connection.rollback()
    try:
        connection.execute("INSERT INTO t VALUES (1, 'again')")
        raise AssertionError("a duplicate key was accepted")
    except errors.UniqueViolation as error:
        assert error.sqlstate == "23505"
    connection.rollback()
    with connection.transaction():
        connection.execute("DELETE FROM t WHERE a >= 50")
        try:
            with connection.transaction():
                connection.execute("DELETE FROM t")
                connection.execute("SELECT 1/0")
        except errors.DivisionByZero:
            pass
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (50,)
    connection.commit()


def copies(connection):
    connection.execute("CREATE TABLE c (a int, b text, c timestamp)")
    rows = [(i, None if i % 3 == 0 else f"a\tb{i}", dt.datetime(2024, 1, 1, 0, 0, i % 60)) for i in range(500)]
    cursor = connection.cursor()
    with cursor.copy("COPY c FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    with cursor.copy("COPY c FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["int4", "text", "timestamp"])
        for row in rows:
            copy.write_row(row)
    for options in ["", "(FORMAT BINARY)"]:
        with cursor.copy(f"COPY (SELECT * FROM c ORDER BY a) TO STDOUT {options}") as copy:
            copy.set_types(["int4", "text", "timestamp"])
            assert list(copy.rows()) == [row for row in rows for _ in range(2)]
    try:
        with cursor.copy("COPY c FROM STDIN") as copy:
            copy.write("x\n")
        raise AssertionError("a bad row was accepted")
    except errors.DataError as error:
        assert error.sqlstate in ("22P02", "22P04"), error.sqlstate
    connection.rollback()


def pipelines(connection):
    with connection.pipeline() as pipeline:
        connection.execute("CREATE TABLE p (a int)")
        for i in range(100):
            connection.execute("INSERT INTO p VALUES (%s)", [i])
        first = connection.execute("SELECT count(*) FROM p")
        pipeline.sync()
        second = connection.execute("SELECT sum(a) FROM p")
        assert first.fetchone() == (100,)
        assert second.fetchone() == (4950,)
    connection.commit()
    try:
        with connection.pipeline():
            connection.execute("INSERT INTO p VALUES (1)")
            connection.execute("SELECT 1/0")
            connection.execute("INSERT INTO p VALUES (2)")
    except errors.DivisionByZero:
        pass
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM p").fetchone() == (100,)
    connection.commit()


def cancellation(connection):
    timer = threading.Timer(0.2, connection.cancel)
    timer.start()
    try:
        connection.execute(
            "SELECT count(*) FROM generate_series(1, 3000000) a(x), generate_series(1, 3000000) b(y)"
        )
        raise AssertionError("the query was not cancelled")
    except errors.QueryCanceled:
        pass
    timer.join()
    connection.rollback()


def notices(connection):
    heard = []
    connection.add_notice_handler(lambda notice: heard.append(notice.sqlstate))
    connection.autocommit = True
    connection.execute("ROLLBACK")
    assert heard == ["25P01"], heard
    connection.autocommit = False


async def asynchronous():
    async with await psycopg.AsyncConnection.connect() as connection:
        assert connection.info.server_version == 150000
        assert connection.info.parameter_status("server_encoding") == "UTF8"
        async with connection.cursor() as cursor:
            await cursor.execute("SELECT i FROM generate_series(1, 1000) AS t(i)")
            assert sum([row[0] async for row in cursor]) == 500500
        clients = [await psycopg.AsyncConnection.connect() for _ in range(20)]
        counts = await asyncio.gather(*(c.execute("SELECT count(*) FROM t") for c in clients))
        assert [await c.fetchone() for c in counts] == [(50,)] * 20
        for client in clients:
            await client.close()


def constraints(connection):
    """What a violated constraint says of itself besides its text."""
    connection.execute("CREATE SCHEMA shop")
    connection.execute("CREATE TABLE shop.parent (id int PRIMARY KEY, amount int, CONSTRAINT few CHECK (amount < 9))")
    connection.execute(
        "CREATE TABLE shop.child (id int UNIQUE, parent int NOT NULL REFERENCES shop.parent)"
    )
    connection.execute("CREATE UNIQUE INDEX amounts ON shop.parent (amount)")
    connection.execute("INSERT INTO shop.parent VALUES (1, 1)")
    connection.execute("INSERT INTO shop.child VALUES (1, 1)")
    connection.commit()
    for sql, state, table, column, constraint in [
        ("INSERT INTO shop.parent VALUES (1, 2)", "23505", "parent", None, "parent_pkey"),
        ("INSERT INTO shop.parent VALUES (2, 1)", "23505", "parent", None, "amounts"),
        ("INSERT INTO shop.parent VALUES (2, 10)", "23514", "parent", None, "few"),
        ("UPDATE shop.parent SET amount = amount + 10", "23514", "parent", None, "few"),
        ("INSERT INTO shop.child VALUES (2, NULL)", "23502", "child", "parent", None),
        ("INSERT INTO shop.child SELECT 2, NULL FROM shop.parent", "23502", "child", "parent", None),
        ("INSERT INTO shop.child VALUES (2, 2)", "23503", "child", None, "child_parent_fkey"),
        ("DELETE FROM shop.parent", "23503", "child", None, "child_parent_fkey"),
        ("ALTER TABLE shop.parent ADD CONSTRAINT none CHECK (amount < 0)", "23514", "parent", None, "none"),
    ]:
        try:
            connection.execute(sql)
            raise AssertionError(f"accepted: {sql}")
        except errors.IntegrityError as error:
            said = error.diag
            got = (error.sqlstate, said.schema_name, said.table_name, said.column_name, said.constraint_name)
            assert got == (state, "shop", table, column, constraint), (sql, got)
        connection.rollback()


def main():
    with psycopg.connect() as connection:
        for check in [types, statements, constraints, copies, pipelines, cancellation, notices]:
            check(connection)
    asyncio.run(asynchronous())


if __name__ == "__main__":
    main()
