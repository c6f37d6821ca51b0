"""A running database of each kind, with what the tests of the sinks need of it, and a proxy that loses answers."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pymysql

from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId, StagedPart
from barnabas.spark.connectors.sinking.writer import SinkPlan, stage_rows
from barnabas.spark.connectors.sql.sinks import opening
from barnabas.spark.delivery.checkpoints import CheckpointHistory

QUERY = "6f1e3c8a-0000-4000-8000-000000000001"
_NUMBERS = itertools.count()


class SinkDatabase:
    """A server with a connection of its own in autocommit mode."""

    format = ""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.connection: Any = None
        self.schema = f"s{next(_NUMBERS)}"

    def open(self) -> None:
        raise NotImplementedError

    def url(self, port: int | None = None) -> str:
        raise NotImplementedError

    def run(self, sql: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def stages(self) -> list[str]:
        found = self.rows(
            "SELECT table_name FROM information_schema.tables"
            f" WHERE table_schema = '{self.schema}' AND table_name LIKE 'barnabas%'"
        )
        return sorted(str(name) for (name,) in found if name != "barnabas_ledger")

    def plan(self, port: int | None = None, **given: str) -> SinkPlan:
        options = {name.replace("_", "."): text for name, text in given.items()}
        options |= {"connection.url": self.url(port), **self.login(), "retry.backoff.ms": "10"}
        return self.make(options)

    def login(self) -> Mapping[str, str]:
        raise NotImplementedError

    def make(self, options: Mapping[str, str]) -> SinkPlan:
        raise NotImplementedError


class PostgresSinkDatabase(SinkDatabase):
    """A schema of its own in the database `postgres`."""

    format = "barnabas.postgres"

    def open(self) -> None:
        self.connection = psycopg.connect(self.server.conninfo, autocommit=True)
        self.run(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
        self.run(f"SET search_path = {self.schema}")

    def url(self, port: int | None = None) -> str:
        return f"jdbc:postgresql://127.0.0.1:{port or self.server.port}/postgres?currentSchema={self.schema}"

    def login(self) -> Mapping[str, str]:
        return {"connection.user": "postgres"}

    def make(self, options: Mapping[str, str]) -> SinkPlan:
        return opening.postgres_plan(options)


class MariaDbSinkDatabase(SinkDatabase):
    """A database of its own."""

    format = "barnabas.mariadb"

    def open(self) -> None:
        self.connection = pymysql.connect(
            host="127.0.0.1", port=self.server.port, user=self.server.user, password=self.server.password,
            autocommit=True,
        )  # fmt: skip
        self.run(f"CREATE DATABASE IF NOT EXISTS {self.schema}")
        self.run(f"USE {self.schema}")

    def url(self, port: int | None = None) -> str:
        return f"jdbc:mariadb://127.0.0.1:{port or self.server.port}/{self.schema}"

    def login(self) -> Mapping[str, str]:
        return {"connection.user": self.server.user, "connection.password": self.server.password}

    def make(self, options: Mapping[str, str]) -> SinkPlan:
        return opening.mysql_plan(options)


def stage(plan: SinkPlan, number: int, tasks: Sequence[Sequence[Any]], query: str = QUERY) -> list[StagedPart]:
    """Stage batches: one list of them for each task."""
    plan.target.prepare(query)
    parts: list[StagedPart] = []
    for task, batches in enumerate(tasks):
        parts += stage_rows(iter(batches), plan, AttemptId(query, "run", number, task, 0)).parts
    return parts


def write(
    plan: SinkPlan, number: int, *batches: Any, query: str = QUERY, history: CheckpointHistory | None = None
) -> None:
    """Write a micro-batch with one task for each batch."""
    parts = stage(plan, number, [[batch] for batch in batches], query)
    batch = BatchId(query, number, history=history)
    if history is None:
        plan.target.publish(batch, parts)
    else:
        history.explain(lambda: plan.target.publish(batch, parts))


class LosingProxy:
    """Forwards connections to a server. Once it is armed, the first COMMIT is forwarded, and its answer is not: both
    sides find the connection closed.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._armed = False
        self.lost = 0
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def arm(self) -> None:
        self._armed = True

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                state = {"lose": False}
                self._start(self._requests, client, server, state)
                self._start(self._answers, client, server, state)

    def _requests(self, client: socket.socket, server: socket.socket, state: dict[str, bool]) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self._armed and b"COMMIT" in data.upper():
                    self._armed = False
                    state["lose"] = True
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)

    def _answers(self, client: socket.socket, server: socket.socket, state: dict[str, bool]) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if state["lose"]:
                    self.lost += 1
                    break
                client.sendall(data)
        for one in (client, server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextlib.contextmanager
def losing_proxy(port: int) -> Iterator[LosingProxy]:
    proxy = LosingProxy(port)
    yield proxy
    proxy.close()
