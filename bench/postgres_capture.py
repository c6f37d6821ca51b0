"""Shell: `python -m bench.postgres_capture`: rows per second from a server to files and Arrow columns.

The server is one of this machine, started for the measurement; the source runs in this process, without Spark. Budget
on a 2-core machine: a server gives some 300,000 rows/s of a COPY and of a peek, and the source should not halve that.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from barnabas.spark.connectors.capture.options import parse_capture_options
from barnabas.spark.connectors.capture.staging import open_staging
from barnabas.spark.connectors.postgres.source import CONNECTOR, PostgresSource, open_postgres
from barnabas.testing.databases import PostgresServer

ROWS = 500_000
SMALL_TRANSACTIONS = 20_000
CREATE = """CREATE TABLE orders (id bigint PRIMARY KEY, name text, note text, at timestamptz, amount numeric(10, 2),
 paid boolean, data jsonb, count int, ratio float8, tags text[])"""
FILL = f"""INSERT INTO orders SELECT n, 'name of ' || n, null, now(), n / 100.0, n % 2 = 0, '{{"a": 1}}', n % 100,
 n / 7.0, '{{a,b}}' FROM generate_series(1, {ROWS}) n"""


@contextmanager
def opened(server: PostgresServer, folder: str) -> Iterator[PostgresSource]:
    """A source of the table, with its staging directory in the folder."""
    texts = {
        "stagingLocation": folder,
        "output": "rows",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.dbname": "postgres",
        "table.include.list": "public.orders",
    }
    options = parse_capture_options(
        texts, CONNECTOR.options, CONNECTOR.refused, connector=CONNECTOR.name, version=CONNECTOR.version
    )
    source = open_postgres(options)
    try:
        yield source
    finally:
        source.close()


def seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """How long an action takes, and its result."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def read(source: PostgresSource, start: dict[str, Any]) -> tuple[int, float, dict[str, Any]]:
    """Changes from a position on: their number, the time of the second read of the same range, and its end."""
    source.confirm(start)
    end = source.find_end(start, None, None)

    def count() -> int:
        return sum(len(table.changes) for one in source.read(start, end) for table in one.tables)

    count()  # compiles
    took, changes = seconds(count)
    return changes, took, end


def main() -> None:
    """Measure and print."""
    shown = Table("what", "rows", "rows/s")

    def show(what: str, rows: int, took: float) -> None:
        shown.add_row(what, f"{rows:,}", f"{rows / took:,.0f}")

    with (
        PostgresServer() as server,
        tempfile.TemporaryDirectory() as folder,
        opened(server, folder) as source,
        psycopg.connect(server.conninfo, autocommit=True) as session,
    ):
        session.execute(CREATE)
        session.execute(FILL)
        source.check(None, begun=False)
        writer = open_staging(folder).begin(source.identity)
        took, position = seconds(lambda: source.take_snapshot(writer, rows=True, follow=True))
        show("snapshot, staged", ROWS, took)
        session.execute("UPDATE orders SET count = count + 1")
        changes, took, position = read(source, position)
        show("changes of one transaction", changes, took)
        with session.cursor() as cursor:
            statement = "UPDATE orders SET count = count + 1 WHERE id = %s"
            cursor.executemany(statement, [(number + 1,) for number in range(SMALL_TRANSACTIONS)])
        changes, took, position = read(source, position)
        show("changes of small transactions", changes, took)
    Console().print(shown)


if __name__ == "__main__":
    main()
