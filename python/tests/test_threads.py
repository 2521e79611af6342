"""Threads, Ctrl-C, forks, the end of the process."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import strandline

LONG = "SELECT pg_sleep(60)"


@pytest.fixture
def big(auto):
    auto.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 20000) s(n)")
    return auto


def running():
    from strandline import _native

    return len(_native.running())


def wait_until_running():
    while not running():
        threading.Event().wait(0.01)


def test_statements_of_one_connection_from_several_threads(auto):
    auto.execute("CREATE TABLE t (a int)")
    failures = []

    def work(number):
        try:
            for i in range(50):
                auto.execute("INSERT INTO t VALUES (?)", (number * 1000 + i,))
                auto.execute("SELECT count(*) FROM t").fetchall()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert auto.execute("SELECT count(DISTINCT a) FROM t").fetchone() == (200,)


def test_python_goes_on_while_a_statement_runs_and_can_interrupt_it(big):
    caught = []

    def work():
        try:
            big.execute(LONG)
        except strandline.Error as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until_running()
    assert sum(range(1000)) == 499500
    with big.duplicate() as other:
        assert other.execute("SELECT count(*) FROM t").fetchone() == (20000,)
    big.interrupt()
    thread.join()
    assert [error.sqlstate for error in caught] == ["57014"]
    assert isinstance(caught[0], strandline.OperationalError)
    big.interrupt()
    assert big.execute("SELECT 1").fetchone() == (1,)


@pytest.fixture(autouse=True)
def ctrl_c():
    """Of a job in the background SIGINT is ignored; these tests want Python's own handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_raises_keyboard_interrupt(big):
    def press():
        wait_until_running()
        os.kill(os.getpid(), signal.SIGINT)

    for run in (
        lambda: big.execute(LONG),
        lambda: big.execute("SELECT * FROM generate_series(1, 1000000000000)").arrow(),
    ):
        thread = threading.Thread(target=press)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run()
        thread.join()
        assert big.execute("SELECT 1").fetchone() == (1,)


def test_ctrl_c_ends_waiting_for_a_lock(auto):
    auto.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
    auto.execute("INSERT INTO t VALUES (1, 1)")
    other = auto.duplicate()
    other.execute("BEGIN")
    other.execute("UPDATE t SET b = 2 WHERE a = 1")

    def press():
        wait_until_running()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        auto.execute("UPDATE t SET b = 3 WHERE a = 1")
    thread.join()
    other.close()
    assert auto.execute("SELECT b FROM t").fetchone() == (1,)


def test_a_wakeup_descriptor_of_the_program_stays(auto):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer)
    try:
        strandline.connect().close()
        threading.Event().wait(1.1)
        auto.execute("SELECT 1")
        assert signal.set_wakeup_fd(writer) == writer
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def test_a_cursor_is_one_threads(big):
    cur = big.cursor()
    thread = threading.Thread(target=lambda: pytest.raises(strandline.Error, cur.execute, LONG))
    thread.start()
    wait_until_running()
    with pytest.raises(strandline.InterfaceError, match="another thread"):
        cur.fetchone()
    big.interrupt()
    thread.join()


def test_two_connections_are_independent(tmp_path):
    one = strandline.connect(tmp_path / "db")
    two = strandline.connect(tmp_path / "db")
    one.execute("CREATE TABLE t (a int)")
    one.commit()
    one.execute("INSERT INTO t VALUES (1)")
    assert two.execute("SELECT count(*) FROM t").fetchone() == (0,)
    one.commit()
    assert two.execute("SELECT count(*) FROM t").fetchone() == (1,)
    one.close()
    two.close()


