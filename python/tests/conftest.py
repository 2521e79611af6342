"""What the tests share."""

import pytest

import strandline


@pytest.fixture
def con():
    """A connection to a new database in memory."""
    connection = strandline.connect()
    yield connection
    connection.close()


@pytest.fixture
def auto():
    """The same with autocommit."""
    connection = strandline.connect(autocommit=True)
    yield connection
    connection.close()
