"""Machine: writes the log while this node is in office: proposals become entries, one transaction after the other.

Proposals that come while one is under way go together into the next, as far as they fit into one znode; one that does
not fit is written in parts first, which count for nothing until its entry is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.ports import CommittedBatch
from barnabas.server.metadata.records.codec import LATEST_METADATA_VERSION, MetadataRecord
from barnabas.server.node.zookeeper.entries import ZNODE_COST_BYTES, encode_batch, metadata_version_after, split
from barnabas.server.node.zookeeper.layout import TAIL, Tail, entry_path, part_path, write_parts, write_tail
from barnabas.server.node.zookeeper.machine.appends import PROPOSALS_MAX, Appends, Proposal
from barnabas.server.node.zookeeper.machine.effects import Commit, Effect, LoadSnapshot
from barnabas.server.node.zookeeper.machine.log_view import LogView
from barnabas.server.node.zookeeper.machine.office import Office
from barnabas.server.node.zookeeper.machine.reader import Ask
from barnabas.server.node.zookeeper.machine.requests import Answer, Create, Done, Failed, Failure, Multi, SetData

CHUNK_BYTES: Final = 512 * 1024
"""The most that goes into one znode; a request to ZooKeeper may have 1 MB (`jute.maxbuffer`)."""
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""KRaft's largest batch, and so ours."""


class Writer:
    """`begin` with the office, `end` with it; in between `propose`, and `ask` what to write."""

    def __init__(self, log: LogView) -> None:
        self._log = log
        self._office: Office | None = None
        self._appends = Appends()
        self._parts_done = 0
        self._next_offset = 0
        self._next_token = 0
        self._metadata_version = LATEST_METADATA_VERSION

    @property
    def waiting(self) -> bool:
        """There is something to write."""
        return self._appends.waiting

    def begin(self, office: Office) -> None:
        """All of the log is read."""
        self._office = office
        self._next_offset = self._log.tail.end_offset
        self._metadata_version = self._log.metadata_version

    def end(self) -> list[Effect]:
        self._office = None
        self._parts_done = 0
        return self._appends.step_down()

    def propose(self, records: Sequence[MetadataRecord], wall_ms: int) -> int:
        """One batch. Gives a token, which an effect Settled will name. Raises KafkaError."""
        assert self._office is not None
        if len(self._appends) >= PROPOSALS_MAX:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "ZooKeeper is not keeping up; retry later.")
        version = metadata_version_after(records, self._metadata_version)
        first, epoch = self._next_offset, self._office.epoch
        data = encode_batch(records, base_offset=first, epoch=epoch, timestamp_ms=wall_ms, metadata_version=version)
        if len(data) > BATCH_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The change is too large for one batch of the metadata log.")
        self._metadata_version = version
        self._next_offset += len(records)
        self._next_token += 1
        batch = CommittedBatch(first, epoch, wall_ms, tuple(records), len(data) + ZNODE_COST_BYTES)
        self._appends.add(Proposal(self._next_token, batch, data))
        return self._next_token

    def on_read(self, effects: list[Effect]) -> list[Effect]:
        """The same effects, with those behind them that they settle: what is read may be our own."""
        settled: list[Effect] = []
        for effect in effects:
            settled.append(effect)
            if isinstance(effect, Commit) and effect.reader == 0:
                settled += self._appends.on_read(effect.batch)
            elif isinstance(effect, LoadSnapshot) and effect.reader == 0:
                settled += self._appends.on_snapshot(effect.snapshot.end_offset)
        return settled

    def on_epoch(self) -> list[Effect]:
        """All of the log is read, up to a tail of this epoch."""
        return self._appends.on_epoch(self._log.tail.epoch)

    def ask(self) -> Ask:
        """The proposals that wait, as one entry; if it is large, its parts first."""
        office = self._office
        assert office is not None
        group = self._appends.group(CHUNK_BYTES)
        first, last = group[0].batch.base_offset, group[-1].batch.last_offset
        entry = b"".join(proposal.data for proposal in group)
        if len(entry) > CHUNK_BYTES:
            parts = split(entry, CHUNK_BYTES)
            if self._parts_done < len(parts):
                part = Create(part_path(first, office.epoch, self._parts_done), parts[self._parts_done])
                return Ask(Multi((office.check, part)), lambda answer: self._on_part(answer, office))
            entry = write_parts(first, office.epoch, len(parts))
        tail = replace(self._log.tail, end_offset=last + 1)
        for proposal in group:
            proposal.sent = True
        move = SetData(TAIL, write_tail(tail), self._log.tail_version)
        ops = (office.check, move, Create(entry_path(first), entry))
        return Ask(Multi(ops), lambda answer: self._on_appended(answer, office, group, tail))

    def _on_part(self, answer: Answer, office: Office) -> list[Effect]:
        # NODE_EXISTS: this controller wrote it before the connection was lost: the name has its epoch.
        exists = isinstance(answer, Failed) and answer.failure is Failure.NODE_EXISTS
        if self._office is office and (isinstance(answer, Done) or exists):
            self._parts_done += 1
        return []

    def _on_appended(self, answer: Answer, office: Office, group: list[Proposal], tail: Tail) -> list[Effect]:
        self._parts_done = 0
        if self._office is not office:
            self._log.look_at_tail()  # whether it is in the log, the log will tell
            return []
        if isinstance(answer, Done):
            self._log.on_moved(tail, answer.versions[1])
            effects: list[Effect] = []
            for proposal, settled in zip(group, self._appends.landed(group), strict=True):
                effects += (Commit(0, proposal.batch), settled)
            return effects
        assert isinstance(answer, Failed)
        if answer.failure is not Failure.CONNECTION_LOSS and answer.op == 2:
            raise MetadataError(f"ZooKeeper refused an entry of the metadata log that must be new: {answer.detail}")
        self._log.look_at_tail()
        return []