def in_child(con, cur, pipe):
    refused = 0
    for use in (con.commit, lambda: con.execute("SELECT 1"), cur.fetchall, con.cursor):
        try:
            use()
        except strandline.InterfaceError as error:
            refused += "fork" in str(error)
    con.close()
    with strandline.connect() as own:
        pipe.send((refused, own.execute("SELECT 1").fetchone()))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_is_told(tmp_path):
    con = strandline.connect(tmp_path / "db", autocommit=True)
    con.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 100000) s(n)")
    cur = con.execute("SELECT n FROM t")
    here, there = multiprocessing.Pipe()
    fork = multiprocessing.get_context("fork")
    child = fork.Process(target=in_child, args=(con, cur, there))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert here.recv() == (4, (1,))
    assert len(cur.fetchall()) == 100_000
    con.close()
    with strandline.connect(tmp_path / "db") as again:
        assert again.execute("SELECT count(*) FROM t").fetchone() == (100_000,)


def run(script, *arguments):
    script = textwrap.dedent(script)
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_all_connections_are_closed_although_one_fails(tmp_path):
    done = run(
        """
        import pathlib, shutil, sys, strandline
        home = pathlib.Path(sys.argv[1])
        broken = strandline.connect(home / "broken")
        whole = strandline.connect(home / "whole")
        for con in (broken, whole):
            con.execute("CREATE TABLE t (a int)")
            con.commit()
        shutil.rmtree(home / "broken")
        try:
            strandline._native.close_all()
        except strandline.Error as error:
            print(repr(whole), repr(broken), "failed" if error.sqlstate else "")
        """,
        tmp_path,
    )
    closed = "<strandline.Connection: closed>"
    assert done.stdout.strip() == f"{closed} {closed} failed", done.stderr


def test_a_dropped_connection_closes_without_the_interpreter_lock(tmp_path):
    done = run(
        """
        import sys, threading, strandline
        con = strandline.connect(sys.argv[1])
        con.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 2000000) s(n)")
        con.commit()
        lock = threading.Lock()
        lock.acquire()
        ran = []
        def run():
            with lock:
                ran.append(True)
        thread = threading.Thread(target=run)
        thread.start()
        # No switch between threads unless one gives the interpreter lock up.
        sys.setswitchinterval(1000)
        lock.release()
        del con
        print("went on" if ran else "stood still")
        """,
        tmp_path / "db",
    )
    assert done.stdout.strip() == "went on", done.stderr


def test_commits_survive_the_end_of_a_process_that_closes_nothing(tmp_path):
    done = run(
        """
        import sys, strandline, threading
        con = strandline.connect(sys.argv[1], synchronous_commit=False)
        con.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 20000) s(n)")
        con.commit()
        con.execute("INSERT INTO t VALUES (-1)")
        other = con.duplicate()
        long = threading.Thread(target=other.execute, args=("SELECT pg_sleep(60)",), daemon=True)
        long.start()
        while not strandline._native.running():
            pass
        print("end")
        """,
        tmp_path / "db",
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    with strandline.connect(tmp_path / "db") as con:
        assert con.execute("SELECT count(*), min(n) FROM t").fetchone() == (20000, 1)


def test_another_process_cannot_open_the_database(tmp_path):
    with strandline.connect(tmp_path / "db"):
        done = run("import sys, strandline; strandline.connect(sys.argv[1])", tmp_path / "db")
        assert "OperationalError" in done.stderr
        assert str(os.getpid()) in done.stderr


def test_progress_is_shown():
    done = run(
        """
        import strandline, threading
        from strandline import _progress
        _progress.PATIENCE_S, _progress.TICK_S = 0.0, 0.01
        con = strandline.connect(autocommit=True, progress=True)
        timer = threading.Timer(1.0, con.interrupt)
        timer.start()
        try:
            con.execute("SELECT pg_sleep(60)")
        except strandline.OperationalError:
            pass
        """
    )
    assert "running for 0 s (Ctrl-C cancels)" in done.stderr
    quiet = run("import strandline; strandline.connect(); print(strandline._progress._watcher)")
    assert quiet.stdout == "None\n"
