"""Machine: the high watermark, below which records are committed, at the leader and at its followers.

At the leader the high watermark is the largest offset that every member of the *maximal* ISR has
(`Partition.maybeIncrementLeaderHW`, KIP-497). With an ISR of one it is the log end offset.

At a follower the high watermark is the leader's, bounded by the follower's log end offset. `high_watermark` and
`follower_watermark` never lower a high watermark, because a consumer that has read below it may read there again. Only
`truncated_watermark` lowers it, when a truncation after an unclean election has removed committed records.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas.server.replication.rules.leader import LeaderState, effective_min_insync


def high_watermark(
    state: LeaderState,
    log_end_offset: int,
    current: int,
    *,
    min_insync_replicas: int = 1,
    joining: Collection[int] = (),
) -> int:
    """The leader's high watermark after a change.

    The high watermark does not move while fewer than min.insync.replicas replicas are in sync. The eligible leader
    replicas (KIP-966), which the leader does not know, then still have every committed record. `joining`
    (`isr.joining_soon`) hold the high watermark back too; otherwise a busy leader would always be one batch ahead of a
    follower that is about to join the ISR.
    """
    if len(state.isr) < effective_min_insync(state.replicas, min_insync_replicas):
        return current
    if len(state.isr) == 1 and not state.proposed_isr and not joining:  # the leader is always in the ISR
        return log_end_offset if log_end_offset > current else current
    candidate = log_end_offset
    followers = state.followers
    for members in (state.isr, state.proposed_isr, joining):
        for replica in members:
            if replica != state.local_id:
                progress = followers.get(replica)
                candidate = min(candidate, progress.log_end_offset if progress is not None else -1)
    return max(candidate, current)


def follower_watermark(current: int, leader_watermark: int, log_start_offset: int, log_end_offset: int) -> int:
    """A follower's high watermark after the leader's response has been applied to its log."""
    return min(max(current, leader_watermark, log_start_offset), log_end_offset)


def truncated_watermark(current: int, log_end_offset: int) -> int:
    """A follower's high watermark after its log was truncated."""
    return min(current, log_end_offset)
