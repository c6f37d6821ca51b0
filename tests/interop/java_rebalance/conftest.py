"""Fixtures: the broker, ours or with PEER=kafka an Apache Kafka with the same settings, and groups on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol as Port

import pytest

from barnabas.testing.process import BrokerProcess
from tests.interop.apache_kafka import ApacheKafka
from tests.interop.java_rebalance.members import Group, Protocol, compile_member

SETTINGS = (
    "offsets.topic.num.partitions=4",
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=1000",
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=3000",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=300",
)


class Server(Port):
    @property
    def bootstrap(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


class _Ours(BrokerProcess):
    @property
    def bootstrap(self) -> str:
        return self.bootstrap_servers


@pytest.fixture(scope="session")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_member(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("rebalance")
    running: Server
    if os.environ.get("PEER") == "kafka":
        running = ApacheKafka(folder, SETTINGS)
    else:
        running = _Ours(folder / "data", settings=SETTINGS)
    running.start()
    yield running
    running.kill()


@pytest.fixture
def new_group(
    server: Server, classpath: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[Protocol], Group]]:
    """Groups named after the test; at its end their histories are judged, and their members ended."""
    groups: list[Group] = []

    def new(protocol: Protocol) -> Group:
        name = request.node.name.removeprefix("test_").replace("[", "-").rstrip("]")
        groups.append(Group(server.bootstrap, name, protocol, classpath, tmp_path))
        return groups[-1]

    yield new
    for group in groups:
        group.close()
    for group in groups:
        group.assert_sound()
