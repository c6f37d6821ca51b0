"""Machine: what a share consumer has of one broker: the share session, records in its hands, and acknowledgements due.

    acquired ──poll──▶ in hand ──acknowledge──▶ due ──request──▶ sent ──answer──▶ done
                          ▲                                        │ renewed
                          └────────────────────────────────────────┘

A session ends with its connection, and with it the broker's promise to keep records for us: what was in hand then
belongs to nobody, and acknowledging it fails with SHARE_SESSION_NOT_FOUND. Kafka's ShareSessionHandler and
ShareInFlightBatch are the authority.
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
"""An acquired offset without a record: compacted away, or a marker."""


class AcknowledgeType(IntEnum):
    """What became of a record; the integer is the wire's."""

    ACCEPT = 1
    """Processed: it will not come again."""
    RELEASE = 2
    """Not processed: it may come again, to anybody, unless it has come too often."""
    REJECT = 3
    """Cannot be processed: it will not come again."""
    RENEW = 4
    """Still being processed: the lock begins anew, and the record must be acknowledged once more."""


Acknowledgements = dict[int, int]
"""Offset -> AcknowledgeType, or GAP."""


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What the next ShareFetch says about partitions."""

    epoch: int
    topics: list[share_fetch.FetchTopic]
    forgotten: list[share_fetch.ForgottenTopic]


class ShareSession:
    """One broker's session. One request of it may be under way at a time: they are numbered."""

    def __init__(self) -> None:
        self.epoch = 0
        self.in_hand: dict[TopicIdPartition, dict[int, int | None]] = {}
        """Given to the user: offset -> how it was acknowledged, None while it was not."""
        self.due: dict[TopicIdPartition, Acknowledgements] = {}
        self._known: set[TopicIdPartition] = set()

    @property
    def is_open(self) -> bool:
        return self.epoch > 0

    # -- acknowledging ---------------------------------------------------------------------------------------------

    def unacknowledged(self) -> int:
        return sum(kind is None for offsets in self.in_hand.values() for kind in offsets.values())

    def accept_everything(self) -> None:
        """Implicit mode: what was given to the user counts as processed."""
        for offsets in self.in_hand.values():
            for offset, kind in offsets.items():
                if kind is None:
                    offsets[offset] = AcknowledgeType.ACCEPT

    def collect(self) -> None:
        """What was acknowledged becomes due."""
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
        """Name partitions that are new to the session, those with acknowledgements, and those to forget."""
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
        """The session is gone, and with it every lock. Gives what can no longer be acknowledged."""
        lost = self.take_due()
        for partition, offsets in self.in_hand.items():
            lost.setdefault(partition, {}).update({offset: kind or GAP for offset, kind in offsets.items()})
        self.in_hand = {}
        self.epoch = 0
        self._known = set()
        return lost


def runs(acknowledgements: Acknowledgements) -> list[tuple[int, int, list[int]]]:
    """(first offset, last offset, types) of offsets without a hole; one type stands for all when they agree."""
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
