"""The DB-API's exceptions, with what PostgreSQL's errors say."""

from __future__ import annotations


class Warning(Exception):  # noqa: A001 - PEP 249's name
    """A notice."""


class Error(Exception):
    """Any error of the database or of this module.

    >>> import strandline
    >>> try:
    ...     strandline.connect().execute("SELECT 1 / 0")
    ... except strandline.Error as error:
    ...     type(error).__name__, error.sqlstate, str(error)
    ('DataError', '22012', 'division by zero')
    """

    sqlstate: str | None
    """The five characters by which PostgreSQL names the error."""
    detail: str | None
    """More about what went wrong."""
    hint: str | None
    """What may help."""

    def __init__(
        self,
        message: str = "",
        sqlstate: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.detail = detail
        self.hint = hint


class InterfaceError(Error):
    """The module was used wrongly: a closed connection, say."""


class DatabaseError(Error):
    """The database refused."""


class DataError(DatabaseError):
    """A value is wrong: out of range, no number, a division by zero."""


class OperationalError(DatabaseError):
    """Not the program's fault: a conflict, a cancelled statement, a full disk."""


class IntegrityError(DatabaseError):
    """A constraint is violated."""


class InternalError(DatabaseError):
    """The transaction is in a state that does not allow it, or there is a bug in Strandline."""


class ProgrammingError(DatabaseError):
    """The statement is wrong: its syntax, a name, the number of parameters."""


class NotSupportedError(DatabaseError):
    """The feature does not exist."""
