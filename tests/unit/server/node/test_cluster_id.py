"""How controllers that start for the first time find their cluster's id."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.node.setup.cluster_id import ClusterIdError, agree_on_cluster_id, confirm_cluster_id
from barnabas.server.node.setup.topology import Address
from barnabas.testing.sim.loop import SimLoop

A, B, C = ("a", 1), ("b", 1), ("c", 1)
DOWN = None
Says = dict[Address, str | None]


def agree(says: Says, *, founder: bool, later: Callable[[Says, float], None] | None = None) -> tuple[str, float]:
    """(id, seconds it took)"""

    async def main() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def ask(address: Address) -> str:
            if later is not None:
                later(says, loop.time() - began)
            answer = says[address]
            if answer is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
            return answer

        found = await agree_on_cluster_id(list(says), founder=founder, new_id=lambda: "new", ask=ask)
        return found, loop.time() - began

    loop = SimLoop(random.Random(1))
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def test_existing_cluster_id_is_taken_by_every_new_node() -> None:
    assert agree({A: DOWN, B: "old"}, founder=True) == ("old", 0)
    assert agree({A: "", B: "old"}, founder=False) == ("old", 0)


def test_only_the_founder_generates_an_id_and_only_if_all_nodes_are_new() -> None:
    assert agree({A: "", B: ""}, founder=True) == ("new", 0)

    def b_comes_up_after_a_minute(says: Says, after_s: float) -> None:
        if after_s > 60:
            says[B] = ""

    found, took = agree({A: "", B: DOWN}, founder=True, later=b_comes_up_after_a_minute)
    assert found == "new"
    assert 60 <= took < 63


def test_first_controller_with_an_emptied_disk_does_not_start_a_second_cluster() -> None:
    def b_knows(says: Says, after_s: float) -> None:
        if after_s > 60:
            says[B] = "old"

    assert agree({A: "", B: DOWN}, founder=True, later=b_knows)[0] == "old"


def test_controllers_of_two_clusters_raise_cluster_id_error() -> None:
    with pytest.raises(ClusterIdError, match=r"a:1 belongs to x, b:1 belongs to y"):
        agree({A: "x", B: "y"}, founder=False)


def test_confirm_cluster_id_fails_when_a_controller_has_another_id() -> None:
    answers = {A: ["", "down", "theirs"], B: ["down", "", ""]}

    async def ask(address: Address) -> str:
        answer = answers[address].pop(0)
        if answer == "down":
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        return answer

    loop = SimLoop(random.Random(1))
    try:
        with pytest.raises(
            ClusterIdError, match=r"belong to cluster ours, but the controller at a:1 belongs to theirs"
        ):
            loop.run_until_complete(confirm_cluster_id("ours", [A, B], ask=ask))
        answers.update({A: ["ours"], B: ["down"]})
        loop.run_until_complete(confirm_cluster_id("ours", [A, B], ask=ask))
    finally:
        loop.close()


def test_waiting_for_kafka_controllers_logs_the_option_cluster_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = 0

    async def ask(address: Address) -> str:
        nonlocal asked
        asked += 1
        if asked < 10:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return "old"

    loop = SimLoop(random.Random(1))
    try:
        found = loop.run_until_complete(agree_on_cluster_id([A], founder=True, new_id=lambda: "new", ask=ask))
    finally:
        loop.close()
    assert found == "old"
    assert "start it with --cluster-id" in caplog.text
