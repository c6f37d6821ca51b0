"""Shell: the source cluster, as the driver sees it: partitions, topic ids, and the ends of the logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from barnabas.client.offsets import list_offsets
from barnabas.client.values import EARLIEST, LATEST, IsolationLevel, OffsetAndTimestamp
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.spark.connection import LogClient
from barnabas.spark.mirror.copying.planner import SourceView
from barnabas.spark.source.positions import Position, SourceSubscription

log = get_logger("barnabas.mirror")

REFRESH_MS: Final = 5_000
"""How often new partitions, topic ids and log start offsets are requested."""
OFFSETS_TIMEOUT_MS: Final = 10_000
"""How long the offsets of a partition without a leader are waited for; the partition is then left out for once."""


class SourceClient:
    """Reads the offsets of the source topics of a copier: the ends of the logs each time, all else every REFRESH_MS."""

    def __init__(self, settings: Mapping[str, str], topics: Collection[str]) -> None:
        self._client = LogClient(settings)
        self._subscription = SourceSubscription(topics=tuple(sorted(topics)))
        self._partitions: list[TopicPartition] = []
        self._earliest: dict[TopicPartition, int] = {}
        self._refreshed_ms: int | None = None

    def close(self) -> None:
        self._client.close()

    def reach(self) -> None:
        """Raise BootstrapError soon if the cluster does not answer."""
        self._client.reach()

    def forget(self) -> None:
        """Request everything at the next `read_view`: a task has found that its records are not in the log any more."""
        self._refreshed_ms = None

    def read_view(
        self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int], now_ms: int
    ) -> SourceView:
        """The source topics now, and what `positions` with these leader epochs are in them; topics that do not exist
        are left out. Raises KafkaError."""
        client = self._client
        if self._refreshed_ms is None or now_ms - self._refreshed_ms >= REFRESH_MS:
            self._partitions = client.partitions(self._subscription)
            self._earliest = _offsets(self._answers(self._partitions, EARLIEST))
            self._refreshed_ms = now_ms
        answers = self._answers(self._partitions, LATEST)
        latest = _offsets(answers)
        leaders = {tp: answer.leader_epoch for tp, answer in answers.items() if answer.leader_epoch >= 0}
        short = [tp for tp, end in latest.items() if end < positions.get(tp, 0)]
        known = client.cluster.metadata.topics
        names = {tp.topic for tp in latest if tp in self._earliest}
        return SourceView(
            self._earliest,
            {tp: end for tp, end in latest.items() if tp in self._earliest},
            {name: known[name].topic_id for name in sorted(names) if name in known},
            _offsets(self._answers(short, LATEST, IsolationLevel.READ_UNCOMMITTED)),
            leaders,
            client.diverged(Position(positions, epochs=epochs), leaders, {}),
        )

    def _answers(
        self, partitions: Sequence[TopicPartition], which: int, isolation: IsolationLevel | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        if not partitions:
            return {}
        client = self._client
        level = client.isolation if isolation is None else isolation

        async def ask() -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
            deadline = client.cluster.deadline(OFFSETS_TIMEOUT_MS)
            return await list_offsets(
                client.cluster, dict.fromkeys(partitions, which), isolation=level, deadline=deadline
            )

        answers = client.run(ask())
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        for tp, answer in answers.items():
            if not isinstance(answer, KafkaError):
                found[tp] = answer
            elif answer.retriable:
                log.warning("a source partition does not answer", partition=str(tp), reason=str(answer))
                self.forget()
            else:
                raise answer
        return found


def _offsets(answers: Mapping[TopicPartition, OffsetAndTimestamp]) -> dict[TopicPartition, int]:
    return {tp: answer.offset for tp, answer in answers.items()}
