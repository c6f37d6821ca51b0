"""Cut-over of mirrors: which topics a command stops or turns round, by a client whose answers are written here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.client.admin.links import (
    STOPPED,
    Link,
    LinkDescription,
    MirrorAction,
    MirrorChange,
    MirrorStatus,
    StoredMirrorState,
)
from barnabas.client.links import cutover
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.regex import Re2Pattern

PATTERNS_MAX = 200
"""What a broker accepts in one request."""


class Cluster:
    """A cluster with mirrors of one partition each. A look at their lag ends the wait, and discovers `later`."""

    def __init__(self, topics: Sequence[str], *, later: Sequence[str] = (), states: str = "MIRRORING") -> None:
        self.states = dict.fromkeys(topics, states)
        self.asked: list[int] = []
        """The number of patterns of each request."""
        self._later = later
        self._looks = 0

    async def alter_mirrors(
        self, _: str, action: MirrorAction, topics: Sequence[str] = (), *, validate_only: bool = False
    ) -> list[MirrorChange]:
        self.asked.append(len(topics))
        assert len(topics) <= PATTERNS_MAX
        patterns = [Re2Pattern(topic) for topic in topics]
        found = [t for t in self.states if not patterns or any(pattern.matches(t) for pattern in patterns)]
        if not validate_only:
            self.states |= dict.fromkeys(found, STOPPED if action is MirrorAction.STOP else "MIRRORING")
        return [MirrorChange(topic, action.name, 1, None) for topic in found]

    async def describe_mirrors(self, _: object) -> list[MirrorStatus]:
        self._looks += 1
        self.states |= dict.fromkeys(self._later, "MIRRORING") if self._looks == 1 else {}
        return [
            MirrorStatus("paris", TopicPartition(topic, 0), state, 10, 0, self._looks, 0, "")
            for topic, state in self.states.items()
            if state != STOPPED
        ]

    async def describe_links(self, names: Sequence[str]) -> dict[str, LinkDescription]:
        stored = [StoredMirrorState(topic, "id", 0, state, 0, -1, -1, "") for topic, state in self.states.items()]
        return {names[0]: LinkDescription(Link(names[0], "kafka-1:9092", topics=(".*",)), 1, "", tuple(stored))}


def promote(cluster: Any, *topics: str) -> list[MirrorChange]:
    return asyncio.run(cutover.promote(cluster, "paris", topics, timeout_s=60, progress=lambda _: None))


def reverse(here: Any, there: Any, *topics: str) -> list[MirrorChange]:
    return asyncio.run(cutover.reverse(here, there, "paris", Link("back", "here:9092"), topics))


def test_a_mirror_that_is_discovered_while_others_catch_up_is_not_stopped() -> None:
    cluster = Cluster(["orders", "payments"], later=["fresh"])
    assert [change.topic for change in promote(cluster)] == ["orders", "payments"]
    assert cluster.states == {"orders": STOPPED, "payments": STOPPED, "fresh": "MIRRORING"}


def test_a_link_without_mirrors_stops_none_that_come() -> None:
    cluster = Cluster([], later=["fresh"])
    assert promote(cluster) == []
    assert cluster.states == {"fresh": "MIRRORING"}


def test_topics_are_named_in_as_many_requests_as_brokers_accept() -> None:
    names = [f"orders.{number:03}" for number in range(450)]
    cluster = Cluster(names)
    assert [change.topic for change in promote(cluster)] == names
    there = Cluster(names, states=STOPPED)
    assert [change.topic for change in reverse(cluster, there)] == names
    assert set(there.states.values()) == {"MIRRORING"}
    assert sum(there.asked) == len(names)


def test_regular_expressions_select_the_topics_that_go_back() -> None:
    here, there = (Cluster(["orders-eu", "orders-us", "payments"], states=STOPPED) for _ in range(2))
    assert [change.topic for change in reverse(here, there, "orders-.*", "orders-eu")] == ["orders-eu", "orders-us"]
    with pytest.raises(KafkaError, match=r"Not stopped, or not of link paris: order\. Use") as caught:
        reverse(here, there, "order", "payments")
    assert caught.value.code is ErrorCode.INVALID_REQUEST
