"""The database servers of the tests of connectors. Each starts once a session; a module uses it by a fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.testing.databases import MariaDbServer, PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that every test of the session shares: use a database or table names of your own."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    """A MariaDB server that every test of the session shares: use a database or table names of your own."""
    with MariaDbServer() as server:
        yield server
