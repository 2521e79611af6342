"""The type stubs say what is there, and type checkers accept the package."""

import importlib.util
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mypy") is None, reason="mypy is not installed"
)


def test_stubs_match_the_module():
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "strandline._native", "--ignore-disjoint-bases"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_typed():
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "-p", "strandline"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
