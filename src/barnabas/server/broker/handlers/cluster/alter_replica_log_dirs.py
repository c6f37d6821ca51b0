"""Shell: AlterReplicaLogDirs (key 34), versions 1 to 2.

- 1: moves replicas of this broker between its log directories (KIP-113)
- 2: flexible

NONE means that the move has begun. DescribeLogDirs shows the copy (IsFutureKey) until the copy replaces the replica.
A second request for another directory supersedes the first one. A request for the directory in which the replica is
cancels the move. A replica that does not exist yet will be created in the requested directory, and the response is
REPLICA_NOT_AVAILABLE all the same, as in Kafka.

Directories are named as in DescribeLogDirs. Errors: LOG_DIR_NOT_FOUND for an unknown directory; KAFKA_STORAGE_ERROR
if the replica's directory or the requested one is offline; UNKNOWN_TOPIC_OR_PARTITION; INVALID_TOPIC_EXCEPTION if the
name of the copy's directory would exceed 255 characters. If a request lists a partition for two directories, the last
one counts.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from barnabas.server.broker.handlers.cluster.port import ClusterPort
from barnabas.server.broker.request_context import RequestContext

log = get_logger("barnabas.server.broker")

_UNITS = 2
"""The units of work (`core/work`) of one replica."""
_LOGGED_MAX = 10
"""The largest number of rejections in one request for each of which a line is logged."""


async def handle(
    port: ClusterPort, ctx: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    wanted: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            wanted.update((TopicPartition(topic.name, index), directory.path) for index in topic.partitions)
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    pauses = Pauses()
    rejected = 0
    for name, path in wanted.items():
        await pauses.after(_UNITS)
        code = ErrorCode.NONE
        try:
            _alter(port, name, path)
        except KafkaError as error:
            code = error.code
            rejected += 1
            if rejected <= _LOGGED_MAX:
                log.info("rejected to move a replica", partition=str(name), to=path, reason=str(error), error=code.name)
        results.setdefault(name.topic, []).append(
            AlterReplicaLogDirPartitionResult(partition_index=name.partition, error_code=code)
        )
    if rejected > _LOGGED_MAX:
        log.info("rejected to move replicas", replicas=rejected)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=members) for topic, members in results.items()
        ]
    )


def _alter(port: ClusterPort, name: TopicPartition, path: str) -> None:
    partitions = port.partitions
    port.mover.check_name(name)
    target = next((directory for directory in partitions.log_dirs if directory.path == path), None)
    if target is None:
        if path in partitions.replica_directories.missing:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The log directory {path} was offline when this broker started. Repair the disk and restart.",
            )
        raise KafkaError(
            ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not a directory of log.dirs on broker {port.node_id}."
        )
    if target.failure is not None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory {path} is offline.")
    partition = partitions.get(name.topic, name.partition)
    if partition is not None:
        port.mover.alter(partition, target)
        return
    if port.metadata.image.topics.partition(name.topic, name.partition) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partitions.replica_directories.prefer(name, target)
    raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{name} has no replica on broker {port.node_id} yet.")
