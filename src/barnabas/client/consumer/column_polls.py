"""Shell: the consumer's calls that return whole columns: `poll_arrow` and `arrow`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.consumer.handout import ColumnDelivery, HandedOut, Handout
from barnabas.client.consumer.subscription import SubscriptionState
from barnabas.client.options import Settings
from barnabas.client.values import IsolationLevel

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.client.columns.formats import ColumnDecoder


class ColumnPolls(ABC):
    """The columnar methods of `AsyncConsumer`. Their arguments are not checked by `checks_arguments`, because that
    needs the annotated types, and pyarrow is imported only by the first call."""

    cluster: Cluster
    _closed: bool
    _fetcher: Fetcher
    _handout: Handout
    _isolation: IsolationLevel
    _settings: Settings
    _subscription: SubscriptionState
    _fetch_size_is_default: bool

    @abstractmethod
    def _begin_read(self) -> None: ...

    @abstractmethod
    def _give(self, delivery: HandedOut | ColumnDelivery) -> None: ...

    @abstractmethod
    async def _step(self) -> None: ...

    @abstractmethod
    def _start_fetches(self) -> None: ...

    @abstractmethod
    async def _wait(self, deadline: float) -> bool: ...

    async def poll_arrow(
        self,
        timeout_ms: float = 0,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        key_format: ColumnDecoder | None = None,
        value_format: ColumnDecoder | None = None,
        raise_problems: bool = False,
    ) -> pa.RecordBatch | None:
        """Return the records of one fetch of one partition as an Arrow RecordBatch; None after `timeout_ms`.

        Unless max.partition.fetch.bytes is set, a fetch returns up to 4 MB of each partition. Formats (such as those of
        `barnabas.registry.columns`) turn keys and values into typed columns. `raise_problems` is that of `poll`.
        """
        found = await self._take_columns(
            timeout_ms,
            columns=columns,
            include_headers=include_headers,
            key_format=key_format,
            value_format=value_format,
            raise_problems=raise_problems,
        )
        if found is None:
            return None
        self._give(found)
        return found.records[0]

    async def _take_columns(
        self,
        timeout_ms: float,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        key_format: ColumnDecoder | None = None,
        value_format: ColumnDecoder | None = None,
        raise_problems: bool = False,
    ) -> ColumnDelivery | None:
        """Take a buffer for the program, with its records."""
        from barnabas.client.columns.arrow import FETCH_BYTES, decode_fetch
        from barnabas.client.columns.formats import decode_columns

        if self._fetch_size_is_default:
            self._fetch_size_is_default = False
            self._fetcher.limits = replace(self._fetcher.limits, partition_max_bytes=FETCH_BYTES)
        deadline = self.cluster.now() + timeout_ms / 1000.0
        self._begin_read()
        while True:
            await self._step()
            batches = self._handout.buffer()
            if batches is not None:
                try:
                    records = decode_fetch(
                        batches,
                        isolation=self._isolation,
                        columns=columns,
                        include_headers=include_headers,
                        check_crcs=self._settings["check.crcs"],
                    )
                    if records is not None:
                        topic = batches.partition.topic
                        records = decode_columns(records, topic, key_format=key_format, value_format=value_format)
                except BaseException:  # a format may raise any exception; the next call raises it again
                    self._handout.put_back_buffer(batches)
                    raise
                if records is not None:
                    self._start_fetches()
                    state = self._subscription.state(batches.partition)
                    return ColumnDelivery(self._handout, state, batches, records)
                self._handout.finish_buffer(batches)
                self._start_fetches()
                continue
            if not await self._wait(deadline):
                if raise_problems:
                    self.cluster.problems.raise_current()
                return None

    def arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        key_format: ColumnDecoder | None = None,
        value_format: ColumnDecoder | None = None,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Iterate over RecordBatches, without an end. Takes the options of `poll_arrow`."""
        options = {
            "columns": columns,
            "include_headers": include_headers,
            "key_format": key_format,
            "value_format": value_format,
        }
        return _Batches(self, options)


class _Batches:
    """An endless iterator over a consumer's RecordBatches. A step that is cancelled can be repeated."""

    def __init__(self, polls: ColumnPolls, options: dict[str, Any]) -> None:
        self._polls = polls
        self._options = options

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        while not self._polls._closed:
            batch = await self._polls.poll_arrow(1_000, **self._options)
            if batch is not None:
                return batch
        raise StopAsyncIteration
