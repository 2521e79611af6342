"""Strandline: an embedded SQL database for live data.

One copy of the data: single rows updated as in a row store, columns scanned as in a column store, the
moments of the last 24 hours (or of as long as a table keeps them) queryable. The interface is Python's DB-API 2.0 (PEP 249), with Arrow in and out:

>>> import strandline
>>> con = strandline.connect()
>>> _ = con.execute("CREATE TABLE account (id bigint PRIMARY KEY, balance numeric(12,2))")
>>> _ = con.executemany("INSERT INTO account VALUES (?, ?)", [(1, 100), (2, 50)])
>>> con.commit()
>>> con.execute("SELECT sum(balance) FROM account").fetchone()
(Decimal('150.00'),)
>>> con.close()
"""

from __future__ import annotations

import atexit as _atexit
import os as _os
from typing import Any as _Any

from strandline import _native, _progress
from strandline._errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from strandline._native import Appender, Connection, Cursor, __version__
from strandline._types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Interval,
    Json,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

apilevel = "2.0"
"""The version of the DB-API."""
threadsafety = 2
"""Threads may share the module and connections. Cursors belong to one thread at a time."""
paramstyle = "qmark"
"""`?`; `$1` and, with a mapping of values, `:name` are understood as well."""


def connect(
    path: str | _os.PathLike[str] = ":memory:",
    *,
    autocommit: bool = False,
    create: bool = True,
    progress: bool | None = None,
    **settings: _Any,
) -> Connection:
    """Opens the database in the directory `path`, or a new one in memory.

    Connections of one process to the same directory share the open database; another process
    cannot open it meanwhile.

    * `autocommit`: each statement commits by itself. Off: the first statement begins a transaction.
    * `create`: make the database if there is none.
    * `progress`: show on standard error how long a statement has been running, after two seconds.
      None: in terminals and notebooks.
    * `settings` of the database, which its first connection gives: `memory_bytes`,
      `query_threads`, `wal_segment_bytes`, `checkpoint_wal_bytes`, `capacity_dir` (a second
      directory for chunk files and history; the database remembers it) or `capacity_url` (the same
      as a URL: `s3://bucket/prefix`, `file:///path`, `memory://name`).
    * Other `settings` are the connection's, as `SET` takes them: `synchronous_commit=False`,
      `statement_timeout="30s"`, `search_path="sales"`.

    >>> con = connect(autocommit=True, memory_bytes=256 << 20, synchronous_commit=False)
    >>> con.execute("SHOW synchronous_commit").fetchone()
    ('off',)
    """
    con = Connection(path, autocommit=autocommit, create=create, settings=settings)
    _progress.watch(progress)
    return con


# PEP 249's optional extension: the exceptions are attributes of connections too.
for _class in (
    Warning,
    Error,
    InterfaceError,
    DatabaseError,
    DataError,
    OperationalError,
    IntegrityError,
    InternalError,
    ProgrammingError,
    NotSupportedError,
):
    setattr(Connection, _class.__name__, _class)

# Daemon threads may still be in a statement when the process ends.
_atexit.register(_native.close_all)
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_native.forked)

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Appender",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "Interval",
    "Json",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "__version__",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
