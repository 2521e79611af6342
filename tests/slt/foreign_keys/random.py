#!/usr/bin/env python3
"""Writes random.slt: random graphs of tables with foreign keys (self-references and cycles, all
actions, deferred or not) and random statements, with the answers of PostgreSQL 15.

    PGHOST=... PGUSER=postgres python3 tests/slt/foreign_keys/random.py [SEED] > random.slt

It creates and drops a database `foreign_keys_random`. Needs `psql` on the path.
"""

import random
import re
import subprocess
import sys

GRAPHS, STATEMENTS, KEYS = 12, 45, 5
ACTIONS = ["no action", "restrict", "cascade", "set null", "set default"]
rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 18)


class Server:
    """One psql, fed statement by statement."""

    def __init__(self):
        subprocess.run(["psql", "-qc", "drop database if exists foreign_keys_random", "postgres"],
                       check=True, stderr=subprocess.DEVNULL)
        subprocess.run(["psql", "-qc", "create database foreign_keys_random", "postgres"], check=True)
        self.psql = subprocess.Popen(
            ["psql", "-XAt", "-F", " ", "-P", "null=NULL", "-v", "VERBOSITY=sqlstate", "foreign_keys_random"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)

    def run(self, sql):
        """The lines of the answer: rows, the command tag, or `ERROR:  23503`."""
        self.psql.stdin.write(sql + ";\n\\echo ==end==\n")
        self.psql.stdin.flush()
        lines = []
        for line in self.psql.stdout:
            if line.strip() == "==end==":
                return lines
            if not re.match(r"(NOTICE|WARNING|DETAIL|HINT|CONTEXT|LINE)", line):
                lines.append(line.rstrip("\n"))
        raise SystemExit("psql ended")


server = Server()


def statement(sql):
    lines = server.run(sql)
    last = lines[-1] if lines else ""
    error = re.match(r"ERROR:\s+(\w{5})", last)
    counted = re.match(r"(?:INSERT 0|UPDATE|DELETE) (\d+)$", last)
    if error:
        print(f"statement error ({error[1]})")
    elif counted:
        print(f"statement count {counted[1]}")
    else:
        print("statement ok")
    print(sql + "\n")
    return error is None


def query(sql):
    lines = server.run(sql)
    print("query " + "I" * (len(lines[0].split()) if lines else 3))
    print(sql)
    print("----")
    for line in lines:
        print(line)
    print()


def value():
    return rng.choice(["null"] + [str(n) for n in range(KEYS)])


def graph(number):
    tables = [f"g{number}_{letter}" for letter in "abcd"[: rng.randint(2, 4)]]
    for table in tables:
        default = rng.choice(["", "", f" default {rng.randrange(KEYS)}"])
        check = rng.choice(["", "", "", f" check (x is null or x <> {rng.randrange(KEYS)})"])
        statement(f"create table {table} (k int primary key, x int{default}{check}, y int)")
    for child in tables:
        for column in "xy":
            if rng.random() < 0.75:
                parent = rng.choice(tables)
                timing = rng.choice(["", "", "", " deferrable initially deferred"])
                delete, update = rng.choice(ACTIONS), rng.choice(ACTIONS)
                statement(
                    f"alter table {child} add foreign key ({column}) references {parent}"
                    f" on delete {delete} on update {update}{timing}")
    in_block = False
    for n in range(STATEMENTS):
        table = rng.choice(tables)
        kind = rng.random()
        if not in_block and kind < 0.08:
            in_block = statement("begin")
            continue
        if in_block and kind < 0.25:
            statement(rng.choice(["commit", "commit", "rollback"]))
            in_block = False
            continue
        if kind < 0.6:
            rows = ", ".join(f"({rng.randrange(KEYS)}, {value()}, {value()})" for _ in range(rng.choice([1, 1, 2])))
            sql = f"insert into {table} values {rows} on conflict do nothing"
            if rng.random() < 0.4:
                sql = f"insert into {table} values ({rng.randrange(KEYS)}, null, null) on conflict do nothing"
        elif kind < 0.8:
            column = rng.choice("kkxy")
            new = f"{column} + 1" if rng.random() < 0.2 and column != "k" else (
                str(rng.randrange(KEYS)) if column == "k" else value())
            sql = f"update {table} set {column} = {new} where k = {rng.randrange(KEYS)}"
        else:
            sql = f"delete from {table} where k = {rng.randrange(KEYS)}"
            if rng.random() < 0.2:
                sql = f"delete from {table}"
        done = statement(sql)
        if in_block and not done:
            statement("rollback")
            in_block = False
    if in_block:
        statement("commit")
    for table in tables:
        query(f"select k, x, y from {table} order by k")
    statement("drop table " + ", ".join(tables))


print("# Random graphs of tables with foreign keys and random statements. The answers are PostgreSQL 15's;")
print("# made by random.py beside this file.\n")
for number in range(GRAPHS):
    graph(number)
