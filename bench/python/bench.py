#!/usr/bin/env python3
"""The Python package against sqlite3 and DuckDB, side by side in turns.

    pip install ./python duckdb pyarrow
    python bench/python/bench.py [--quick] [--only NAME] [--json FILE]

Each figure is the median of its rounds; ours and the peer's take turns within a round, so that both
meet the same machine. The last column is ours over the peer's in rows or transactions per second.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import strandline

READS, WRITES = 8, 2
COLUMNS = [f"c{i}" for i in range(1, 10)]
READ = "SELECT c1, c2, c3, c4 FROM t WHERE id = ?"
WRITE = "UPDATE t SET c1 = ?, c2 = ?, c3 = ?, c4 = ? WHERE id = ?"
CREATE = f"CREATE TABLE t (id bigint PRIMARY KEY, {', '.join(f'{c} bigint' for c in COLUMNS)})"
INSERT = f"INSERT INTO t VALUES ({', '.join('?' * 10)})"


class Bench:
    """What all figures share: sizes, a place for files, results."""

    def __init__(self, quick: bool, directory: pathlib.Path) -> None:
        self.rounds = 3 if quick else 5
        self.rows = 100_000 if quick else 1_000_000
        self.frame_rows = 1_000_000 if quick else 10_000_000
        self.seconds = 1.0 if quick else 3.0
        self.directory = directory
        self.results: list[dict[str, object]] = []

    def fresh(self, name: str) -> pathlib.Path:
        """A path under which there is nothing."""
        path = self.directory / name
        shutil.rmtree(path, ignore_errors=True)
        for suffix in ("", "-wal", "-shm"):
            pathlib.Path(f"{path}{suffix}").unlink(missing_ok=True)
        return path

    def compare(
        self,
        case: str,
        unit: str,
        peer: str,
        goal: float,
        ours: Callable[[], float],
        theirs: Callable[[], float],
    ) -> None:
        """Runs both in turns; they give units per second."""
        pairs = []
        for turn in range(self.rounds):
            if turn % 2 == 0:
                pairs.append((ours(), theirs()))
            else:  # who begins may meet a colder machine
                their = theirs()
                pairs.append((ours(), their))
        our, their = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        line = {
            "case": case,
            "unit": unit,
            "ours": round(our),
            "ours_range": [round(end(pair[0] for pair in pairs)) for end in (min, max)],
            "peer": peer,
            "theirs": round(their),
            "theirs_range": [round(end(pair[1] for pair in pairs)) for end in (min, max)],
            "ratio": round(ratio, 2),
            "goal": goal,
        }
        self.results.append(line)
        print(f"{case:34} {our:>14,.0f} {their:>14,.0f} {unit:7} {peer:10} "
              f"{ratio:5.2f} (goal {goal})")
        print(json.dumps(line), flush=True)


def table_rows(rows: int) -> list[tuple[int, ...]]:
    """Rows of the point table, the same every time."""
    draw = random.Random(1).randrange
    return [(key, *(draw(1 << 30) for _ in range(9))) for key in range(rows)]


def open_sqlite(path: pathlib.Path, durable: bool) -> sqlite3.Connection:
    """SQLite as fast as its settings make it; its module keeps statements prepared."""
    con = sqlite3.connect(path, isolation_level=None, cached_statements=128)
    for pragma in (
        "locking_mode = EXCLUSIVE",
        "journal_mode = WAL",
        f"synchronous = {'FULL' if durable else 'OFF'}",
        # A commit that overwrites the log is durable sooner than one that makes it longer.
        f"wal_autocheckpoint = {1000 if durable else 16384}",
        f"mmap_size = {4 << 30}",
        f"cache_size = {-(512 << 10)}",
    ):
        con.execute(f"PRAGMA {pragma}").fetchall()
    return con


def transactions(bench: Bench) -> None:
    """8 reads and 2 updates of single rows by key, in one transaction, through DB-API."""
    rows = table_rows(bench.rows)
    for durable in (False, True):
        path = bench.fresh("ours")
        ours = strandline.connect(path, autocommit=True, synchronous_commit=durable)
        ours.execute(CREATE)
        ours.executemany(INSERT, rows)
        theirs = open_sqlite(bench.fresh("sqlite"), durable)
        theirs.execute(CREATE.replace("bigint PRIMARY KEY", "integer PRIMARY KEY"))
        theirs.execute("BEGIN")
        theirs.executemany(INSERT, rows)
        theirs.execute("COMMIT")
        bench.compare(
            f"8 + 2 transaction, sync {'on' if durable else 'off'}",
            "tx/s",
            "sqlite3",
            1.5,
            lambda con=ours.cursor(), keys=random.Random(2): run_transactions(con, keys, bench),
            lambda con=theirs.cursor(), keys=random.Random(2): run_transactions(con, keys, bench),
        )
        ours.close()
        theirs.close()


def run_transactions(
    cur: strandline.Cursor | sqlite3.Cursor, keys: random.Random, bench: Bench
) -> float:
    """Transactions per second; the same calls for both. `keys` goes on from round to round: a
    repeated transaction would change nothing, and SQLite commits those without writing."""
    draw = keys.randrange
    execute, rows, done = cur.execute, bench.rows, 0
    begin = time.perf_counter()
    end = begin + bench.seconds
    while time.perf_counter() < end:
        execute("BEGIN")
        for _ in range(READS):
            row = execute(READ, (draw(rows),)).fetchone()
            assert row is not None
        for _ in range(WRITES):
            execute(WRITE, (*row, draw(rows)))
        execute("COMMIT")
        done += 1
    return done / (time.perf_counter() - begin)


def executemany(bench: Bench) -> None:
    """`executemany` of an INSERT as one transaction, into an empty table with a key."""
    rows = table_rows(bench.rows)

    def ours() -> float:
        con = strandline.connect(bench.fresh("ours"))
        con.execute(CREATE)
        con.commit()
        begin = time.perf_counter()
        con.executemany(INSERT, rows)
        con.commit()
        took = time.perf_counter() - begin
        con.close()
        return len(rows) / took

    def theirs() -> float:
        con = open_sqlite(bench.fresh("sqlite"), durable=True)
        con.execute(CREATE.replace("bigint PRIMARY KEY", "integer PRIMARY KEY"))
        begin = time.perf_counter()
        con.execute("BEGIN")
        con.executemany(INSERT, rows)
        con.execute("COMMIT")
        took = time.perf_counter() - begin
        con.close()
        return len(rows) / took

    bench.compare("executemany INSERT", "rows/s", "sqlite3", 1.0, ours, theirs)


def fetch_arrow(bench: Bench) -> None:
    """A whole table as a pyarrow.Table."""
    import duckdb
    import pyarrow

    count = bench.frame_rows
    draw = random.Random(3).random
    block = 100_000
    values = [draw() for _ in range(block)]
    source = pyarrow.table(
        {
            "id": pyarrow.array(range(count), pyarrow.int64()),
            "amount": pyarrow.chunked_array([pyarrow.array(values)] * (count // block)),
            "day": pyarrow.array((i // 1000 for i in range(count)), pyarrow.int32()),
            "name": pyarrow.array((f"name {i % 1000}" for i in range(count)), pyarrow.string()),
        }
    )
    ours = strandline.connect(bench.fresh("ours"), autocommit=True)
    ours.execute("CREATE TABLE f (id bigint, amount double precision, day int, name text)")
    ours.append("f", source)
    theirs = duckdb.connect(str(bench.fresh("duckdb")))
    theirs.register("source", source)
    theirs.execute("CREATE TABLE f AS SELECT * FROM source")
    theirs.execute("CHECKPOINT")

    def rate(fetch: Callable[[], pyarrow.Table]) -> float:
        begin = time.perf_counter()
        table = fetch()
        took = time.perf_counter() - begin
        assert table.num_rows == count
        return count / took

    bench.compare(
        "fetch as Arrow",
        "rows/s",
        f"DuckDB {duckdb.__version__}",
        1.0,
        lambda: rate(lambda: ours.execute("SELECT * FROM f").arrow()),
        lambda: rate(lambda: theirs.sql("SELECT * FROM f").to_arrow_table()),
    )
    ours.close()
    theirs.close()


def overhead(bench: Bench) -> None:
    """What one statement costs through Python, in statements per second."""
    rows = table_rows(10_000)
    ours = strandline.connect(autocommit=True)
    ours.execute(CREATE)
    ours.executemany(INSERT, rows)
    theirs = sqlite3.connect(":memory:", isolation_level=None)
    theirs.execute(CREATE.replace("bigint PRIMARY KEY", "integer PRIMARY KEY"))
    theirs.executemany(INSERT, rows)

    def rate(cur: strandline.Cursor | sqlite3.Cursor) -> float:
        execute, done = cur.execute, 0
        begin = time.perf_counter()
        while time.perf_counter() < begin + bench.seconds / 2:
            for key in range(100):
                execute(READ, (key,)).fetchone()
            done += 100
        return done / (time.perf_counter() - begin)

    our, their = ours.cursor(), theirs.cursor()
    bench.compare(
        "SELECT by key, in memory", "stmt/s", "sqlite3", 1.0, lambda: rate(our), lambda: rate(their)
    )


CASES = {
    "overhead": overhead,
    "transactions": transactions,
    "executemany": executemany,
    "arrow": fetch_arrow,
}


def main() -> None:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, fewer rounds")
    parser.add_argument("--only", choices=sorted(CASES), help="one of the figures")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here too")
    parser.add_argument("--dir", type=pathlib.Path, help="where the files go")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        bench = Bench(options.quick, pathlib.Path(directory))
        print(f"Python {sys.version.split()[0]}, strandline {strandline.__version__}, "
              f"SQLite {sqlite3.sqlite_version}, {bench.rows:,} and {bench.frame_rows:,} rows, "
              f"median of {bench.rounds}")
        for name, case in CASES.items():
            if options.only in (None, name):
                case(bench)
    if options.json:
        options.json.write_text(json.dumps(bench.results, indent=2) + "\n")


if __name__ == "__main__":
    main()
