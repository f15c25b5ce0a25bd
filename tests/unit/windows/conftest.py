"""DuckDB complains at exit of whoever still holds a connection."""

import pytest

from tests.unit.windows.driving import connection


@pytest.fixture(scope="session", autouse=True)
def duckdb_ends():
    yield
    connection().close()
    connection.cache_clear()
