"""Machine: the state of a share consumer at one broker: the share session, held records, and due acknowledgements.

    acquired ──poll──▶ held    ──acknowledge──▶ due ──request──▶ sent ──answer──▶ done
                          ▲                                        │ renewed
                          └────────────────────────────────────────┘

A session ends with its connection. The broker then releases the acquisition locks, and acknowledging a held record
fails with SHARE_SESSION_NOT_FOUND. The authorities are Kafka's ShareSessionHandler and ShareInFlightBatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from uuid import UUID

from barnabas.core.ids import TopicIdPartition
from barnabas.protocol.wire.messages import share_acknowledge, share_fetch

EPOCH_MAX: Final = 0x7FFFFFFF
CLOSING_EPOCH: Final = -1
GAP: Final = 0
"""An acquired offset without a record: removed by compaction, or a marker."""


class AcknowledgeType(IntEnum):
    """The kinds of acknowledgement; the values are those of the protocol."""

    ACCEPT = 1
    """The record was processed and is not delivered again."""
    RELEASE = 2
    """The record was not processed. It is delivered again to any consumer, up to the delivery count limit."""
    REJECT = 3
    """The record cannot be processed and is not delivered again."""
    RENEW = 4
    """The record is still being processed: its lock is renewed, and the record must be acknowledged later."""


Acknowledgements = dict[int, int]
"""Offset -> AcknowledgeType, or GAP."""


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """The partitions of the next ShareFetch."""

    epoch: int
    topics: list[share_fetch.FetchTopic]
    forgotten: list[share_fetch.ForgottenTopic]


class ShareSession:
    """The session with one broker. Its requests are numbered, so only one may be in flight."""

    def __init__(self) -> None:
        self.epoch = 0
        self.in_hand: dict[TopicIdPartition, dict[int, int | None]] = {}
        """The held records: offset -> acknowledgement, None before it is acknowledged."""
        self.due: dict[TopicIdPartition, Acknowledgements] = {}
        self._known: set[TopicIdPartition] = set()

    @property
    def is_open(self) -> bool:
        return self.epoch > 0

    # -- acknowledging ---------------------------------------------------------------------------------------------

    def unacknowledged(self) -> int:
        return sum(kind is None for offsets in self.in_hand.values() for kind in offsets.values())

    def accept_everything(self) -> None:
        """Accept all held records (implicit mode)."""
        for offsets in self.in_hand.values():
            for offset, kind in offsets.items():
                if kind is None:
                    offsets[offset] = AcknowledgeType.ACCEPT

    def collect(self) -> None:
        """Move acknowledged records to the due acknowledgements."""
        for partition in list(self.in_hand):
            offsets = self.in_hand[partition]
            done = {offset: kind for offset, kind in offsets.items() if kind is not None}
            if done:
                self.due.setdefault(partition, {}).update(done)
            left: dict[int, int | None] = {offset: None for offset, kind in offsets.items() if kind is None}
            if left:
                self.in_hand[partition] = left
            else:
                del self.in_hand[partition]

    def take_due(self) -> dict[TopicIdPartition, Acknowledgements]:
        due, self.due = self.due, {}
        return due

    # -- requests --------------------------------------------------------------------------------------------------

    def plan_fetch(
        self, wanted: Iterable[TopicIdPartition], due: Mapping[TopicIdPartition, Acknowledgements]
    ) -> FetchPlan:
        """The partitions to add to the session, those with acknowledgements, and those to remove."""
        wanted = set(wanted)
        topics: dict[UUID, share_fetch.FetchTopic] = {}
        for partition in sorted((wanted - self._known) | (due.keys() & wanted)):
            topic = topics.setdefault(partition.topic_id, share_fetch.FetchTopic(topic_id=partition.topic_id))
            batches = [
                share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
                for first, last, kinds in runs(due.get(partition, {}))
            ]
            topic.partitions.append(
                share_fetch.FetchPartition(partition_index=partition.partition, acknowledgement_batches=batches)
            )
        forgotten: dict[UUID, share_fetch.ForgottenTopic] = {}
        for partition in sorted(self._known - wanted):
            gone = forgotten.setdefault(partition.topic_id, share_fetch.ForgottenTopic(topic_id=partition.topic_id))
            gone.partitions.append(partition.partition)
        self._known = wanted
        return FetchPlan(self.epoch, list(topics.values()), list(forgotten.values()))

    def plan_acknowledge(
        self, due: Mapping[TopicIdPartition, Acknowledgements]
    ) -> list[share_acknowledge.AcknowledgeTopic]:
        topics: dict[UUID, share_acknowledge.AcknowledgeTopic] = {}
        for partition in sorted(due):
            topic = topics.setdefault(
                partition.topic_id, share_acknowledge.AcknowledgeTopic(topic_id=partition.topic_id)
            )
            batches = [
                share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
                for first, last, kinds in runs(due[partition])
            ]
            topic.partitions.append(
                share_acknowledge.AcknowledgePartition(
                    partition_index=partition.partition, acknowledgement_batches=batches
                )
            )
        return list(topics.values())

    def on_success(self) -> None:
        self.epoch = 1 if self.epoch >= EPOCH_MAX else self.epoch + 1

    def on_lost(self) -> dict[TopicIdPartition, Acknowledgements]:
        """The session and all locks have ended. Returns the records that can no longer be acknowledged."""
        lost = self.take_due()
        for partition, offsets in self.in_hand.items():
            lost.setdefault(partition, {}).update({offset: kind or GAP for offset, kind in offsets.items()})
        self.in_hand = {}
        self.epoch = 0
        self._known = set()
        return lost


def runs(acknowledgements: Acknowledgements) -> list[tuple[int, int, list[int]]]:
    """Runs of consecutive offsets as (first offset, last offset, types). If all types of a run are equal, the run has
    only one type."""
    found: list[tuple[int, int, list[int]]] = []
    kinds: list[int] = []
    first = last = -1
    for offset in sorted(acknowledgements):
        if kinds and offset != last + 1:
            found.append((first, last, _short(kinds)))
            kinds = []
        if not kinds:
            first = offset
        kinds.append(int(acknowledgements[offset]))
        last = offset
    if kinds:
        found.append((first, last, _short(kinds)))
    return found


def _short(kinds: list[int]) -> list[int]:
    return kinds[:1] if len(set(kinds)) == 1 else kinds
