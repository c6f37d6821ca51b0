"""Three brokers over three real ZooKeeper servers, under the work of a foreign client (librdkafka).

The active controller is killed, stopped past its session, and shut down; a ZooKeeper server is killed: nothing that was
acknowledged is lost or doubled, be it a record, a committed offset or a topic.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.ports import free_ports
from barnabas.testing.process import BrokerProcess
from tests.interop.zookeeper.ensemble import Ensemble, why_not
from tests.system.chaos.workload import Acknowledged, Administrator, Committer, Writer, create_logs

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"needs ZooKeeper: {why_not()}")

PATIENCE_S = 90.0
GROUP = "committers"
SETTINGS = (
    "zookeeper.session.timeout.ms=2000",
    "broker.heartbeat.interval.ms=500",
    "broker.session.timeout.ms=3000",
    "offsets.topic.num.partitions=4",
    "group.initial.rebalance.delay.ms=0",
    "min.insync.replicas=2",
    "default.replication.factor=3",
    "metadata.log.max.record.bytes.between.snapshots=20000",
)


class Cluster:
    """Brokers 1 to 3, each a controller, too; `zookeeper` is an independent look at what they keep there."""

    def __init__(self, folder: Path) -> None:
        from kazoo.client import KazooClient

        self.ensemble = Ensemble(folder / "zookeeper")
        self.ensemble.start()
        self.connect = f"{self.ensemble.connect}/barnabas"
        self.nodes = {node_id: self.node(folder, node_id) for node_id in (1, 2, 3)}
        self.zookeeper: Any = KazooClient(self.connect)
        self._controller_moved = threading.Event()

    def node(self, folder: Path, node_id: int, name: str = "node") -> BrokerProcess:
        client, controller = free_ports(2)
        listeners = f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}"
        settings = [f"node.id={node_id}", f"zookeeper.connect={self.connect}", f"listeners={listeners}", *SETTINGS]
        return BrokerProcess(folder / f"{name}-{node_id}", settings=settings)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    def start(self) -> None:
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_ready(PATIENCE_S)
        self.zookeeper.start()

    def controller(self, *, other_than: int = -1) -> int:
        """The id of the active controller; waits until there is one."""
        while True:
            moved = threading.Event()
            if self.zookeeper.exists("/controller", watch=lambda _, moved=moved: moved.set()):
                with contextlib.suppress(self._no_node):
                    node_id = int(json.loads(self.zookeeper.get("/controller")[0])["brokerid"])
                    if node_id != other_than:
                        return node_id
            assert moved.wait(PATIENCE_S), "no other node became the active controller"

    @property
    def _no_node(self) -> type[Exception]:
        from kazoo.exceptions import NoNodeError

        return NoNodeError

    def stop(self) -> None:
        self.zookeeper.stop()
        self.zookeeper.close()
        for node in self.nodes.values():
            if node.alive:
                node.resume()
                node.kill()
        self.ensemble.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.timeout(600)
def test_work_goes_on_through_the_death_of_controllers(cluster: Cluster, tmp_path: Path) -> None:
    address = cluster.bootstrap_servers
    create_logs(address, replicas=3)
    acknowledged = Acknowledged()
    writers = [Writer(address, codec, acknowledged) for codec in ("none", "lz4")]
    committer, administrator = Committer(address, GROUP, "log-none"), Administrator(address, replicas=3)
    stop = threading.Event()
    jobs = [committer.run, administrator.run, *(writer.run for writer in writers)]
    workers = [threading.Thread(target=job, args=(stop,)) for job in jobs]
    for worker in workers:
        worker.start()
    try:
        acknowledged.wait_for_more(500, PATIENCE_S)
        _strike(cluster, acknowledged)
    finally:
        stop.set()
        for worker in workers:
            worker.join(PATIENCE_S)
    for writer in writers:
        writer.finish(PATIENCE_S)
    assert sum(writer.check(address) for writer in writers) > 1000
    committer.check(address, GROUP)
    administrator.check(address)
    assert len(administrator.created) > 3
    _grow_until_snapshot(cluster, address)


def _grow_until_snapshot(cluster: Cluster, address: str) -> None:
    """The controller looks every ten seconds; a slow machine may not have changed enough to call for a snapshot yet."""
    named = threading.Event()

    def on_tail(data: bytes, _stat: object) -> None:
        if json.loads(data)["snapshot"] is not None:
            named.set()

    cluster.zookeeper.DataWatch("/barnabas/metadata/tail", on_tail)
    admin = AdminClient({"bootstrap.servers": address})
    for number in range(int(PATIENCE_S)):
        if named.wait(1.0):
            return
        name = f"growth-{number}"
        admin.create_topics([NewTopic(name, 20, 3)])[name].result(PATIENCE_S)
    pytest.fail(f"no snapshot was made in {PATIENCE_S:.0f} s")


def _strike(cluster: Cluster, acknowledged: Acknowledged) -> None:
    killed = cluster.controller()
    cluster.nodes[killed].kill()
    cluster.controller(other_than=killed)
    acknowledged.wait_for_more(500, PATIENCE_S)
    cluster.nodes[killed].start(PATIENCE_S)
    acknowledged.wait_for_more(500, PATIENCE_S)

    zombie = cluster.controller()
    cluster.nodes[zombie].pause()
    cluster.controller(other_than=zombie)
    acknowledged.wait_for_more(500, PATIENCE_S)
    cluster.nodes[zombie].resume()
    acknowledged.wait_for_more(500, PATIENCE_S)

    server = cluster.ensemble.leader()
    cluster.ensemble.kill(server)
    acknowledged.wait_for_more(500, PATIENCE_S)
    cluster.ensemble.start_server(server)
    cluster.ensemble.wait_for_leader()

    first = cluster.ensemble.leader()
    lost = [first, (first + 1) % 3]
    for server in lost:
        cluster.ensemble.kill(server)  # no majority: nothing changes, and records go on
    acknowledged.wait_for_more(2_000, PATIENCE_S)
    for server in lost:
        cluster.ensemble.start_server(server)
    cluster.ensemble.wait_for_leader()
    cluster.controller()
    acknowledged.wait_for_more(500, PATIENCE_S)

    leaving = cluster.controller()
    assert cluster.nodes[leaving].stop(PATIENCE_S) == 0
    cluster.controller(other_than=leaving)
    acknowledged.wait_for_more(500, PATIENCE_S)
    cluster.nodes[leaving].start(PATIENCE_S)
    acknowledged.wait_for_more(500, PATIENCE_S)


@pytest.mark.timeout(300)
def test_what_is_in_zookeeper_and_who_may_join(cluster: Cluster, tmp_path: Path) -> None:
    zookeeper = cluster.zookeeper
    cluster_id = json.loads(zookeeper.get("/cluster/id")[0])["id"]
    for node_id, node in cluster.nodes.items():
        assert f"cluster.id={cluster_id}" in (node.data_dir / "meta.properties").read_text()
        said = json.loads(zookeeper.get(f"/brokers/ids/{node_id}")[0])
        assert said["version"] == 5
        assert said["endpoints"] == [f"PLAINTEXT://{node.bootstrap_servers}"]
        assert zookeeper.exists(f"/brokers/ids/{node_id}").owner_session_id
    assert int(zookeeper.get("/controller_epoch")[0]) >= 1

    twin = cluster.node(tmp_path, 1, "twin")
    with pytest.raises(RuntimeError, match="Another active node is registered in ZooKeeper with the id 1"):
        twin.start(PATIENCE_S)
    assert cluster.nodes[1].alive

    cluster.nodes[2].stop(PATIENCE_S)
    lost = cluster.nodes[2]
    lost.settings = [setting.replace("/barnabas", "/elsewhere") for setting in lost.settings]
    with pytest.raises(RuntimeError, match="has no cluster"):
        lost.start(PATIENCE_S)
