"""DuckDB as a peer of the benchmarks: one process, one connection, times measured inside.

Reads one JSON request per line from standard input and answers each with one JSON line; the
protocol is that of src/main.rs. Needs the wheel: pip install duckdb.
"""

import os
import time

import duckdb
from serve import serve


class Peer:
    def __init__(self):
        self.connection = None
        self.path = None

    def version(self):
        return {
            "version": f"DuckDB {duckdb.__version__} (Python wheel)",
            "settings": "database file, default memory limit, warm buffers",
        }

    def open(self, path, threads, memory_limit=None):
        """Opens (or creates) a database file in place of the open one."""
        self.close()
        config = {"threads": threads}
        if memory_limit is not None:
            config["memory_limit"] = memory_limit
        self.connection = duckdb.connect(path, config=config)
        self.path = path
        return {}

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        return {}

    def sql(self, sql):
        """Runs statements once; the seconds they took and the last result's rows as text."""
        start = time.perf_counter()
        rows = self.connection.execute(sql).fetchall()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "rows": [[str(v) for v in row] for row in rows]}

    def repeat(self, sql, seconds):
        """Runs a query, prepared once, over and over for `seconds`, at least 3 times; every run's
        seconds."""
        self.connection.execute(f"PREPARE repeated AS {sql}")
        times = []
        end = time.perf_counter() + seconds
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            self.connection.execute("EXECUTE repeated").fetchall()
            times.append(time.perf_counter() - start)
        self.connection.execute("DEALLOCATE repeated")
        return {"times": times}

    def size(self):
        """Bytes of the database file and its log after a checkpoint."""
        self.connection.execute("CHECKPOINT")
        paths = [self.path, self.path + ".wal"]
        return {"bytes": sum(os.path.getsize(p) for p in paths if os.path.exists(p))}


def main():
    peer = Peer()
    operations = {
        name: getattr(peer, name) for name in ("version", "open", "close", "sql", "repeat", "size")
    }
    serve(operations)


if __name__ == "__main__":
    main()
