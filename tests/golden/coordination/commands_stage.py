"""Script commands that change the environment: configs, time, topics, the log, the partition's leadership.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from barnabas.core.errors import ErrorCode
from tests.golden.coordination.stage import TP, Stage, settle
from tests.unit.server.coordination.kit import Catalog


async def config(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Set configs before the coordinator starts."""
    assert stage.coordinator is None
    for name, value in options.items():
        stage.settings[name] = tuple(value.split(",")) if name.endswith("assignors") else int(value)


async def wait(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    await stage.start()
    await asyncio.sleep(float(words[0].removesuffix("s")))


async def fail(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The next append fails with this code."""
    stage.writer.refusals.append(ErrorCode[words[0]])


async def hold(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The followers stop fetching: no record is committed until `release`."""
    stage.writer.hold = True


async def release(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    stage.writer.hold = False
    stage.writer.commit(TP)


async def resign(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    coordinator.on_resigned(0)


async def restart(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The partition is unloaded and loaded again: volatile state is lost."""
    coordinator = await stage.start()
    coordinator.on_resigned(0)
    await settle()
    stage.elect()


async def topics(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Set the topics (name=partitions)."""
    coordinator = await stage.start()
    before = set(stage.catalog.names())
    ids = {name: view.topic_id for name, view in stage.catalog.views.items()}
    stage.catalog = Catalog(**{name: int(count) for name, count in options.items()})
    for name, view in list(stage.catalog.views.items()):
        topic_id = ids.get(name) or UUID(int=100 + len(ids) + len(name))
        stage.catalog.views[name] = type(view)(name, topic_id, view.partitions)
    coordinator.on_topics_changed(stage.catalog, frozenset(before - set(options)))
