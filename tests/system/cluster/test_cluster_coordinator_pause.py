"""A broker that coordinates a group is paused, as SIGSTOP does: requests that wait behind it go to its successor."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from barnabas.client import Admin, Consumer, Producer
from barnabas.client.values import GroupDescription, NewTopic
from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import wait_until

SETTINGS = (
    "offsets.topic.num.partitions=4",
    "group.initial.rebalance.delay.ms=0",
    "broker.session.timeout.ms=3000",
    "broker.heartbeat.interval.ms=500",
)
REQUEST_S = 120
"""The client's own time-out of a request, for which the requests behind the paused broker do not wait."""


def member(where: str) -> Consumer:
    return Consumer(
        bootstrap_servers=where,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        request_timeout_ms=1000 * REQUEST_S,
        default_api_timeout_ms=2000 * REQUEST_S,
    )


def coordinator_of(admin: Admin, group_id: str) -> int:
    found = admin.describe_groups([group_id])[group_id]
    assert isinstance(found, GroupDescription), found
    return found.coordinator


@pytest.mark.system
def test_requests_behind_a_paused_coordinator_go_to_its_successor(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, settings=SETTINGS) as cluster:
        where = cluster.bootstrap_servers
        with Admin(bootstrap_servers=where) as admin, member(where) as first, member(where) as second:
            admin.create_topics([NewTopic("t", 2, 3)])
            with Producer(bootstrap_servers=where) as producer:
                for number in range(10):
                    producer.send("t", b"%d" % number, partition=number % 2).result(60)
            first.subscribe(["t"])
            seen: list[bytes | None] = []

            def has_read_all() -> bool:
                seen.extend(record.value for record in first.poll(timeout_ms=500))
                return len(seen) == 10

            def has_joined() -> bool:
                first.poll(timeout_ms=100)
                second.poll(timeout_ms=100)
                return len(second.assignment()) == 1

            wait_until(has_read_all, "the group has read every record", progress=lambda: len(seen))
            first.commit()
            second.partitions_for("t")  # it knows the cluster: how to find it beside a paused broker is not in question
            paused = coordinator_of(admin, "g")
            cluster.node(paused).pause()
            try:
                began = time.monotonic()
                first.commit()
                second.subscribe(["t"])
                wait_until(has_joined, "a second member has joined")
                assert time.monotonic() - began < REQUEST_S / 2, "no request waited for its own time-out"
                assert coordinator_of(admin, "g") != paused
            finally:
                cluster.node(paused).resume()
