"""Shell: a log whose directory is renamed, and the copy of a log that takes the place of the original.

Only the steps that change the two logs are here. `replication/directories/mover.py` decides when the copy takes over
and which of the two directories is used after a crash.
"""

from __future__ import annotations

from barnabas.server.storage.deleting import SegmentDeleter
from barnabas.server.storage.epochs import LeaderEpochs
from barnabas.server.storage.flushing import LogFlusher
from barnabas.server.storage.state import LogState


def change_directory(state: LogState, flusher: LogFlusher, deleter: SegmentDeleter, path: str) -> None:
    """The log's directory has been renamed to `path`. No flush may be under way: it would use the old paths."""
    assert flusher.job is None, "a flush under way would sync files under their old paths"
    before = state.path
    state.path = path
    flusher.directory_entry_durable = False
    for segment in state.segments:
        segment.directory = path
    state.snapshots.directory = path
    deleter.on_directory_renamed(before, path)


def take_over_from(state: LogState, flusher: LogFlusher, original: LogState) -> None:
    """Give the copy the leader epochs of the original, and write a snapshot of the original's producers for the copy.

    The copy's batches do not contain all of them: an epoch can be without records, and the records of a producer can
    have been deleted. The next start reads the snapshot. Raises StorageError.

    Records that are durable in the copy but not in the original do not count as durable until the copy's new name is
    durable, because a power failure before that brings the original back.
    """
    end = original.log_end_offset
    state.epochs = LeaderEpochs(original.epochs.entries)
    state.epochs.changed = True
    state.save_epochs()
    state.check_usable()
    if end in state.snapshots.offsets:
        state.snapshots.delete(end)
    state.snapshots.take(original.producers)
    flusher.lower_durable_offset(original.durable_offset)


def exchange_producers(one: LogState, other: LogState) -> None:
    """Exchange the producer states of the copy and the original of a log, which end at the same offset."""
    assert one.log_end_offset == other.log_end_offset, "the producer states differ"
    one.producers, other.producers = other.producers, one.producers
