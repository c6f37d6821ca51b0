"""Shell: DescribeLogDirs (key 35), versions 1 to 5.

Each log directory with the size of every replica in it; `topics` null means all. `offset_lag` is how far a replica is
behind the high watermark (0 for a leader). Version 4 adds the volume's total and usable bytes (KIP-827), 5 whether the
directory takes no new replicas (KIP-1066, never here yet).
"""

from __future__ import annotations

from collections import defaultdict

from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.core.errors import ErrorCode
from barnabas.replication.partition import Partition
from barnabas.storage.errors import StorageError
from barnabas.storage.log_dir import LogDir
from barnabas.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def handle(services: Services, ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    by_dir: dict[str, list[Partition]] = defaultdict(list)
    for partition in services.partitions:
        if wanted is None or (partition.name.topic, partition.name.partition) in wanted:
            directory = services.partitions.log_dir_of(partition)
            if directory is not None:
                by_dir[directory.path].append(partition)
    return DescribeLogDirsResponse(
        results=[_describe(directory, by_dir[directory.path]) for directory in services.partitions.log_dirs]
    )


def _describe(directory: LogDir, partitions: list[Partition]) -> DescribeLogDirsResult:
    if directory.failure is not None:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for partition in sorted(partitions, key=lambda p: p.name):
        if partition.log is None:
            continue
        topics[partition.name.topic].append(
            DescribeLogDirsPartition(
                partition_index=partition.name.partition,
                partition_size=partition.log.size_bytes,
                offset_lag=max(partition.high_watermark - partition.log.log_end_offset, 0),
            )
        )
    try:
        usage = directory.disk_usage()
        total, free = usage.total, usage.free
    except StorageError:
        total = free = -1
    return DescribeLogDirsResult(
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=members) for name, members in topics.items()],
        total_bytes=total,
        usable_bytes=free,
    )
