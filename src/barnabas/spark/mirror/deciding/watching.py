"""Machine: what a copy has lost: records that were deleted in the source cluster before they were copied, and a source
log that is shorter than what was copied of it. Kafka's connector passes over both in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.core.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class MirrorLoss:
    """A source partition whose log does not have the position: it begins after it, or ends before it."""

    partition: TopicPartition
    position: int
    """The next upstream offset that was to be copied."""
    start: int
    end: int

    def __str__(self) -> str:
        if self.position < self.start:
            return (
                f"{self.start - self.position} offsets of {self.partition} were deleted in the source cluster before"
                f" they were copied: the copy is at {self.position}, the log begins at {self.start}"
            )
        return (
            f"the log of {self.partition} in the source cluster ends at {self.end}, but it was copied up to"
            f" {self.position}: the topic was created anew, or an unclean election lost records"
        )


def find_losses(
    positions: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[MirrorLoss]:
    """The positions outside of their logs. `starts` and `ends` are those of partitions that exist."""
    return [
        MirrorLoss(tp, positions[tp], starts[tp], ends[tp])
        for tp in sorted(positions)
        if tp in starts and tp in ends and not starts[tp] <= positions[tp] <= ends[tp]
    ]
