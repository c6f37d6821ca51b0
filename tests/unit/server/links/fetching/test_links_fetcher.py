"""The fetcher of a link, with a source that does not answer."""

from __future__ import annotations

import asyncio

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.links.fetching.fetcher import SourceFetcher
from barnabas.server.links.fetching.ports import SourceCall, SourceFetch, SourceFetched, SourceKey, SourceReply
from barnabas.server.links.fetching.settings import LinkSettings


class Source:
    """A source whose metadata do not list the broker, so that no request is sent. Implements `SourceCluster.fetch`."""

    calls = 0

    async def fetch(self, node_id: int, fetcher_id: int, call: SourceCall, settings: LinkSettings) -> SourceReply:
        self.calls += 1
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)


class Mirror:
    """Implements `FetchedPartition`."""

    key: SourceKey = ("t", 0)

    def __init__(self) -> None:
        self.errors: list[ErrorCode] = []

    def next_fetch(self) -> SourceFetch:
        return SourceFetch(None, 0, 0, -1)

    def on_fetched(self, request: SourceFetch, fetched: SourceFetched) -> int:
        raise AssertionError

    def on_source_error(self, error: KafkaError) -> None:
        self.errors.append(error.code)


def test_a_partition_whose_fetch_fails_at_once_leaves_the_fetcher() -> None:
    async def main() -> None:
        source, mirror = Source(), Mirror()
        fetcher = SourceFetcher(1, 0, source, LinkSettings)  # type: ignore[arg-type]  # the fetcher calls `fetch` only
        fetcher.add(mirror)
        async with asyncio.timeout(5):
            await fetcher.run()
        assert (source.calls, mirror.errors) == (1, [ErrorCode.BROKER_NOT_AVAILABLE])

    asyncio.run(main())
