"""Shell: one link on this broker: its definition, its connections to the source, the source's metadata, its fetchers.

    run: definition ─► connections ─► metadata every mirror.metadata.refresh.interval.ms, or when a partition needs it
                └──── again when the definition changes

The tasks of the link's partitions ask `find` for the source's leader and `fetcher` for the fetcher of that leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.hashing import java_string_hash
from barnabas.core.ids import TopicId
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.server.links.fetching.fetcher import SourceFetcher
from barnabas.server.links.fetching.machine import BACKOFF
from barnabas.server.links.fetching.ports import MirrorStates, OpenSource, SourceCluster, SourceKey, SourceTopic
from barnabas.server.links.fetching.settings import LinkSettings, link_settings
from barnabas.server.links.fetching.values import LinkDefinition

log = get_logger("barnabas.server.replication")

_REFRESH_PAUSE_S: Final = 0.02
"""The least time between two requests for metadata: many partitions of a broker that went away ask at once."""


class FoundSource(Struct, frozen=True):
    """Where a partition is fetched from."""

    source: SourceCluster
    node_id: int
    leader_epoch: int
    topic_id: TopicId | None


class ActiveLink:
    """One link, as long as this broker leads a mirror partition of it."""

    def __init__(
        self,
        name: str,
        states: MirrorStates,
        open_source: OpenSource,
        rng: Rng,
        topics: Callable[[], list[str]],
        on_metadata: Callable[[], None],
        on_reopened: Callable[[], None],
    ) -> None:
        """`topics` are the names of the link's topics here; `on_metadata` is called after each refresh, `on_reopened`
        when the link has another definition."""
        self.name = name
        self.settings = LinkSettings()
        self._states = states
        self._open_source = open_source
        self._rng = rng
        self._topics = topics
        self._on_metadata = on_metadata
        self._definition: LinkDefinition | None = None
        self._source: SourceCluster | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._fetchers: dict[tuple[int, int], SourceFetcher] = {}
        self._metadata: dict[str, SourceTopic] = {}
        self._metadata_at = -1.0
        """The time at which the request for the metadata was sent (seconds of the loop's clock)."""
        self._refreshing: asyncio.Task[None] | None = None
        self._on_reopened = on_reopened
        self._was_open = False
        self._redefined = asyncio.Event()
        self._trouble = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The link {name} is not known yet.")

    # -- lifecycle ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the link open until cancelled."""
        failures = 0
        while True:
            self._redefined.clear()
            try:
                source = await self._load()
                failures = 0
            except KafkaError as error:
                self._trouble = error
                failures += 1
                await self._wait_redefined(BACKOFF.delay_ms(min(failures, 6), self._rng) / 1000)
                continue
            if source is not None:
                await self._serve(source)
            else:
                await self._wait_redefined(self.settings.mirror_metadata_refresh_interval_ms / 1000)

    async def _load(self) -> SourceCluster | None:
        """The source as the definition says. None if the link does not exist, or its definition is wrong."""
        definition = self._definition = await self._states.definition(self.name)
        if definition is None:
            self._trouble = KafkaError(ErrorCode.INVALID_REQUEST, f"There is no link {self.name} any more.")
            return None
        try:
            self.settings = link_settings(definition.settings)
            return self._open_source(definition)
        except ConfigError as error:
            self._trouble = KafkaError(ErrorCode.INVALID_REQUEST, f"The link {self.name}: {error}")
            return None

    async def _serve(self, source: SourceCluster) -> None:
        """Use `source` until the definition changes."""
        try:
            async with asyncio.TaskGroup() as tasks:
                owned = [tasks.create_task(source.run()), tasks.create_task(self._refresh_often())]
                await asyncio.sleep(0)  # the connections can be used after the first step of `source.run`
                self._source, self._tasks = source, tasks
                if self._was_open:
                    self._on_reopened()
                self._was_open = True
                while True:
                    await self._redefined.wait()
                    self._redefined.clear()
                    if not await self._is_same():
                        break
                self._close()
                for task in owned:
                    task.cancel()
        finally:
            self._close()

    def _close(self) -> None:
        self._source = self._tasks = None
        self._metadata.clear()
        self._metadata_at = -1.0
        if self._refreshing is not None:
            self._refreshing.cancel()
        for fetcher in list(self._fetchers.values()):
            fetcher.close(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "The link's definition changed."))
        self._fetchers.clear()

    async def _is_same(self) -> bool:
        try:
            return await self._states.definition(self.name) == self._definition
        except KafkaError:
            return True

    def on_definition_changed(self) -> None:
        """The definition may have changed: read it again."""
        self._redefined.set()

    async def _wait_redefined(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._redefined.wait()
        except TimeoutError:
            pass

    @property
    def source(self) -> SourceCluster:
        """The source. Raises KafkaError while the link is not open, with the reason."""
        if self._source is None:
            raise self._trouble
        return self._source

    # -- metadata ----------------------------------------------------------------------------------------------------

    def known(self, key: SourceKey) -> FoundSource | None:
        """The source's leader of a partition, as far as the last metadata have one."""
        topic, source = self._metadata.get(key[0]), self._source
        found = None if topic is None else topic.partitions.get(key[1])
        if topic is None or found is None or source is None:
            return None
        return FoundSource(source, found.leader, found.leader_epoch, topic.topic_id)

    async def find(self, key: SourceKey, newer_than: float) -> FoundSource:
        """The source's leader of a partition, from metadata that were requested after `newer_than`. Raises KafkaError:
        the source's error for the topic, LEADER_NOT_AVAILABLE, or why the source does not answer."""
        if self._metadata_at <= newer_than or key[0] not in self._metadata:
            await self._refresh()
        topic = self._metadata.get(key[0])
        if topic is not None and topic.error is not ErrorCode.NONE:
            raise KafkaError(topic.error)
        found = self.known(key)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if found.node_id < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{key[0]}-{key[1]} has no leader on the source.")
        return found

    async def _refresh(self) -> None:
        """Request the metadata of all topics of the link; callers at the same time share one request."""
        tasks = self._tasks
        if tasks is None:
            raise self._trouble
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._request_metadata())
        refreshing = self._refreshing
        await asyncio.wait({refreshing})
        if refreshing.cancelled():
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "The link's definition changed.")
        refreshing.result()

    async def _request_metadata(self) -> None:
        loop = asyncio.get_running_loop()
        pause = self._metadata_at + _REFRESH_PAUSE_S - loop.time()
        if self._metadata_at >= 0 and pause > 0:
            await asyncio.sleep(pause)
        asked_at = loop.time()
        found = await self.source.topics(self._topics())
        self._metadata = dict(found)
        self._metadata_at = asked_at
        self._on_metadata()

    async def _refresh_often(self) -> None:
        while True:
            await asyncio.sleep(self.settings.mirror_metadata_refresh_interval_ms / 1000)
            self._redefined.set()
            try:
                await self._refresh()
            except KafkaError as error:
                log.info("the source's metadata could not be read", link=self.name, reason=str(error))

    # -- fetchers ----------------------------------------------------------------------------------------------------

    def fetcher(self, node_id: int, key: SourceKey) -> SourceFetcher:
        """The fetcher of a broker of the source for this partition. It runs once a partition is added to it."""
        number = abs(31 * java_string_hash(key[0]) + key[1]) % max(self.settings.mirror_num_replica_fetchers, 1)
        place = node_id, number
        found = self._fetchers.get(place)
        if found is None:
            tasks = self._tasks
            if tasks is None:
                raise self._trouble
            found = self._fetchers[place] = SourceFetcher(node_id, number, self.source, lambda: self.settings)
            tasks.create_task(self._run_fetcher(place, found), name=f"mirror fetcher {self.name} {node_id}-{number}")
        return found

    async def _run_fetcher(self, place: tuple[int, int], fetcher: SourceFetcher) -> None:
        try:
            await fetcher.run()
        finally:
            if self._fetchers.get(place) is fetcher:
                del self._fetchers[place]
