"""Machine: what is committed: the high watermark at the leader and at its followers.

At the leader it is the largest offset that every member of the *maximal* ISR has (`Partition.maybeIncrementLeaderHW`,
KIP-497). An ISR of one makes it the log end offset; nothing else here treats that case specially.

At a follower it is what the leader said, as far as the follower's log goes. Both only ever raise it: whoever read below
a watermark may read there again. Only a truncation after an unclean election takes it back.
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

    It stands still while fewer than min.insync.replicas are in sync: the eligible leader replicas (KIP-966), of which
    the leader knows nothing, then stay complete. `joining` (`isr.joining_soon`) are waited for out of courtesy: else a
    busy leader would always be one batch ahead of a follower that could join.
    """
    if len(state.isr) < effective_min_insync(state.replicas, min_insync_replicas):
        return current
    candidate = log_end_offset
    followers = state.followers
    for members in (state.isr, state.proposed_isr, joining):
        for replica in members:
            if replica != state.local_id:
                progress = followers.get(replica)
                candidate = min(candidate, progress.log_end_offset if progress is not None else -1)
    return max(candidate, current)


def follower_watermark(current: int, leader_watermark: int, log_start_offset: int, log_end_offset: int) -> int:
    """A follower's high watermark after an answer of the leader has been applied to its log."""
    return min(max(current, leader_watermark, log_start_offset), log_end_offset)


def truncated_watermark(current: int, log_end_offset: int) -> int:
    """A follower's high watermark after its log was cut."""
    return min(current, log_end_offset)
