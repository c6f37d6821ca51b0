"""All nodes of a cluster are stopped at the same time."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.client.values import NewTopic
from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import STANDSTILL_S

RECORDS = 500


@pytest.mark.parametrize(
    ("brokers", "controllers"),
    [(3, 0), *(pytest.param(*nodes, marks=pytest.mark.system) for nodes in ((5, 0), (3, 3)))],
)
def test_no_node_waits_for_controllers_that_are_gone(tmp_path: Path, brokers: int, controllers: int) -> None:
    """The last brokers cannot hand their leaderships over. They do not wait for the limit of a controlled shutdown, and
    no acknowledged record is lost."""
    settings = ["default.replication.factor=3", "min.insync.replicas=2", "offsets.topic.num.partitions=4"]
    with ClusterProcess(tmp_path, brokers=brokers, controllers=controllers, settings=settings) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 6, 3)])
        with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            for number in range(RECORDS):
                producer.send("t", b"%d" % number)
            producer.flush()
        processes = [node.process for node in cluster.nodes.values()]
        for process in processes:
            assert process is not None
            process.send_signal(signal.SIGTERM)
        assert [process.wait(STANDSTILL_S) for process in processes if process is not None] == [0] * len(processes)
        logs = {node_id: node.log_path.read_text() for node_id, node in cluster.nodes.items()}
        assert [node_id for node_id, text in logs.items() if "controlled shutdown timed out" in text] == []
        if controllers:
            early = [node_id for node_id, text in logs.items() if "controlled shutdown ends early" in text]
            assert early == cluster.broker_ids
        cluster.start()
        seen: set[bytes] = set()
        settings_of_reader = {"group_id": "g", "auto_offset_reset": "earliest"}
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, **settings_of_reader) as consumer:  # type: ignore[arg-type]
            consumer.subscribe(["t"])
            for record in consumer:
                assert record.value is not None
                seen.add(bytes(record.value))
                if len(seen) == RECORDS:
                    break
