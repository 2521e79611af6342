"""The beginning of a result as a table: of text for terminals, of HTML for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline._native import Cursor

_HTML_ROWS = 20
_CELL = 60


def show(cursor: Cursor, rows: int) -> None:
    """Prints the first `rows` rows that have not been fetched."""
    peek = cursor._peek(rows)
    if peek is None:
        print(repr(cursor))
        return
    cells = [[_short(cell or "") for cell in row] for row in peek["rows"]]
    names = [_short(name) for name in peek["names"]]
    columns = range(len(names))
    widths = [max(len(row[c]) for row in [names, *cells]) for c in columns]
    print("|".join(f" {names[c]:^{widths[c]}} " for c in columns).rstrip())
    print("+".join("-" * (widths[c] + 2) for c in columns))
    for row in cells:
        aligned = (
            f" {row[c]:>{widths[c]}} " if peek["right"][c] else f" {row[c]:<{widths[c]}} "
            for c in columns
        )
        print("|".join(aligned).rstrip())
    print(_count(len(cells), peek["more"]))


def html(cursor: Cursor) -> str | None:
    """A table for notebooks; the rows stay to be fetched."""
    peek = cursor._peek(_HTML_ROWS)
    if peek is None:
        return None
    head = "".join(f"<th>{escape(name)}</th>" for name in peek["names"])
    body = "".join(f"<tr>{_html_row(row, peek['right'])}</tr>" for row in peek["rows"])
    count = _count(len(peek["rows"]), peek["more"])
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"{table}<small>{escape(count)}</small>"


def _html_row(row: list[str | None], right: list[bool]) -> str:
    cells = []
    for cell, is_right in zip(row, right, strict=True):
        align = ' style="text-align: right"' if is_right else ""
        cells.append(f"<td{align}>{'<em>NULL</em>' if cell is None else escape(_short(cell))}</td>")
    return "".join(cells)


def _short(text: str) -> str:
    line = text.replace("\n", "⏎")
    return line if len(line) <= _CELL else line[: _CELL - 1] + "…"


def _count(rows: int, more: bool) -> str:
    if more:
        return f"({rows} rows shown, there are more)"
    return f"({rows} row{'' if rows == 1 else 's'})"
