"""Machine: a consumer's subscription or assignment, and each partition's position, pause and reset."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from barnabas.client.values import EARLIEST, LATEST, OffsetAndMetadata
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_LEADER_EPOCH, NO_TOPIC_ID, TopicPartition


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """`auto.offset.reset`: earliest, latest, by_duration:PT1H30M, or none."""

    timestamp: int | None
    """EARLIEST or LATEST; None for `none` and for `by_duration`, which sets `duration_ms`."""
    duration_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> ResetPolicy:
        lowered = text.strip().lower()
        if lowered == "earliest":
            return cls(EARLIEST)
        if lowered == "latest":
            return cls(LATEST)
        if lowered == "none":
            return cls(None)
        if lowered.startswith("by_duration:"):
            return cls(None, parse_duration_ms(text.split(":", 1)[1]))
        raise ConfigError(f"auto.offset.reset {text!r} is none of earliest, latest, none, by_duration:PT1H.")

    @property
    def is_none(self) -> bool:
        return self.timestamp is None and self.duration_ms is None

    def timestamp_at(self, now_ms: int) -> int:
        """The timestamp for ListOffsets."""
        if self.duration_ms is not None:
            return now_ms - self.duration_ms
        assert self.timestamp is not None
        return self.timestamp


_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


def parse_duration_ms(text: str) -> int:
    """An ISO-8601 duration of days and time (PnDTnHnMn.nS) in ms. Raises ConfigError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ConfigError(f"{text!r} is not a duration like PT30M, PT12H or P7D.")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


