"""Progress of long statements on standard error, in terminals and notebooks.

One thread looks a few times a second what runs. Statements pay nothing for it: they run without the
interpreter's lock, and say when they began.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

from strandline import _native

PATIENCE_S = 2.0
"""Statements that run no longer are not shown."""
TICK_S = 0.25
_WIDTH = 24

_watcher: threading.Thread | None = None
_lock = threading.Lock()


def watch(show: bool | None) -> None:
    """Starts to show progress; None: if there is somebody to see it."""
    global _watcher
    if show is None:
        show = _is_seen()
    if not show:
        return
    with _lock:
        # A forked child has the variable, but not the thread.
        if _watcher is None or not _watcher.is_alive():
            _watcher = threading.Thread(target=_run, name="strandline-progress", daemon=True)
            _watcher.start()


def _is_seen() -> bool:
    if "ipykernel" in sys.modules:
        return True
    return sys.stderr is not None and sys.stderr.isatty()


def _run() -> None:
    shown = 0
    while True:
        time.sleep(TICK_S)
        out = sys.stderr
        if out is None:
            continue
        shown = step(_native.running(), shown, out)


def step(running: list[tuple[float, int, int, int | None]], shown: int, out: TextIO) -> int:
    """Shows the statement that has run longest over what was shown before; how wide that is.

    >>> import io
    >>> out = io.StringIO()
    >>> shown = step([(3.2, 0, 0, None)], 0, out)
    >>> step([], shown, out), out.getvalue().split("\\r")[1:3]
    (0, ['running for 3 s (Ctrl-C cancels)', '                                '])
    """
    longest = max(running, default=None)
    line = text(*longest) if longest and longest[0] >= PATIENCE_S else ""
    if line or shown:
        out.write("\r" + line.ljust(shown) + ("" if line else "\r"))
        out.flush()
    return len(line)


def text(seconds: float, rows: int, size: int, total: int | None) -> str:
    """The line for one statement.

    >>> text(75, 1200000, 50, 200)
    '[######                  ]  25 %  1,200,000 rows for 1:15 (Ctrl-C cancels)'
    """
    minutes, whole = divmod(int(seconds), 60)
    time_text = f"{minutes}:{whole:02}" if minutes else f"{whole} s"
    what = f"{rows:,} rows" if rows else "running"
    bar = ""
    if total:
        part = min(size / total, 1.0)
        bar = f"[{'#' * int(part * _WIDTH):{_WIDTH}}] {part * 100:3.0f} %  "
    return f"{bar}{what} for {time_text} (Ctrl-C cancels)"
