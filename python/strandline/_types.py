"""The DB-API's type objects and constructors, and types that Python lacks."""

from __future__ import annotations

import datetime as _datetime
from dataclasses import dataclass
from typing import Any


class TypeObject:
    """Compares equal to the types of `Cursor.description` that it stands for.

    >>> NUMBER == "bigint", NUMBER == "text"
    (True, False)
    """

    __slots__ = ("_name", "_types")

    def __init__(self, name: str, *types: str) -> None:
        self._name = name
        self._types = frozenset(types)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeObject):
            return self._types == other._types
        return other in self._types

    def __hash__(self) -> int:
        return hash(self._types)

    def __repr__(self) -> str:
        return f"strandline.{self._name}"


STRING = TypeObject("STRING", "text", "character varying", "character", "json", "uuid")
BINARY = TypeObject("BINARY", "bytea")
NUMBER = TypeObject(
    "NUMBER",
    "smallint",
    "integer",
    "bigint",
    "real",
    "double precision",
    "numeric",
    "boolean",
)
DATETIME = TypeObject(
    "DATETIME",
    "date",
    "time without time zone",
    "timestamp without time zone",
    "timestamp with time zone",
    "interval",
)
ROWID = TypeObject("ROWID")

Date = _datetime.date
Time = _datetime.time
Timestamp = _datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> _datetime.date:  # noqa: N802 - PEP 249's name
    """The date of a moment in seconds since 1970, in local time."""
    return _datetime.date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> _datetime.time:  # noqa: N802 - PEP 249's name
    """The time of day of a moment in seconds since 1970, in local time."""
    return _datetime.datetime.fromtimestamp(ticks).time()


def TimestampFromTicks(ticks: float) -> _datetime.datetime:  # noqa: N802 - PEP 249's name
    """A moment in seconds since 1970, in local time."""
    return _datetime.datetime.fromtimestamp(ticks)


@dataclass(frozen=True)
class Interval:
    """An interval with months in it, which no `timedelta` can hold: a month has no length.

    Intervals without months are `timedelta`.

    >>> import strandline
    >>> con = strandline.connect()
    >>> con.execute("SELECT interval '1 year 2 days', interval '2 days'").fetchone()
    (Interval(months=12, days=2, microseconds=0), datetime.timedelta(days=2))
    """

    months: int = 0
    days: int = 0
    microseconds: int = 0


@dataclass(frozen=True)
class Json:
    """A parameter whose value is to be written as JSON. A `dict` needs no such mark.

    >>> import strandline
    >>> con = strandline.connect()
    >>> con.execute("SELECT ?::json", (strandline.Json([1, "two", None]),)).fetchone()
    ([1, 'two', None],)
    """

    value: Any
