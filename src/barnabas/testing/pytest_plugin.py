"""Shell: a pytest plugin that provides the fixtures below. pytest finds the plugin wherever this package is installed.

    def test_orders(barnabas_broker, barnabas_topic):
        producer = Producer({"bootstrap.servers": barnabas_broker.bootstrap_servers})
        producer.send(barnabas_topic, b"hello")

docs/TESTING_YOUR_CODE.md has an example of each fixture. `async_fixtures.py` has the fixture for coroutines.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client import Admin
    from barnabas.testing.clients import AsyncClients, BlockingClients
    from barnabas.testing.embedded import EmbeddedBroker
    from barnabas.testing.process_cluster import ClusterProcess

TOPIC_NAME_MAX: Final = 249
CLUSTER_BROKERS: Final = 3


def pytest_configure(config: pytest.Config) -> None:
    from barnabas.testing import async_fixtures

    async_fixtures.register(config)


@pytest.fixture(scope="session")
def barnabas_broker() -> Iterator[EmbeddedBroker]:
    """One embedded broker for the whole session. Tests share it: use `barnabas_topic`, and group names of your own."""
    from barnabas.testing.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def barnabas_broker_factory() -> Iterator[Callable[..., EmbeddedBroker]]:
    """Makes embedded brokers for one test: `factory(config={"num.partitions": "3"}, proxied=True)`; stopped when the
    test ends."""
    from barnabas.testing.embedded import EmbeddedBroker

    started: list[EmbeddedBroker] = []

    def make(*args: Any, **options: Any) -> EmbeddedBroker:
        broker = EmbeddedBroker(*args, **options).start()
        started.append(broker)
        return broker

    yield make
    for broker in reversed(started):
        broker.stop()


@pytest.fixture(scope="session")
def barnabas_bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """The cluster in which the fixtures below create topics and to which their clients connect: `barnabas_broker`.
    Define a fixture of this name to use another one."""
    servers: str = request.getfixturevalue("barnabas_broker").bootstrap_servers
    return servers


@pytest.fixture
def barnabas_clients(barnabas_bootstrap_servers: str) -> Iterator[BlockingClients]:
    """Makes blocking producers, consumers and administrative clients, which are closed when the test ends."""
    from barnabas.testing.clients import BlockingClients

    clients = BlockingClients(barnabas_bootstrap_servers)
    yield clients
    clients.close()


@pytest.fixture
def barnabas_async_clients(request: pytest.FixtureRequest) -> AsyncClients:
    """Makes asyncio clients on the test's event loop (pytest-asyncio or anyio), which are closed when the test ends."""
    from barnabas.testing import async_fixtures

    clients: AsyncClients = request.getfixturevalue(async_fixtures.name_for(request))
    return clients


@pytest.fixture(scope="session")
def _barnabas_admin(barnabas_bootstrap_servers: str) -> Iterator[Admin]:
    from barnabas.client import Admin

    with Admin(bootstrap_servers=barnabas_bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def barnabas_topic_factory(_barnabas_admin: Admin, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Creates topics that no other test uses, and returns their names: `factory(partitions=3, configs={...})`; deleted
    when the test ends."""
    created: list[str] = []

    def create(partitions: int = 1, *, replication_factor: int = -1, configs: Mapping[str, str] | None = None) -> str:
        test = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)
        unique = f"-{uuid.uuid4().hex[:12]}"
        name = test[: TOPIC_NAME_MAX - len(unique)] + unique
        _barnabas_admin.create_topic(name, partitions, replication_factor, configs=configs)
        created.append(name)
        return name

    yield create
    if created:
        _barnabas_admin.delete_topics(created)


@pytest.fixture
def barnabas_topic(barnabas_topic_factory: Callable[..., str]) -> str:
    """The name of a new topic with one partition, which no other test uses; deleted when the test ends."""
    return barnabas_topic_factory()


@pytest.fixture
def barnabas_cluster_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ClusterProcess]]:
    """Makes clusters of processes for one test: `factory(brokers=5, controllers=3, settings=["num.partitions=4"])`,
    with a proxy in front of each broker; killed when the test ends."""
    from barnabas.testing.process_cluster import ClusterProcess

    started: list[ClusterProcess] = []

    def make(**options: Any) -> ClusterProcess:
        options = {"brokers": CLUSTER_BROKERS, "proxied": True, **options}
        cluster = ClusterProcess(tmp_path_factory.mktemp("cluster"), **options)
        started.append(cluster)
        cluster.start()
        return cluster

    yield make
    for cluster in reversed(started):
        cluster.close()


@pytest.fixture
def barnabas_cluster(barnabas_cluster_factory: Callable[..., ClusterProcess]) -> ClusterProcess:
    """Three brokers, each a process that a test can kill, pause and restart, with a proxy in front of each."""
    return barnabas_cluster_factory()
