"""Shell: a log that goes on in another directory: a copy of it, which takes over from it where both end.

`storage` only does what must be done to the two logs; when, and what survives a crash in between, is decided in
`replication/directories/mover.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.storage.epochs import LeaderEpochs

if TYPE_CHECKING:
    from barnabas.server.storage.log import Log


def relocate(self: Log, path: str) -> None:
    """Its directory has been renamed to `path`. Not while a flush is under way: that has the old paths."""
    assert self.flushing is None, "a flush under way would sync files that are no longer there"
    before = self.path
    self.path = path
    self.named = False
    for segment in self.segments:
        segment.directory = path
    self.snapshots.directory = path
    self.pending_deletes = [(due, [path + p[len(before) :] for p in paths]) for due, paths in self.pending_deletes]


def continue_from(self: Log, original: Log) -> None:
    """Before this copy of `original` takes its place: what no batch tells. Raises StorageError.

    These are leader epochs without records, and producers whose records are gone. The snapshot is for a restart. What
    was flushed of the copy beyond what was flushed of the original does not count before its new name is durable: until
    then a power cut brings the original back.
    """
    end = original.log_end_offset
    assert self.log_end_offset == end, "a copy takes over when it is whole"
    with self.guarded():
        self.update_config(original.config)
        self.epochs = LeaderEpochs(original.epoch_entries)
        self.epochs.changed = True
        self.save_epochs()
        self.check_usable()
        if end in self.snapshots.offsets:
            self.snapshots.delete(end)
        self.snapshots.take(original.producers)
        self.lower_durable_offset(original.durable_offset)


def exchange_producers(one: Log, other: Log) -> None:
    """Both end at the same offset, so that what one remembers of producers is true of the other."""
    assert one.log_end_offset == other.log_end_offset
    one.producers, other.producers = other.producers, one.producers
