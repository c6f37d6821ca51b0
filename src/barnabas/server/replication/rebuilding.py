"""Shell: a follower whose next records the leader has only in the object store continues above them (KIP-405).

The follower does not copy these records. It needs the state at the end of a remote segment: the leader epochs of all
records below, so that it can find them as a leader, and the producers. Its log continues there, and the follower
fetches from the leader again (Kafka's TierStateMachine).

With follower.fetch.last.tiered.offset.enable, a replica without records continues above all copies (KIP-1023), although
the leader still has the last of these records locally: the replica is in sync sooner. A compacted log is left out, as
in Kafka.

The segment must have the leader's records. It has, if the leader's log has the leader epoch of the segment's last
record at that offset: then both have the same records below.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.replication.config import ReplicationConfig
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.ports import PeerChannel
from barnabas.server.replication.rules.follower import TieredRequest
from barnabas.server.tiering.values import CopiedState


async def rebuild(
    partition: Partition,
    request: TieredRequest,
    leader_id: int,
    channel: PeerChannel,
    config: ReplicationConfig,
    now_ms: Callable[[], int],
) -> None:
    """Continue above the leader's copies. Raises KafkaError if this is not possible now."""
    name = partition.name, request.leader_epoch
    error, start, local_start = await channel.list_local_start(leader_id, name, config)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, f"The leader of {partition.name} did not list its local log start offset.")
    if local_start <= start:
        partition.on_tiered(request, start, CopiedState(start, (), ()), now_ms())
        return
    tiered = partition.context.tiered
    if tiered is None:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            "The leader has records in an object store, and this broker has none: set "
            "remote.log.storage.system.enable=true.",
        )
    wanted = [local_start]
    if config.follower_fetch_last_tiered_offset_enable and _may_skip_copies(partition):
        wanted.insert(0, await channel.list_pending_upload(leader_id, name, config))
    for offset in wanted:
        for segment, epoch in tiered.candidates(partition.remote, offset) if offset >= local_start else ():
            end = await channel.epoch_end(leader_id, name, epoch, config)
            if end.leader_epoch == epoch and end.end_offset > segment.end_offset:
                partition.on_tiered(request, start, await tiered.read_state(segment), now_ms())
                return
    raise KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"No remote segment of {partition.name} that ends at offset {local_start - 1} or above has the leader's "
        "records; perhaps its event has not been read yet.",
    )


def _may_skip_copies(partition: Partition) -> bool:
    """Whether the replica is without records, and its topic is tiered and not compacted."""
    log = partition.log
    if log is None or not log.config.tiered or log.config.compact:
        return False
    return log.log_end_offset == log.log_start_offset
