"""Large requests in a simulated world: no callback holds the event loop, and planted bugs that do are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client.values import NewTopic
from barnabas.core import work
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.server.metadata import controller_service
from barnabas.server.node import image_slices
from barnabas.testing import sim

Patch = pytest.MonkeyPatch
TOPICS = 300
PARTITIONS = 350
COMMITTED = 30_000


async def large_requests(world: sim.World) -> None:
    """Topics, partitions and offsets that together count more than one step may, and each alone less."""
    await world.start_broker({"offsets.topic.num.partitions": "1"})
    async with world.admin() as admin:
        created = await admin.create_topics([NewTopic(f"t{i}", 1, 1) for i in range(TOPICS)])
        assert all(not isinstance(topic, Exception) for topic in created.values())
        await admin.create_topic("wide", PARTITIONS, 1)
        assert len(await admin.list_topics()) == TOPICS + 1
        offsets = {TopicPartition("wide", i): 1 for i in range(COMMITTED)}
        answers = await admin.alter_group_offsets("g", offsets)
        assert {getattr(error, "code", None) for error in answers.values()} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        await admin.delete_topics([f"t{i}" for i in range(TOPICS)])


def _images_without_slices(patch: Patch) -> None:
    """A broker creates and deletes all logs of an image in one step."""
    patch.setattr(image_slices, "IMAGE_SLICE", 10**9)


def _topics_without_parts(patch: Patch) -> None:
    """The controller decides on all topics of a request at once; the request is larger than that of the scenario."""
    patch.setattr(controller_service, "TOPICS_PER_DECISION", 10**9)
    patch.setattr(f"{__name__}.TOPICS", 700)


def _no_pauses(patch: Patch) -> None:
    """Long loops count their work, and never pause."""

    async def after(self: work.Pauses, units: int) -> None:
        work.count(units)

    patch.setattr(work.Pauses, "after", after)


def test_large_requests_hold_nobody_up() -> None:
    sim.run(large_requests)


@pytest.mark.parametrize("plant", [_images_without_slices, _topics_without_parts, _no_pauses])
def test_a_planted_bug_that_holds_the_loop_is_found(plant: Callable[[Patch], Any], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(sim.LivenessError, match="held the event loop"):
        sim.run(large_requests)
