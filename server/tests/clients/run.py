#!/usr/bin/env python3
"""Real clients against `strandline serve`: psql, pg_dump, pgbench, psycopg 3, SQLAlchemy, Alembic,
Django, TPC-C, JDBC, node-postgres.

Usage: run.py BINARY [CLIENT ...]. BINARY is the `strandline` program; without clients all run. Each
gets a server and a database of its own. `install.sh` provides what is not there yet.
"""

import difflib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
CACHE = pathlib.Path(os.environ.get("STRANDLINE_CLIENTS", "~/.cache/strandline/clients")).expanduser()
PYTHON = CACHE / "venv/bin/python"
JDBC = CACHE / "jdbc/postgresql.jar"
LIMIT = 120
# The owner of what is made while there are no users, whom a dump names.
OWNER = "strandline"


class Failure(Exception):
    pass


class Server:
    """A server on a free port, its database gone afterwards."""

    def __init__(self, binary):
        self.binary = binary
        self.directory = tempfile.mkdtemp(prefix="strandline-clients-")
        arguments = [binary, "serve", self.directory + "/db", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
        self.port = None
        while self.port is None:
            line = self.process.stderr.readline()
            if not line:
                raise Failure("the server does not start")
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            self.port = found and int(found[1])

    def environment(self):
        return dict(
            os.environ,
            PGHOST="127.0.0.1",
            PGPORT=str(self.port),
            PGUSER="ada",
            PGDATABASE="strandline",
            NODE_PATH=str(CACHE / "node/node_modules"),
        )

    def stop(self):
        """SIGTERM ends it in order."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failure("the server does not stop")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
        if code != 0:
            raise Failure(f"the server ended with {code}")


def run(server, *command, stdin=None):
    done = subprocess.run(
        [str(c) for c in command],
        env=server.environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
    )
    return done.returncode, done.stdout


def require(server, *command):
    code, output = run(server, *command)
    if code != 0:
        raise Failure(f"{command[0]} ended with {code}\n{output}")
    return output


def psql(server):
    """Scripts with the output that PostgreSQL 15 gives."""
    for script in sorted((HERE / "psql").glob("*.sql")):
        with script.open() as stdin:
            _, output = run(server, "psql", "-X", "-a", "-q", stdin=stdin)
        expected = script.with_suffix(".out").read_text()
        if output != expected:
            lines = difflib.unified_diff(
                expected.splitlines(), output.splitlines(), "expected", "got", lineterm=""
            )
            raise Failure(script.name + "\n" + "\n".join(lines))


def pg_dump(server):
    """A dump loaded into an empty Strandline and into PostgreSQL gives the same database."""
    source = HERE / "pg_dump"
    script = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]
    require(server, *script, source / "schema.sql")
    with tempfile.TemporaryDirectory(prefix="strandline-dump-") as directory:
        dump = pathlib.Path(directory) / "dump.sql"
        os.chmod(directory, 0o755)
        require(server, pg_program("pg_dump"), "-f", dump)
        state = require(server, *script, source / "state.sql")
        again = Server(server.binary)
        try:
            require(again, *script, dump)
            second = pathlib.Path(directory) / "second.sql"
            require(again, pg_program("pg_dump"), "-f", second)
            expect_equal("the dump of the loaded dump", statements(dump), statements(second))
            expect_equal("Strandline", state, require(again, *script, source / "state.sql"))
        finally:
            again.stop()
        postgresql = PostgreSQL()
        try:
            require(postgresql, *script, dump)
            expect_equal("PostgreSQL", state, require(postgresql, *script, source / "state.sql"))
        finally:
            postgresql.stop()


def statements(dump):
    """A dump without the key that is another one in each."""
    lines = dump.read_text().splitlines()
    return "\n".join(line for line in lines if not re.match(r"\\(un)?restrict ", line))


def expect_equal(name, expected, output):
    if output != expected:
        lines = difflib.unified_diff(
            expected.splitlines(), output.splitlines(), "expected", name, lineterm="", n=1
        )
        raise Failure("\n".join(lines))


def pg_program(name):
    """A program of PostgreSQL 15, which has servers' own programs outside of PATH."""
    found = pathlib.Path("/usr/lib/postgresql/15/bin") / name
    return found if found.exists() else name


class PostgreSQL:
    """A PostgreSQL server with an empty database, which is gone afterwards."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="strandline-postgresql-", dir="/var/tmp")
        # It refuses to run as root.
        self.runs_as = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        if self.runs_as:
            shutil.chown(self.directory, "postgres")
        data = self.directory + "/data"
        self.control("initdb", "-D", data, "-A", "trust", "-U", OWNER, "-E", "UTF8", "--locale=C")
        options = f"-c listen_addresses='' -k {self.directory}"
        log = self.directory + "/log"
        self.control("pg_ctl", "-D", data, "-o", options, "-l", log, "-w", "start")
        command = ["createdb", "strandline"]
        require(self, *command)

    def control(self, program, *arguments):
        command = [*self.runs_as, str(pg_program(program)), *arguments]
        done = subprocess.run(
            command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=LIMIT
        )
        if done.returncode != 0:
            raise Failure(f"{program} ended with {done.returncode}\n{done.stderr}")

    def environment(self):
        return dict(os.environ, PGHOST=self.directory, PGUSER=OWNER, PGDATABASE="strandline")

    def stop(self):
        try:
            self.control("pg_ctl", "-D", self.directory + "/data", "-m", "immediate", "stop")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


def pgbench(server):
    """With and without foreign keys."""
    tpcb(server)
    tpcb(server, "--foreign-keys")
    keys = require(
        server,
        "psql",
        "-XAtc",
        "SELECT conrelid::regclass, confrelid::regclass FROM pg_constraint WHERE contype = 'f' ORDER BY 1, 2",
    )
    expected = [
        "pgbench_accounts|pgbench_branches",
        "pgbench_history|pgbench_accounts",
        "pgbench_history|pgbench_branches",
        "pgbench_history|pgbench_tellers",
        "pgbench_tellers|pgbench_branches",
    ]
    if sorted(keys.split()) != expected:
        raise Failure(f"foreign keys: {keys}")


def tpcb(server, *options):
    """Initialisation, every protocol, TPC-B under contention: the sums must agree."""
    require(server, "pgbench", "-i", "-q", "-s", "1", *options)
    for mode in ["simple", "extended", "prepared"]:
        require(server, "pgbench", "-n", "-S", "-M", mode, "-c", "2", "-t", "50")
    for mode in ["simple", "prepared"]:
        counts = ["-c", "8", "-j", "2", "-t", "10", "--max-tries", "10"]
        output = require(server, "pgbench", "-n", "-M", mode, *counts)
        if "number of failed transactions: 0 " not in output:
            raise Failure(output)
    sums = [
        require(server, "psql", "-XAtc", f"SELECT sum({column}) FROM pgbench_{table}").strip()
        for column, table in [
            ("bbalance", "branches"),
            ("tbalance", "tellers"),
            ("abalance", "accounts"),
            ("delta", "history"),
        ]
    ]
    if len(set(sums)) != 1:
        raise Failure(f"the sums differ: {sums}")
    count = require(server, "psql", "-XAtc", "SELECT count(*) FROM pgbench_history").strip()
    if count != "160":
        raise Failure(f"{count} rows of history")


def psycopg(server):
    require(server, PYTHON, HERE / "psycopg_client.py")


def sqlalchemy(server):
    require(server, PYTHON, HERE / "sqlalchemy_client.py")


def alembic(server):
    require(server, PYTHON, HERE / "alembic_client.py")


def django(server):
    require(server, PYTHON, HERE / "django_client.py")


def tpcc(server):
    require(server, PYTHON, HERE / "tpcc_client.py")


def jdbc(server):
    require(server, "java", "-cp", JDBC, HERE / "Jdbc.java")


def node(server):
    require(server, "node", HERE / "node_client.js")


CLIENTS = {c.__name__: c for c in [psql, pg_dump, pgbench, psycopg, sqlalchemy, alembic, django, tpcc, jdbc, node]}


def main():
    binary, names = sys.argv[1], sys.argv[2:] or list(CLIENTS)
    failed = False
    for name in names:
        began = time.monotonic()
        try:
            server = Server(binary)
            try:
                CLIENTS[name](server)
            finally:
                server.stop()
            result = "ok"
        except (Failure, subprocess.TimeoutExpired) as error:
            result, failed = f"FAILED\n{error}", True
        print(f"{name}: {result} ({time.monotonic() - began:.1f} s)", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