class SubscriptionMode(Enum):
    """How partitions are chosen. A consumer uses one mode at a time."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    REMOTE_PATTERN = "pattern on the broker"
    ASSIGNED = "assigned"


Mark = tuple[int, int]
"""An offset, and the leader epoch of the record before it."""


@dataclass(slots=True)
class PartitionState:
    """One assigned partition."""

    partition: TopicPartition
    position: int | None = None
    """The offset of the next record to take from the fetched buffers; None while unknown."""
    returned: Mark | None = None
    """The position after the last record that the program has received; None while unknown. `commit` commits it."""
    consumed: Mark | None = None
    """The position after the last record that the program has received and has asked beyond. Automatic commits commit
    it, so that a record in whose processing the program fails is read again."""
    moves: int = 0
    """Incremented when the position moves otherwise than by reading, and when the partition is revoked: records that
    were taken before are stale then."""
    fetch_position: int | None = None
    """The offset of the next fetch, after the buffers that have arrived; None means `position`."""
    fetch_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the record before `fetch_position`. The broker compares both with its log (KIP-320). With an
    outdated epoch the broker would report a truncated log."""
    leader_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the record before `position`."""
    topic_id: UUID = NO_TOPIC_ID
    """The id of the topic that `position` belongs to. Unknown (NO_TOPIC_ID) after a seek by the user until the next
    fetch, and with brokers that have no topic ids."""
    paused: bool = False
    reset_to: int | None = None
    """The ListOffsets timestamp from which the position must be found; None if no reset is due."""
    retry_at: float = 0.0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    preferred_replica: int = -1
    preferred_until: float = 0.0
    revoking: bool = False
    """Whether the partition is being revoked, so that no more records are returned."""

    @property
    def next_fetch(self) -> int:
        """The offset to fetch from. Valid only if `fetchable`."""
        assert self.position is not None
        return self.position if self.fetch_position is None else self.fetch_position

    @property
    def last_fetched_epoch(self) -> int:
        """The leader epoch of the record before `next_fetch`."""
        return self.leader_epoch if self.fetch_position is None else self.fetch_epoch

    @property
    def fetchable(self) -> bool:
        return self.position is not None and not self.paused and not self.revoking

    @property
    def has_unreturned(self) -> bool:
        """Whether records were taken from the buffers that the program has not received yet."""
        return self.returned is not None and self.returned[0] != self.position

    def belongs_to(self, topic_id: UUID) -> bool:
        """Whether the position may belong to the topic with this id: false only if both ids are known and differ."""
        return self.topic_id == topic_id or NO_TOPIC_ID in (self.topic_id, topic_id)

    def seek(self, offset: int, leader_epoch: int = NO_LEADER_EPOCH, topic_id: UUID = NO_TOPIC_ID) -> None:
        self.returned = self.consumed = (offset, leader_epoch)
        self.topic_id = topic_id
        self.rewind()
        self.reset_to = None

    def rewind(self) -> None:
        """Continue from the last record that the program has received: what was fetched since is fetched again."""
        assert self.returned is not None
        self.position, self.leader_epoch = self.returned
        self.fetch_position = None
        self.moves += 1

    def reset(self, timestamp: int) -> None:
        """Find the position from a timestamp of ListOffsets."""
        self.forget()
        self.reset_to = timestamp

    def forget(self) -> None:
        """Find the position from the committed offset, or from the reset policy."""
        self.position = self.fetch_position = self.reset_to = self.returned = self.consumed = None
        self.topic_id = NO_TOPIC_ID
        self.moves += 1


class SubscriptionState:
    """The subscription and the assigned partitions of one consumer."""

    def __init__(self) -> None:
        self.mode = SubscriptionMode.NONE
        self.topics: frozenset[str] = frozenset()
        """The subscribed topics; for a pattern, the topics that match now."""
        self.pattern: re.Pattern[str] | None = None
        self.remote_pattern: str | None = None
        """A pattern that the broker matches (KIP-848)."""
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.version = 0
        """Incremented at every change of the assignment and every seek, so that earlier fetches are stale."""
        self._assigned_topics: frozenset[str] = frozenset()

    def subscribe(self, topics: Iterable[str]) -> None:
        names = frozenset(topics)
        for name in names:
            if not isinstance(name, str) or not name:
                raise ConfigError(f"A topic is a text that is not empty, not {name!r:.100}.")
        self._switch(SubscriptionMode.TOPICS)
        self.topics = names
        self.pattern = None

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        self._switch(SubscriptionMode.PATTERN)
        self.pattern = pattern

    def subscribe_remote_pattern(self, pattern: str) -> None:
        self._switch(SubscriptionMode.REMOTE_PATTERN)
        self.remote_pattern = pattern

    def match(self, names: Iterable[str]) -> bool:
        """Match the pattern against the existing topics. Returns whether the subscribed topics change."""
        assert self.pattern is not None
        matching = frozenset(name for name in names if self.pattern.fullmatch(name))
        changed = matching != self.topics
        self.topics = matching
        return changed

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions manually. Positions of remaining partitions are kept."""
        wanted = list(partitions)
        for partition in wanted:
            if not isinstance(partition, TopicPartition):
                raise ConfigError(f"assign takes TopicPartition('orders', 0) and the like, not {partition!r:.100}.")
        self._switch(SubscriptionMode.ASSIGNED)
        self.set_partitions(wanted)
        self._assigned_topics = frozenset(partition.topic for partition in wanted)

    def named_topics(self) -> frozenset[str]:
        """The topics that the user has named; empty for a pattern."""
        if self.mode is SubscriptionMode.ASSIGNED:
            return self._assigned_topics
        return self.topics if self.mode is SubscriptionMode.TOPICS else frozenset()

    def set_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        before = self.partitions
        self.partitions = {p: before.get(p) or PartitionState(p) for p in partitions}
        for partition, state in before.items():
            if partition not in self.partitions:
                state.moves += 1
        self.version += 1

    def detach(self) -> SubscriptionState:
        """Unsubscribe, and return the former subscription with its partitions."""
        former = copy(self)
        self.unsubscribe()
        return former

    def unsubscribe(self) -> None:
        self.mode = SubscriptionMode.NONE
        self.topics = frozenset()
        self.pattern = None
        self.remote_pattern = None
        self.set_partitions(())

    def _switch(self, mode: SubscriptionMode) -> None:
        if self.mode not in (SubscriptionMode.NONE, mode):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"This consumer uses {self.mode.value}; subscribe to topics, subscribe to a pattern and assign"
                " exclude each other. Call unsubscribe() first.",
            )
        self.mode = mode

    @property
    def uses_group(self) -> bool:
        return self.mode in (SubscriptionMode.TOPICS, SubscriptionMode.PATTERN, SubscriptionMode.REMOTE_PATTERN)

    def state(self, partition: TopicPartition) -> PartitionState:
        """The state of an assigned partition. Raises KafkaError for a partition that is not assigned."""
        found = self.partitions.get(partition)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{partition} is not assigned to this consumer; see assignment().",
            )
        return found

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        self.state(partition).seek(offset, leader_epoch)
        self.version += 1

    def forget(self, partition: TopicPartition) -> None:
        """Remove the position of a partition (see `PartitionState.forget`)."""
        self.state(partition).forget()
        self.version += 1

    def request_reset(self, partition: TopicPartition, timestamp: int) -> None:
        self.state(partition).reset(timestamp)
        self.version += 1

    def without_position(self) -> list[PartitionState]:
        """The partitions whose position must come from a committed offset or from the reset policy."""
        return [s for s in self.partitions.values() if s.position is None and s.reset_to is None]

    def to_reset(self, now: float) -> list[PartitionState]:
        return [s for s in self.partitions.values() if s.reset_to is not None and s.retry_at <= now]

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of all partitions behind what is consumed, which an automatic commit commits."""
        return {p: _committed(s.consumed, s.topic_id) for p, s in self.partitions.items() if s.consumed is not None}

    def all_returned(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of all partitions behind what the program has received, which `commit()` commits."""
        return {p: _committed(s.returned, s.topic_id) for p, s in self.partitions.items() if s.returned is not None}

    def topic_ids(self) -> dict[TopicPartition, UUID]:
        """The ids of the topics that the positions belong to, if they are known."""
        return {p: s.topic_id for p, s in self.partitions.items() if s.topic_id != NO_TOPIC_ID}


def _committed(mark: Mark, topic_id: UUID) -> OffsetAndMetadata:
    return OffsetAndMetadata(mark[0], "", mark[1], topic_id)


RebalanceCallback = Callable[[list[TopicPartition]], object]
