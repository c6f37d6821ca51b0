"""Shell: DescribeLogDirs (key 35), versions 1 to 5.

Each log directory with the size of every replica in it; `topics` null means all. `offset_lag` is how far a replica is
behind the high watermark (0 for a leader). With `is_future_key` it is a copy that AlterReplicaLogDirs asked for, and
behind the log in the other directory. Version 4 adds the volume's total and usable bytes (KIP-827), 5
whether the directory takes no new replicas (KIP-1066, never here yet).
"""

from __future__ import annotations

from collections import defaultdict

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services
from barnabas.server.replication.partitions import DirectoryView


async def handle(services: Services, ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=[_describe(directory, wanted) for directory in services.partitions.describe_dirs()]
    )


def _describe(directory: DirectoryView, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    if not directory.online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for name, size, lag, future in directory.replicas:
        if wanted is None or (name.topic, name.partition) in wanted:
            topics[name.topic].append(
                DescribeLogDirsPartition(
                    partition_index=name.partition, partition_size=size, offset_lag=lag, is_future_key=future
                )
            )
    return DescribeLogDirsResult(
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=members) for name, members in topics.items()],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
