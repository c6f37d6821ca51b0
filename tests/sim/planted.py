"""Planted bugs of one node. Each one makes the production code wrong in one place, in a way that a programmer might.

A simulation that does not find these bugs proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.protocol.wire.messages.write_txn_markers import WriteTxnMarkersResponse
from barnabas.server.broker.quorum import batches as quorum_batches
from barnabas.server.node.adapters import ReplicatedWriter
from barnabas.server.peers.coordination import Markers
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.roles import leader as leader_module
from barnabas.server.storage import appending, recovery, scanning
from barnabas.server.storage import log as log_module
from barnabas.server.storage import state as log_state
from barnabas.server.storage.directory import state as directory_state
from barnabas.server.storage.errors import DescriptorsExhaustedError, DiskFullError, LogFailedError
from barnabas.server.storage.flushing import FlushJob
from barnabas.server.storage.log import Log
from barnabas.server.storage.producers.state import ProducerState
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.values import AppendInfo
from barnabas.testing.sim import CorrectnessError, CrashError, LivenessError
from barnabas.testing.sim.faults import NodeFaultMenu

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, the menu of faults that makes it visible, and the kinds of failure that it may cause."""

    name: str
    plant: Callable[[Patch], None]
    menu: NodeFaultMenu
    seeds: int
    caught_by: tuple[type[Exception], ...] = (CorrectnessError,)
    first: int = 0
    """The first seed to run."""


def _no_fsync(patch: Patch) -> None:
    """The fsync that flush.messages requires is skipped, and reported as done."""
    patch.setattr(FlushJob, "run", lambda self: None)


def _ack_before_fsync(patch: Patch) -> None:
    """Neither the response nor the high watermark waits for the fsync."""
    patch.setattr(Partition, "must_flush", property(lambda self: False))
    patch.setattr(Partition, "flushes_first", property(lambda self: False))
    patch.setattr(leader_module, "FLUSH_EVERY_MESSAGE", -1)  # no topic has this value


def _names_not_synced(patch: Patch) -> None:
    """Files are synced, their directory is not."""

    def run(self: Any) -> None:
        for file in self._files:
            file.sync()

    patch.setattr(FlushJob, "run", run)


def _ack_before_append(patch: Patch) -> None:
    """The batch is appended shortly after its acknowledgement."""
    real = Log.append_as_leader

    def append(self: Log, buf: Any, **kwargs: Any) -> AppendInfo:
        if self.topic_partition.topic.startswith("_"):
            return real(self, buf, **kwargs)
        late: list[Any] = self.__dict__.setdefault("late", [])
        if late:
            data, options = late.pop()
            real(self, data, **options)
        end = self.log_end_offset
        late.append((bytes(buf), kwargs))

        def write() -> None:
            if late:
                data, options = late.pop()
                real(self, data, **options)

        asyncio.get_running_loop().call_later(0.05, write)
        count = int.from_bytes(bytes(buf[57:61]), "big")
        return AppendInfo(end, end + count - 1, -1, self.log_start_offset, len(buf))

    patch.setattr(Log, "append_as_leader", append)


def _torn_tail_kept(patch: Patch) -> None:
    """Recovery checks the length of a batch, but not its CRC."""
    patch.setattr(scanning, "check_crc", lambda buf, at, header: None)


def _no_recovery(patch: Patch) -> None:
    """After a crash a log is opened as after a clean shutdown. (In the power menu, in which every batch is flushed,
    this bug has little effect, since a torn batch at the end is found anyway.)"""
    real = recovery.load
    patch.setattr(log_module, "load", lambda request: real(replace(request, clean=True)))


def _producers_forgotten(patch: Patch) -> None:
    """The state of idempotent producers is lost in a crash."""

    def replay(state: ProducerState, snapshots: Any, segments: Any, start: int, up_to: int, now_ms: int) -> None:
        state.reset(up_to)

    patch.setattr(recovery, "replay_producers", replay)
    patch.setattr(recovery, "apply_batch", lambda state, buf, at, header: [])


def _duplicates_appended(patch: Patch) -> None:
    """A retried batch is appended again."""
    patch.setattr(ProducerState, "duplicate_of", lambda self, header: None)
    real = ProducerState.prepare

    def prepare(self: ProducerState, batches: Any, markers: Any, origin: Any) -> Any:
        return real(self, batches, markers, None)

    patch.setattr(ProducerState, "prepare", prepare)


def _watermark_behind(patch: Patch) -> None:
    """The high watermark is off by one: the last record is never committed."""
    real = vars(leader_module)["high_watermark"]

    def behind(state: Any, end: int, current: int, **options: Any) -> int:
        return max(current, int(real(state, end, current, **options)) - 1)

    patch.setattr(leader_module, "high_watermark", behind)


def _stable_offset_ahead(patch: Patch) -> None:
    """read_committed consumers read up to the high watermark."""
    patch.setattr(Log, "last_stable_offset", lambda self, high_watermark: high_watermark)


def _aborts_left_out(patch: Patch) -> None:
    """A Fetch response omits the aborted transactions."""
    patch.setattr(Log, "aborted_transactions", lambda self, start, end: [])


def _markers_not_written(patch: Patch) -> None:
    """A transaction ends in the coordinator, but no markers are written to the partitions."""

    async def write(self: Any, broker_id: int, request: Any) -> WriteTxnMarkersResponse:
        from barnabas.protocol.wire.messages.write_txn_markers import (
            WritableTxnMarkerPartitionResult,
            WritableTxnMarkerResult,
            WritableTxnMarkerTopicResult,
        )

        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=index)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    patch.setattr(Markers, "write", write)


