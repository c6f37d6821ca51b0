"""What operators do to a cluster: restart its nodes one after the other, replace a disk; clients go on."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import STANDSTILL_S, wait_until
from tests.system.chaos.workload import CODECS, Acknowledged, Committer, Writer, create_logs

SETTINGS = (
    "offsets.topic.num.partitions=4",
    "group.initial.rebalance.delay.ms=0",
    "min.insync.replicas=2",
    "broker.session.timeout.ms=6000",
)


@pytest.mark.system
def test_clients_continue_during_a_rolling_restart(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, settings=SETTINGS) as cluster:
        address = cluster.bootstrap_servers
        create_logs(address, replicas=3)
        acknowledged = Acknowledged()
        writers = [Writer(address, codec, acknowledged) for codec in CODECS]
        committer = Committer(address, "committers", "log-none")
        seen: set[bytes] = set()
        stop = threading.Event()
        jobs = [committer.run, *(writer.run for writer in writers), lambda stop: _consume(address, seen, stop)]
        workers = [threading.Thread(target=job, args=(stop,)) for job in jobs]
        for worker in workers:
            worker.start()
        try:
            for node in cluster.nodes.values():
                acknowledged.wait_for_more(500, STANDSTILL_S)
                assert node.stop(60) == 0
                node.start(60)
                _wait_in_sync(address)
            acknowledged.wait_for_more(500, STANDSTILL_S)
            wait_until(lambda: len(seen) > 1000, "the group has consumed 1000 records", progress=lambda: len(seen))
        finally:
            stop.set()
            for worker in workers:
                worker.join(STANDSTILL_S)
        for writer in writers:
            writer.finish(STANDSTILL_S)
        assert sum(writer.check(address) for writer in writers) > 2000
        committer.check(address, "committers")


@pytest.mark.system
def test_node_with_an_empty_disk_replicates_every_partition_again(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, settings=SETTINGS) as cluster:
        address = cluster.bootstrap_servers
        create_logs(address, replicas=3)
        acknowledged = Acknowledged()
        writer = Writer(address, "none", acknowledged)
        stop = threading.Event()
        worker = threading.Thread(target=writer.run, args=(stop,))
        worker.start()
        try:
            acknowledged.wait_for_more(2000, STANDSTILL_S)
            lost = cluster.node(3)
            lost.kill()
            shutil.rmtree(lost.data_dir)
            lost.start(60)
            _wait_in_sync(address)
        finally:
            stop.set()
            worker.join(STANDSTILL_S)
        writer.finish(STANDSTILL_S)
        cluster.node(1).kill()  # whatever it led is now read from the others, the new disk among them
        address = cluster.node(3).bootstrap_servers
        wait_until(
            lambda: not {-1, 1} & _leaders(address), "every partition has a leader", progress=lambda: _leaders(address)
        )
        assert writer.check(address) > 2000


def _consume(address: str, seen: set[bytes], stop: threading.Event) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["log-none"])
    while not stop.is_set():
        for message in consumer.consume(500, 0.5):
            if message.error() is None:
                seen.add(message.value() or b"")
    consumer.close()


def _partitions(address: str) -> list[tuple[int, int, int]]:
    """(leader, replicas, in sync) of every partition."""
    topics = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=20).topics
    return [(p.leader, len(p.replicas), len(p.isrs)) for topic in topics.values() for p in topic.partitions.values()]


def _wait_in_sync(address: str) -> None:
    """Returns when every replica is in sync."""
    wait_until(
        lambda: _under_replicated(address) == 0, "every replica is in sync", progress=lambda: _under_replicated(address)
    )


def _under_replicated(address: str) -> int:
    return sum(in_sync < replicas for _, replicas, in_sync in _partitions(address))


def _leaders(address: str) -> set[int]:
    return {leader for leader, _, _ in _partitions(address)}
