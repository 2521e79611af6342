"""psycopg as the client of the servers that the benchmarks compare: one connection to each, in turn.

Reads one JSON request per line from standard input and answers each with one JSON line, times
measured inside; the protocol is that of src/main.rs. Needs psycopg 3.2, which
server/tests/clients/install.sh installs.
"""

import datetime
import decimal
import gc
import re
import time

import psycopg
from serve import serve

YEAR = datetime.datetime(2026, 1, 1)


def value(datum):
    """A parameter's value from the form of src/script.rs."""
    ((kind, content),) = datum.items()
    if kind == "cents":
        return decimal.Decimal(content).scaleb(-2)
    if kind == "moment":
        return YEAR + datetime.timedelta(seconds=content)
    return content


def text(cell):
    """A cell as text, numbers without the digits that only their type gives them."""
    if cell is None:
        return None
    if isinstance(cell, (int, float, decimal.Decimal)) and not isinstance(cell, bool):
        number = decimal.Decimal(str(cell)).normalize()
        return format(abs(number) if number == 0 else number, "f")
    return str(cell)


class Executor:
    """Runs one statement with one row of values after the other."""

    def __init__(self, connection, mode, sql):
        self.is_prepared = mode == "prepared"
        if self.is_prepared:
            self.cursor, self.sql = psycopg.RawCursor(connection), sql
        else:
            # The client writes the values into the text.
            self.cursor = psycopg.ClientCursor(connection)
            self.sql = re.sub(r"\$(\d+)", r"%(p\1)s", sql.replace("%", "%%"))

    def arguments(self, values):
        """A row of values in the form that the cursor takes."""
        if self.is_prepared:
            return values
        return {f"p{number}": value for number, value in enumerate(values, 1)}

    def execute(self, arguments):
        self.cursor.execute(self.sql, arguments, prepare=self.is_prepared)


class Peer:
    def __init__(self):
        self.connections = {}

    def version(self):
        return {
            "version": f"psycopg {psycopg.__version__}",
            "settings": f"{psycopg.pq.__impl__}, autocommit, text format",
        }

    def connect(self, server, port, settings):
        """Opens the connection to a server, which runs `settings` first."""
        connection = psycopg.connect(
            host="127.0.0.1", port=port, user="postgres", dbname="postgres", autocommit=True
        )
        # Statements of one case must not push each other out.
        connection.prepared_max = 1000
        connection.execute(settings)
        self.connections[server] = connection
        return {}

    def run(self, server, sql):
        """Runs a statement without values; its rows as text."""
        cursor = self.connections[server].execute(sql)
        rows = cursor.fetchall() if cursor.description else []
        return {"rows": [[text(cell) for cell in row] for row in rows]}

    def answers(self, server, mode, sql, values):
        """Each execution's command tag, names of columns and rows as text."""
        executor = Executor(self.connections[server], mode, sql)
        answers = []
        for row in values:
            executor.execute(executor.arguments([value(datum) for datum in row]))
            cursor = executor.cursor
            columns = [column.name for column in cursor.description or []]
            rows = cursor.fetchall() if cursor.description else []
            cells = [[text(cell) for cell in row] for row in rows]
            answers.append({"tag": cursor.statusmessage, "columns": columns, "rows": cells})
        return {"answers": answers}

    def time(self, server, mode, sql, values, rows):
        """Mean microseconds of an execution with its rows fetched. The first execution is not
        counted. Fails if one gives another number of rows than `rows`, unless that is None."""
        executor = Executor(self.connections[server], mode, sql)
        batch = [executor.arguments([value(datum) for datum in row]) for row in values]
        executor.execute(batch[0])
        cursor = executor.cursor
        gives_rows = cursor.description is not None
        gc.disable()
        try:
            started = time.perf_counter_ns()
            for arguments in batch[1:]:
                executor.execute(arguments)
                if gives_rows:
                    found = len(cursor.fetchall())
                    if rows is not None and found != rows:
                        raise ValueError(f"{found} rows of {rows}: {sql} {arguments}")
            elapsed = time.perf_counter_ns() - started
        finally:
            gc.enable()
        return {"us": elapsed / 1000 / (len(batch) - 1)}


def main():
    peer = Peer()
    names = ("version", "connect", "run", "answers", "time")
    operations = {name: getattr(peer, name) for name in names}
    serve(operations)


if __name__ == "__main__":
    main()