def _commits_in_memory(patch: Patch) -> None:
    """The coordinator applies an offset commit in memory, and does not write its record."""
    real = ReplicatedWriter.append

    def append(self: Any, tp: Any, records: Any, now_ms: int, producer: Any = None) -> int:
        kept = [r for r in records if not r.key.startswith(b"\x00\x01")]  # OffsetCommitKey
        if not kept:
            return int(self._leader(tp).log.log_end_offset)
        return real(self, tp, kept, now_ms, producer)

    patch.setattr(ReplicatedWriter, "append", append)


def _shortage_taken_for_a_failed_disk(patch: Patch) -> None:
    """EMFILE takes the log directory offline, like an I/O error."""
    for module in (appending, log_state, directory_state):
        patch.setattr(module, "TransientStorageError", DiskFullError)
        if module is not appending:
            patch.setattr(module, "DescriptorsExhaustedError", LogFailedError)


def _shortage_ignored_by_append(patch: Patch) -> None:
    """An append that finds no file descriptor reports success."""
    real = Log.append_as_leader

    def append(self: Log, buf: Any, **kwargs: Any) -> AppendInfo:
        try:
            return real(self, buf, **kwargs)
        except DescriptorsExhaustedError:
            end = self.log_end_offset
            count = int.from_bytes(bytes(buf[57:61]), "big")
            return AppendInfo(end, end + count - 1, -1, self.log_start_offset, len(buf))

    patch.setattr(Log, "append_as_leader", append)


def _flush_given_up(patch: Patch) -> None:
    """A flush that finds no file descriptor is not repeated, and blocks all later flushes of the log."""
    patch.setattr(FlushJob, "failed", lambda self, error: None)


def _file_closed_under_its_readers(patch: Patch) -> None:
    """To save a descriptor, the file of a segment is closed, although a read or a flush in an executor uses it."""
    real = Segment.release

    def release(self: Segment) -> None:
        if self.open_file is not None:
            self.open_file.close()
        real(self)

    patch.setattr(Segment, "release", release)


def _clean_logs_not_verified(patch: Patch) -> None:
    """After a clean shutdown the CRCs of the coordinators' logs are not checked."""
    patch.setattr(recovery._LogLoader, "_verify", lambda self: None)


def _checksums_not_compared(patch: Patch) -> None:
    """The CRC of a batch is computed, and the result is ignored, by everything that reads logs at the start."""
    patch.setattr(scanning, "check_crc", lambda buf, at, header: None)
    patch.setattr(quorum_batches, "check_crc", lambda buf, at, header: None)


PLANTED = [
    Planted("clean logs not verified", _clean_logs_not_verified, NodeFaultMenu.ROT, 10),
    Planted("checksums not compared", _checksums_not_compared, NodeFaultMenu.ROT, 10, (CorrectnessError, CrashError)),
    Planted(
        "no fsync where flush is promised",
        _no_fsync,
        NodeFaultMenu.POWER,
        10,
        (CorrectnessError, LivenessError, CrashError),
    ),
    Planted("acknowledged before the fsync", _ack_before_fsync, NodeFaultMenu.POWER, 10),
    Planted(
        "names of files not synced",
        _names_not_synced,
        NodeFaultMenu.POWER,
        10,
        (CorrectnessError, LivenessError, CrashError),
    ),
    Planted(
        "acknowledged before the append",
        _ack_before_append,
        NodeFaultMenu.KILL,
        10,
        (CorrectnessError, CrashError, LivenessError),
        2,
    ),
    Planted(
        "recovery without checksums",
        _torn_tail_kept,
        NodeFaultMenu.POWER,
        40,
        (CorrectnessError, CrashError, LivenessError),
    ),
    Planted("producers forgotten in a crash", _producers_forgotten, NodeFaultMenu.KILL, 40),
    Planted("no recovery after a crash", _no_recovery, NodeFaultMenu.KILL, 10),
    Planted("a retried batch is appended again", _duplicates_appended, NodeFaultMenu.KILL, 10),
    Planted("high watermark off by one", _watermark_behind, NodeFaultMenu.KILL, 5, (CorrectnessError, LivenessError)),
    Planted("last stable offset ahead", _stable_offset_ahead, NodeFaultMenu.KILL, 10),
    Planted("aborted transactions left out of responses", _aborts_left_out, NodeFaultMenu.KILL, 10),
    Planted("markers not written", _markers_not_written, NodeFaultMenu.KILL, 10, (LivenessError, CorrectnessError)),
    Planted("commits kept in memory", _commits_in_memory, NodeFaultMenu.KILL, 10),
    Planted(
        "a lack of descriptors taken for a failed disk",
        _shortage_taken_for_a_failed_disk,
        NodeFaultMenu.DESCRIPTORS,
        10,
        (CrashError, LivenessError),
    ),
    Planted(
        "an append without a descriptor acknowledged",
        _shortage_ignored_by_append,
        NodeFaultMenu.DESCRIPTORS,
        10,
        (CorrectnessError, LivenessError),
        first=25,
    ),
    Planted(
        "a flush without a descriptor not repeated", _flush_given_up, NodeFaultMenu.DESCRIPTORS, 10, (LivenessError,)
    ),
    Planted(
        "a file closed while it is read",
        _file_closed_under_its_readers,
        NodeFaultMenu.DESCRIPTORS,
        10,
        (CrashError, LivenessError),
    ),
]
