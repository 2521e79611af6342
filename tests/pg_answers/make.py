#!/usr/bin/env python3
"""Asks a PostgreSQL 15 server for the answers to the expressions of expressions.py.

    createdb --template template0 --lc-collate C --lc-ctype C.UTF-8 answers
    python3 tests/pg_answers/make.py "host=127.0.0.1 user=postgres dbname=answers"

writes tests/pg_answers/<topic>.tsv, which tests/tests/pg_answers.rs compares with Strandline's.
A line is an expression, its type and its answer, or `!` and the SQLSTATE of its error; `# name`
begins the expressions of one function or feature. Needs libpq and nothing else.
"""

import ctypes
import ctypes.util
import pathlib
import sys

from expressions import topics

PG = ctypes.CDLL(ctypes.util.find_library("pq") or "libpq.so.5")
for name in ("PQconnectdb", "PQexec"):
    getattr(PG, name).restype = ctypes.c_void_p
for name in ("PQgetvalue", "PQresultErrorField", "PQerrorMessage", "PQparameterStatus"):
    getattr(PG, name).restype = ctypes.c_char_p
PG.PQftype.restype = ctypes.c_uint
SQLSTATE = ord("C")


def escaped(text):
    for plain, code in (("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        text = text.replace(plain, code)
    return text


class Server:
    def __init__(self, conninfo):
        self.connection = ctypes.c_void_p(PG.PQconnectdb(conninfo.encode()))
        if PG.PQstatus(self.connection) != 0:
            sys.exit(PG.PQerrorMessage(self.connection).decode())
        version = PG.PQparameterStatus(self.connection, b"server_version").decode()
        if not version.startswith("15."):
            sys.exit(f"the answers are PostgreSQL 15's, this is {version}")
        for setting in ("TimeZone = 'UTC'", "DateStyle = 'ISO, MDY'", "IntervalStyle = 'postgres'",
                        "bytea_output = 'hex'", "extra_float_digits = 1", "xmloption = content", "client_min_messages = error"):
            self.ask(f"SET {setting}")
        self.types = {}

    def ask(self, sql):
        """(rows of (type number, text)), or the SQLSTATE."""
        result = ctypes.c_void_p(PG.PQexec(self.connection, sql.encode()))
        try:
            code = PG.PQresultErrorField(result, SQLSTATE)
            if code:
                return code.decode()
            rows = []
            for row in range(PG.PQntuples(result)):
                null = PG.PQgetisnull(result, row, 0)
                text = None if null else PG.PQgetvalue(result, row, 0).decode()
                rows.append((PG.PQftype(result, 0), text))
            if not rows and PG.PQnfields(result):
                rows.append((PG.PQftype(result, 0), "(no rows)"))
            return rows
        finally:
            PG.PQclear(result)

    def type_name(self, oid):
        if oid not in self.types:
            self.types[oid] = self.ask(f"SELECT format_type({oid}, -1)")[0][1]
        return self.types[oid]

    def answer(self, expression):
        rows = self.ask(f"SELECT {expression}")
        if isinstance(rows, str):
            return f"!{rows}"
        if not rows:
            return "\t(no columns)"
        shown = ["\\N" if text is None else escaped(text) for _, text in rows]
        return f"{self.type_name(rows[0][0])}\t{'|'.join(shown)}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    server = Server(sys.argv[1])
    here = pathlib.Path(__file__).parent
    total = 0
    for topic, groups in topics().items():
        lines = []
        for name, expressions in groups.items():
            lines.append(f"# {name}")
            lines.extend(f"{escaped(e)}\t{server.answer(e)}" for e in expressions)
            total += len(expressions)
        (here / (topic.replace(" ", "_") + ".tsv")).write_text("\n".join(lines) + "\n")
    print(f"{total} expressions")


if __name__ == "__main__":
    main()
