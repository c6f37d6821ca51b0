"""Machine: writes proposals as log entries while this node is the leader, one transaction after the other.

Proposals that arrive while a transaction is in flight go into the next entry together, if they fit into one znode. The
batches of a larger proposal are first written as parts, which are valid only after the entry is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.ports import CommittedBatch
from barnabas.server.metadata.records.codec import LATEST_METADATA_VERSION, MetadataRecord
from barnabas.server.quorum.zookeeper.entries import ZNODE_COST_BYTES, encode_batch, metadata_version_after, split
from barnabas.server.quorum.zookeeper.layout import TAIL, LogTail, entry_path, part_path, write_parts, write_tail
from barnabas.server.quorum.zookeeper.machine.appends import PROPOSALS_MAX, Appends, Proposal
from barnabas.server.quorum.zookeeper.machine.effects import Commit, Effect, LoadSnapshot
from barnabas.server.quorum.zookeeper.machine.lease import ControllerLease
from barnabas.server.quorum.zookeeper.machine.log_view import ZooKeeperLogView
from barnabas.server.quorum.zookeeper.machine.reader import ZooKeeperCall
from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Create,
    Done,
    FailureReason,
    Multi,
    RequestFailed,
    SetData,
)

CHUNK_BYTES: Final = 512 * 1024
"""The largest size of a znode. ZooKeeper limits a request to 1 MB (`jute.maxbuffer`)."""
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest size of a batch of records; KRaft has this limit, too."""


class Writer:
    """The writes of the leader. Call `begin` when the leadership begins, and `end` when it ends. Between the two calls,
    `propose` queues records, and `ask` returns the next write."""

    def __init__(self, log: ZooKeeperLogView) -> None:
        self._log = log
        self._lease: ControllerLease | None = None
        self._appends = Appends()
        self._parts_done = 0
        self._next_offset = 0
        self._next_token = 0
        self._metadata_version = LATEST_METADATA_VERSION

    @property
    def waiting(self) -> bool:
        """Whether there are proposals to write."""
        return self._appends.waiting

    def begin(self, lease: ControllerLease) -> None:
        """Start to accept proposals. The whole log must have been read."""
        self._lease = lease
        self._next_offset = self._log.tail.end_offset
        self._metadata_version = self._log.metadata_version

    def end(self) -> list[Effect]:
        self._lease = None
        self._parts_done = 0
        return self._appends.step_down()

    def propose(self, records: Sequence[MetadataRecord], wall_ms: int) -> int:
        """Queue `records` as one batch. Returns a token, which the effect Settled will contain. Raises KafkaError."""
        assert self._lease is not None
        if len(self._appends) >= PROPOSALS_MAX:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, "ZooKeeper is too slow for the rate of changes; retry later."
            )
        version = metadata_version_after(records, self._metadata_version)
        first, epoch = self._next_offset, self._lease.epoch
        data = encode_batch(records, base_offset=first, epoch=epoch, timestamp_ms=wall_ms, metadata_version=version)
        if len(data) > BATCH_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The change exceeds the batch size limit of the metadata log.")
        self._metadata_version = version
        self._next_offset += len(records)
        self._next_token += 1
        batch = CommittedBatch(first, epoch, wall_ms, tuple(records), len(data) + ZNODE_COST_BYTES)
        self._appends.add(Proposal(self._next_token, batch, data))
        return self._next_token

    def on_read(self, effects: list[Effect]) -> list[Effect]:
        """Return `effects`, each followed by the Settled effects of this node's proposals that were read in the log."""
        settled: list[Effect] = []
        for effect in effects:
            settled.append(effect)
            if isinstance(effect, Commit) and effect.reader == 0:
                settled += self._appends.on_read(effect.batch)
            elif isinstance(effect, LoadSnapshot) and effect.reader == 0:
                settled += self._appends.on_snapshot(effect.snapshot.end_offset)
        return settled

    def on_epoch(self) -> list[Effect]:
        """The log has been read up to the tail: settle proposals of earlier epochs."""
        return self._appends.on_epoch(self._log.tail.epoch)

    def ask(self) -> ZooKeeperCall:
        """The next write: the queued proposals as one entry, or the next part of a large entry."""
        lease = self._lease
        assert lease is not None
        group = self._appends.group(CHUNK_BYTES)
        first, last = group[0].batch.base_offset, group[-1].batch.last_offset
        entry = b"".join(proposal.data for proposal in group)
        if len(entry) > CHUNK_BYTES:
            parts = split(entry, CHUNK_BYTES)
            if self._parts_done < len(parts):
                part = Create(part_path(first, lease.epoch, self._parts_done), parts[self._parts_done])
                return ZooKeeperCall(Multi((lease.check, part)), lambda answer: self._on_part(answer, lease))
            entry = write_parts(first, lease.epoch, len(parts))
        tail = replace(self._log.tail, end_offset=last + 1)
        for proposal in group:
            proposal.sent = True
        move = SetData(TAIL, write_tail(tail), self._log.tail_version)
        ops = (lease.check, move, Create(entry_path(first), entry))
        return ZooKeeperCall(Multi(ops), lambda answer: self._on_appended(answer, lease, group, tail))

    def _on_part(self, answer: Answer, lease: ControllerLease) -> list[Effect]:
        # NODE_EXISTS: this controller (the name has its epoch) wrote the part before the connection was lost.
        exists = isinstance(answer, RequestFailed) and answer.failure is FailureReason.NODE_EXISTS
        if self._lease is lease and (isinstance(answer, Done) or exists):
            self._parts_done += 1
        return []

    def _on_appended(
        self, answer: Answer, lease: ControllerLease, group: list[Proposal], tail: LogTail
    ) -> list[Effect]:
        self._parts_done = 0
        if self._lease is not lease:
            self._log.look_at_tail()  # read the log to find out whether the entry was written
            return []
        if isinstance(answer, Done):
            self._log.on_moved(tail, answer.versions[1])
            effects: list[Effect] = []
            for proposal, settled in zip(group, self._appends.on_committed(group), strict=True):
                effects += (Commit(0, proposal.batch), settled)
            return effects
        assert isinstance(answer, RequestFailed)
        if answer.failure is not FailureReason.CONNECTION_LOSS and answer.op == 2:
            raise MetadataError(f"ZooKeeper rejected a new entry of the metadata log: {answer.detail}")
        self._log.look_at_tail()
        return []
