"""`maxBytesPerTrigger` limits also where the sizes of partitions may not be read."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from tests.logs import messages

from barnabas.client.fetch_sizes import ASSUMED_BYTES_PER_OFFSET
from barnabas.client.partition_reader import OffsetRange
from barnabas.client.values import FetchedBatches
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.spark import connection
from barnabas.spark.connection import LogClient
from barnabas.spark.options import OnDataLoss
from barnabas.spark.source.options import Limits
from barnabas.spark.source.planner import LogOffsets, StreamPlanner
from barnabas.spark.source.positions import Position

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Unauthorized(LogClient):
    """A client that may read topics, but not describe the cluster. Offsets of `a-0` have 2,000 bytes."""

    def __init__(self) -> None:
        self._samples = {}
        self.fetched: list[TopicPartition] = []

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        work.close()
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def fetch(self, wanted: OffsetRange, *, stall_timeout_ms: float) -> Iterator[FetchedBatches]:
        self.fetched.append(wanted.partition)
        if wanted.partition == A1:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        yield FetchedBatches(wanted.partition, wanted.start, bytes(20_000), -1, -1, -1, end=wanted.start + 10)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Unauthorized:
    class NoAdmin:
        def __init__(self, **_: object) -> None: ...

        async def describe_log_dirs(self) -> None: ...

    monkeypatch.setattr(connection, "AsyncAdmin", NoAdmin)
    made = Unauthorized()
    made.cluster = None  # type: ignore[assignment]
    return made


def test_sizes_that_may_not_be_read_are_sampled_with_one_warning(
    client: Unauthorized, caplog: pytest.LogCaptureFixture
) -> None:
    log = LogOffsets({A0: 5, A1: 0}, {A0: 100_005, A1: 1_000})
    for _ in range(3):
        assert client.bytes_per_offset(log) == {A0: 2_000.0, A1: ASSUMED_BYTES_PER_OFFSET}
    assert client.fetched == [A0, A1]
    (warning,) = messages(caplog, "barnabas.spark")
    assert "Not authorized for the cluster" in warning
    assert "maxBytesPerTrigger" in warning


def test_a_micro_batch_without_sizes_is_near_max_bytes_per_trigger(client: Unauthorized) -> None:
    """Before, an offset counted as one byte: 1 MB was a million offsets, here 2 GB."""
    log = LogOffsets({A0: 0}, {A0: 1_000_000})
    planner = StreamPlanner(Limits(max_bytes=1_000_000), OnDataLoss.FAIL)
    plan = planner.plan(Position({A0: 0}), log, now_ms=0, bytes_per_offset=client.bytes_per_offset(log))
    assert plan.end.offsets == {A0: 500}
