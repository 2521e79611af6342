"""The examples in docstrings and in the book."""

import doctest
import inspect
import pathlib
import re

import pytest

import strandline
from strandline import _display, _errors, _progress, _types

PLACES = [strandline, strandline.Connection, strandline.Cursor, strandline.Appender]
PLACES += [_display, _errors, _progress, _types]


def documented():
    """Every object with examples, by name."""
    found = {}
    for place in PLACES:
        for name, thing in [("", place), *inspect.getmembers(place)]:
            doc = inspect.getdoc(thing) if name != "__doc__" else None
            if isinstance(doc, str) and ">>>" in doc:
                found.setdefault(doc, f"{place.__name__}.{name}".rstrip("."))
    return [(name, doc) for doc, name in found.items()]


def test_examples_are_found():
    names = {name for name, _ in documented()}
    assert {"strandline", "strandline.connect", "Connection.table", "strandline.Appender"} <= names


@pytest.mark.parametrize(("name", "doc"), documented(), ids=lambda value: value.split("\n")[0])
def test_example(name, doc):
    names = {"strandline": strandline}
    for module in (_display, _errors, _progress, _types, strandline):
        names.update(vars(module))
    example = doctest.DocTestParser().get_doctest(doc, names, name, None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    shown = []
    runner.run(example, out=shown.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(shown)


def test_everything_public_is_documented():
    for thing in (strandline.Connection, strandline.Cursor, strandline.Appender):
        for name, member in vars(thing).items():
            if not name.startswith("_") and not isinstance(member, type):
                assert inspect.getdoc(member), f"{thing.__name__}.{name}"


def test_the_books_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
