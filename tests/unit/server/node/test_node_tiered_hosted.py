"""The tiered partitions of a broker, and the deleted topics that it remembers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from barnabas.server.node.tiered.hosted import ORPHAN_AFTER_MS, HostedPartitions
from barnabas.server.tiering.traffic import RemoteTraffic


def test_deletions_of_topics_are_remembered_for_some_time_only() -> None:
    clock = SimpleNamespace(ms=0)
    clock.now_ms = lambda: clock.ms
    anything: Any = None
    hosted = HostedPartitions(
        anything, anything, anything, RemoteTraffic(), cast("Any", clock), anything,
        remote_log_manager_task_interval_ms=1_000,
    )  # fmt: skip

    def delete(number: int) -> None:
        deleted = {UUID(int=number): SimpleNamespace(name=f"t{number}")}
        delta = SimpleNamespace(topics=SimpleNamespace(deleted=deleted), configs=None)
        hosted.on_image(cast("Any", delta), cast("Any", SimpleNamespace(topics={})))

    delete(1)
    delete(2)
    clock.ms = ORPHAN_AFTER_MS
    delete(3)
    assert list(hosted._deleted) == [UUID(int=3)]
