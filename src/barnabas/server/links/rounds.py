"""Shell: the work for one link, by its coordinator: follows the source's topics, configs, group offsets and ACLs, and
makes topics writable.

Each part of a round has its own errors. They are the link's `trouble`, and the next round tries again. Topics become
writable apart from the rounds, so that a failover does not wait for a source that is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId
from barnabas.core.telemetry import get_logger
from barnabas.server.links.changes import STATE, LocalMirrors
from barnabas.server.links.coordination.mirror_commands import STOPPED_MODE, STOPPING, stopped_topics
from barnabas.server.links.coordination.planning import LocalFacts, plan_acls, plan_configs, plan_topics
from barnabas.server.links.coordination.service import LinkCoordinator
from barnabas.server.links.coordination.values import StoredLink
from barnabas.server.links.fetching.ports import SourceCluster
from barnabas.server.links.fetching.settings import link_settings
from barnabas.server.links.group_offsets import GroupOffsets, PeerRequests
from barnabas.server.links.source_reading import (
    SourceMetadata,
    read_acls,
    read_configs,
    read_metadata,
)
from barnabas.server.metadata.configs.tables import TOPIC_CONFIGS

log = get_logger("barnabas.server.links")

_TOPIC_CONFIG_NAMES: Final = frozenset(key.name for key in TOPIC_CONFIGS)
_RETRY_S: Final = 5.0
"""The longest pause after a round with an error."""
_STOP_CHECK_S: Final = 5.0
_STOP_RETRY_S: Final = 0.2
"""The pause after a topic could not be made writable: the controller does not answer."""


class LinkRounds:
    """Follows the source of one link, in one definition."""

    def __init__(
        self, link: StoredLink, coordinator: LinkCoordinator, mirrors: LocalMirrors, peers: PeerRequests
    ) -> None:
        self.link = link
        self.trouble = ""
        self._coordinator = coordinator
        self._mirrors = mirrors
        self._offsets = GroupOffsets(link, mirrors, peers)
        self._gone: frozenset[TopicId] = frozenset()
        self._interval_s = link_settings(dict(link.settings)).mirror_metadata_refresh_interval_ms / 1000
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """A topic may have to become writable: the state of a mirror was stored, or the configs of a topic changed."""
        self._woken.set()

    async def run(self, source: SourceCluster, is_current: Callable[[], bool]) -> None:
        """Follow `source` as long as `is_current` between two rounds."""
        while True:
            await self._round(source)
            await asyncio.sleep(min(self._interval_s, _RETRY_S) if self.trouble else self._interval_s)
            if not is_current():
                return

    async def make_writable(self) -> None:
        """Make topics writable as soon as all their partitions are STOPPED, until cancelled. Needs no source."""
        while True:
            self._woken.clear()
            pause_s = _STOP_CHECK_S
            try:
                await self._finish_stops()
            except KafkaError as error:
                log.info("a stopped mirror cannot be made writable yet", link=self.link.name, reason=str(error))
                pause_s = _STOP_RETRY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()

    async def _finish_stops(self) -> None:
        """Raises KafkaError."""
        stopping = [t for t in self._mirrors.linked_topics() if t.link == self.link.name and t.mode == STOPPING]
        if not stopping:
            return
        for topic in stopped_topics(self.link.name, stopping, self._coordinator.states(self.link.name)):
            await self._mirrors.configure(topic.name, {STATE: STOPPED_MODE})
            log.info("a mirror was stopped and takes writes", link=self.link.name, topic=topic.name)

    async def _round(self, source: SourceCluster) -> None:
        troubles: list[str] = []
        try:
            await source.topics([])  # learns the brokers of the source
            metadata = await read_metadata(source)
            self._check_cluster(metadata)
        except KafkaError as error:
            self.trouble = f"The source does not answer: {error}"
            return
        parts: tuple[tuple[str, Callable[[], Awaitable[list[str]]]], ...] = (
            ("topics", lambda: self._follow_topics(source, metadata)),
            ("configs", lambda: self._follow_configs(source)),
            ("groups", lambda: self._follow_groups(source, metadata)),
            ("ACLs", lambda: self._follow_acls(source)),
            ("deleted topics", self._forget_deleted),
        )
        for name, part in parts:
            try:
                troubles += await part()
            except KafkaError as error:
                troubles.append(f"{name}: {error}")
        if troubles and self.trouble != "; ".join(troubles):
            log.warning("a link does not follow its source in all", link=self.link.name, reasons=troubles)
        self.trouble = "; ".join(troubles)

    def _check_cluster(self, metadata: SourceMetadata) -> None:
        known = self.link.source_cluster_id
        if known is not None and metadata.cluster_id not in (None, known):
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"The bootstrap servers are now those of cluster {metadata.cluster_id}, not of {known}.",
            )

    def _own(self) -> list[LocalFacts]:
        return [t for t in self._mirrors.linked_topics() if t.link == self.link.name and t.is_mirror]

    async def _follow_topics(self, source: SourceCluster, metadata: SourceMetadata) -> list[str]:
        local = {topic.name: topic for topic in self._mirrors.topics()}
        plan = plan_topics(self.link, list(metadata.topics.values()), local)
        troubles = [reason for _, reason in plan.conflicts]
        configs = await read_configs(source, [topic.name for topic in plan.create])
        wanted = {name: plan_configs(of_source, {}, _TOPIC_CONFIG_NAMES) for name, of_source in configs.items()}
        for name, error in (await self._mirrors.create(self.link.name, plan.create, wanted)).items():
            if error is None:
                log.info("a mirror topic was created", link=self.link.name, topic=name)
            elif error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                troubles.append(f"Topic {name} cannot be created: {error}")
        for name, count in plan.grow:
            await self._mirrors.grow(name, count)
            log.info("a mirror topic has got partitions", link=self.link.name, topic=name, partitions=count)
        return troubles

    async def _follow_configs(self, source: SourceCluster) -> list[str]:
        for name, of_source in (await read_configs(source, [topic.name for topic in self._own()])).items():
            changes = plan_configs(of_source, self._mirrors.configs(name), _TOPIC_CONFIG_NAMES)
            if changes:
                await self._mirrors.configure(name, changes)
        return []

    async def _follow_groups(self, source: SourceCluster, metadata: SourceMetadata) -> list[str]:
        return await self._offsets.follow(source, metadata, self._own())

    async def _follow_acls(self, source: SourceCluster) -> list[str]:
        if not self.link.acls:
            return []
        missing = plan_acls(self.link.acls, await read_acls(source), self._mirrors.acls())
        if missing:
            await self._mirrors.create_acls(missing)
            log.info("ACLs of the source were added", link=self.link.name, count=len(missing))
        return []

    async def _forget_deleted(self) -> list[str]:
        """Delete the states of mirror topics that were deleted here. A topic must be missing in two rounds, because the
        image of this broker may not have a new topic yet."""
        present = {topic.topic_id for topic in self._mirrors.topics()}
        gone = frozenset(key.topic_id for key in self._coordinator.states(self.link.name)) - present
        if gone & self._gone:
            await self._coordinator.forget(self.link.name, gone & self._gone)
        self._gone = gone
        return []
