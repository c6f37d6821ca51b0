"""Shell: fetches mirror partitions from one broker of the source, as a consumer, in one fetch session (KIP-227).

One request is in flight at a time. The partitions decide what to do with a response; a partition that gets an error
leaves the fetcher, finds the source's leader anew, and waits for its back-off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.links.fetching.ports import (
    SourceCall,
    SourceCluster,
    SourceFetch,
    SourceFetched,
    SourceKey,
    SourceReply,
)
from barnabas.server.links.fetching.settings import LinkSettings
from barnabas.server.replication.rules.fetch_session import FetchSessionHandler

_SESSION_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The source has evicted the session: the next request is full and is sent at once."""


class FetchedPartition(Protocol):
    """Port: a mirror partition, as its fetcher sees it."""

    @property
    def key(self) -> SourceKey: ...

    def next_fetch(self) -> SourceFetch | None:
        """What to fetch. None if nothing may be fetched any more."""
        ...

    def on_fetched(self, request: SourceFetch, fetched: SourceFetched) -> int:
        """Append the records of a response without an error. Returns the number of bytes appended."""
        ...

    def on_source_error(self, error: KafkaError) -> None:
        """The source has rejected the fetch, or has not answered. The partition leaves the fetcher."""
        ...


class SourceFetcher:
    """Fetches from one broker of the source. `run` ends when no partition is left."""

    def __init__(
        self, node_id: int, fetcher_id: int, source: SourceCluster, settings: Callable[[], LinkSettings]
    ) -> None:
        self.node_id = node_id
        self.fetcher_id = fetcher_id
        self._source = source
        self._settings = settings
        self._partitions: dict[SourceKey, FetchedPartition] = {}
        self._changed: dict[SourceKey, None] = {}
        self._session: FetchSessionHandler[SourceKey, SourceFetch] = FetchSessionHandler()
        self._known: dict[SourceKey, SourceFetch] = {}
        """The last request of each partition in the session, for its topic id."""
        self._wake = asyncio.Event()
        self.answered_at = -1.0
        """When the source last answered without an error (seconds of the loop's clock). Its answer has only those
        partitions of the session that have changed."""

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: FetchedPartition) -> None:
        self._partitions[partition.key] = partition
        self._changed[partition.key] = None
        self._wake.set()

    def remove(self, partition: FetchedPartition) -> None:
        if self._partitions.get(partition.key) is partition:
            del self._partitions[partition.key]
            self._changed[partition.key] = None
            self._wake.set()

    def close(self, reason: KafkaError) -> None:
        """Send all partitions away: the connections of the link end."""
        for partition in list(self._partitions.values()):
            partition.on_source_error(reason)
        self._partitions.clear()
        self._wake.set()

    async def run(self) -> None:
        """Fetch until no partition is left."""
        while self._partitions:
            self._wake.clear()
            call = self._next_call()
            if self._session.requested:
                await self._fetch(call)
            else:
                self._session.reset()
                await self._wake.wait()

    def _next_call(self) -> SourceCall:
        changed, self._changed = self._changed, {}
        wanted: dict[SourceKey, SourceFetch | None] = {}
        for key in changed:
            partition = self._partitions.get(key)
            wanted[key] = None if partition is None else partition.next_fetch()
        request = self._session.build(wanted)
        forgotten = [(key, self._known.pop(key)) for key in request.forgotten if key in self._known]
        self._known.update(request.wanted)
        with_ids = all(want.topic_id is not None for want in self._session.requested.values())
        return SourceCall(request.session_id, request.epoch, request.wanted, forgotten, with_ids)

    async def _fetch(self, call: SourceCall) -> None:
        try:
            reply = await self._source.fetch(self.node_id, self.fetcher_id, call, self._settings())
        except KafkaError as error:
            self._fail_all(error)
            return
        if reply.error is ErrorCode.NONE:
            self._session.on_reply(reply.session_id)
            self.answered_at = asyncio.get_running_loop().time()
            self._apply(reply)
        elif reply.error in _SESSION_LOST:
            self._session.reset()
        else:
            self._fail_all(KafkaError(reply.error))
        if reply.throttle_time_ms > 0:
            await asyncio.sleep(reply.throttle_time_ms / 1000)

    def _apply(self, reply: SourceReply) -> None:
        for fetched in reply.partitions:
            partition = self._partitions.get(fetched.key)
            request = self._session.requested.get(fetched.key)
            if partition is None or request is None:
                continue
            self._changed[fetched.key] = None
            if fetched.error is not ErrorCode.NONE:
                partition.on_source_error(KafkaError(fetched.error))
            elif partition.on_fetched(request, fetched):
                self._session.to_back(fetched.key)

    def _fail_all(self, error: KafkaError) -> None:
        """Send all partitions of the request away. Those that were added meanwhile are in the next one."""
        self._session.reset()
        for key in list(self._session.requested):
            self._changed[key] = None
            partition = self._partitions.pop(key, None)
            if partition is not None:
                partition.on_source_error(error)
