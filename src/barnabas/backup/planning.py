"""Machine: what a run reads of each partition, given what the backup has and what the log has now.

    backup      |----- objects -----|end                          continue at `end`
    log             |start ------------------- high watermark|    objects below `start` are dropped

The log is read anew from its start if it is not the one that was backed up: the topic was created again, the log ends
earlier, or the leader epoch of the last batch ended earlier (an unclean leader election has cut the log).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from barnabas.backup.values import PartitionBackup, RunManifest, StoredBatches, TopicBackup
from barnabas.core.ids import TopicPartition


class LogNow(Struct, frozen=True):
    """A partition's log in the cluster. `epoch_end` is where the log ends the leader epoch of the last batch of the
    backup; None if the cluster does not know that epoch."""

    log_start: int
    high_watermark: int
    epoch_end: int | None = None


class PartitionPlan(Struct, frozen=True):
    """Keep `kept`, and read from `start` up to `end`. `note` is a sentence for the operator, or empty."""

    kept: tuple[StoredBatches, ...]
    start: int
    end: int
    note: str = ""


def plan_partition(name: TopicPartition, before: PartitionBackup | None, now: LogNow) -> PartitionPlan:
    """What to read of a partition whose topic is the one that was backed up `before`."""
    if before is None:
        return _anew(now)
    if now.high_watermark < before.end:
        return _anew(
            now,
            f"{name}: the log ends at {now.high_watermark}, but {before.end} was backed up. It is read again from its "
            "start.",
        )
    if now.epoch_end is not None and now.epoch_end < before.end:
        return _anew(
            now,
            f"{name}: the log was cut at {now.epoch_end} by an unclean leader election, but {before.end} was backed "
            "up. It is read again from its start.",
        )
    if now.log_start > before.end:
        return _anew(
            now, f"{name}: the offsets {before.end} to {now.log_start} were deleted before they were backed up."
        )
    kept = tuple(stored for stored in before.objects if stored.end > now.log_start)
    start = max(before.end, before.objects[-1].end if before.objects else 0)
    return PartitionPlan(kept, start, max(now.high_watermark, start))


def _anew(now: LogNow, note: str = "") -> PartitionPlan:
    return PartitionPlan((), now.log_start, now.high_watermark, note)


def is_same_topic(before: TopicBackup, topic_id: str) -> bool:
    """Whether a topic of the cluster is the one that was backed up under its name."""
    return before.topic_id == topic_id


def backed_up(run: RunManifest | None) -> dict[str, TopicBackup]:
    """The topics of the run that is continued, by name."""
    return {} if run is None else {topic.name: topic for topic in run.topics}


def choose_base(complete: Iterable[str], partial: Iterable[str]) -> tuple[str, bool] | None:
    """The run that the next one continues, and whether it is complete: the newest. A run that was interrupted counts
    if it began after the newest complete one."""
    candidates = [(run_id, True) for run_id in complete] + [(run_id, False) for run_id in partial]
    return max(candidates, default=None)
