"""The modelled parts of a broker: a log that is a list, and the state that a process loses when it dies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.replication.rules.follower import BoundsRequest, FetchFrom, FollowerState
from barnabas.server.replication.rules.leader import LeaderState
from barnabas.server.storage.epochs import LeaderEpochs
from barnabas.server.storage.values import EpochEndOffset


class Record(NamedTuple):
    """Every value is written once."""

    epoch: int
    value: int


class ModelLog:
    """The attributes of `storage.Log` that replication uses, with the production epoch cache."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.base = 0
        """The offset of `records[0]`."""
        self.records: list[Record] = []
        self.epochs = LeaderEpochs()

    def __repr__(self) -> str:
        return f"{self.log_start_offset}..{self.log_end_offset}"

    @property
    def log_end_offset(self) -> int:
        return self.base + len(self.records)

    @property
    def latest_epoch(self) -> int | None:
        latest = self.epochs.latest
        return None if latest is None else latest.epoch

    @property
    def local_log_start_offset(self) -> int:
        return self.log_start_offset

    @property
    def lacks_lineage(self) -> bool:
        return False

    def epoch_end_offset(self, epoch: int) -> EpochEndOffset:
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def append(self, records: Sequence[Record]) -> int:
        first = self.log_end_offset
        for record in records:
            self.epochs.assign(record.epoch, self.log_end_offset)
            self.records.append(record)
        return first

    def at(self, offset: int) -> Record | None:
        return self.records[offset - self.base] if self.base <= offset < self.log_end_offset else None

    def slice(self, offset: int, count: int) -> list[Record]:
        return self.records[offset - self.base : offset - self.base + count]

    def between(self, start: int, end: int) -> list[Record]:
        return self.records[start - self.base : end - self.base]

    def truncate(self, offset: int) -> None:
        if offset < self.base:
            self.restart(offset)
            return
        del self.records[offset - self.base :]
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.epochs.truncate_from_end(self.log_end_offset)

    def restart(self, offset: int) -> None:
        self.records.clear()
        self.epochs.clear()
        self.base = self.log_start_offset = offset

    def advance_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            assert offset <= self.log_end_offset, "the log cannot start after its end"
            del self.records[: offset - self.base]
            self.base = self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)


class ModelBroker:
    """One broker: the state on its disk and the state in its memory."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.log = ModelLog()
        self.flushed = 0
        self.checkpoint = 0
        self.previous_epoch = -1
        """Written to disk by a controlled shutdown."""
        self.life = 0
        self.up = True
        self._forget()

    def _forget(self) -> None:
        self.epoch = -1
        self.image: ClusterImage | None = None
        self.leader: LeaderState | None = None
        self.follower: FollowerState | None = None
        self.high_watermark = min(max(self.checkpoint, self.log.log_start_offset), self.log.log_end_offset)
        self.waiting: list[tuple[int, Record]] = []
        self.attempt: object | None = None
        self.asked: FetchFrom | BoundsRequest | None = None
        self.asked_until = 0
        self.stopping = False
        self.paused_until = 0

    def active(self) -> dict[int, int]:
        """The brokers that this broker considers active."""
        if self.image is None:
            return {}
        return {b.broker_id: b.epoch for b in self.image.brokers if b.is_active}

    def resign(self) -> None:
        self.leader = None
        self.waiting = []
        self.attempt = None

    def drop(self) -> None:
        """The broker is no longer a replica of the partition."""
        self.resign()
        self.follower = None
        self.log = ModelLog()
        self.flushed = self.checkpoint = self.high_watermark = 0

    def crash(self, kept: int) -> None:
        self.up = False
        self.log.truncate(kept)
        self.previous_epoch = -1

    def stop(self) -> None:
        self.up = False
        self.checkpoint = self.high_watermark
        self.flushed = self.log.log_end_offset
        self.previous_epoch = self.epoch

    def start(self) -> None:
        self.up = True
        self.life += 1
        self._forget()

    def registered(self, image: ClusterImage) -> bool:
        """Whether the controller has registered this process."""
        known: Any = image.brokers.get(self.id)
        return self.epoch >= 0 and known is not None and known.epoch == self.epoch
