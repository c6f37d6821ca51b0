"""Shell: DescribeLogDirs (key 35), versions 1 to 5.

- 1: the log directories of this broker with the size of each replica (KIP-113)
- 2: flexible
- 3: a top-level error code
- 4: total and usable bytes of the volume (KIP-827)
- 5: whether the directory is cordoned, that is, takes no new replicas (KIP-1066)

If the topics are null all replicas are listed. OffsetLag is the distance of a replica from the high watermark, 0 for
a leader. IsFutureKey marks a copy that AlterReplicaLogDirs has begun; its OffsetLag is the distance from the replica
that it copies.

Not implemented: cordoned directories; IsCordoned is always false.
"""

from __future__ import annotations

from collections import defaultdict

from barnabas.core.errors import ErrorCode
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.server.broker.handlers.cluster.port import ClusterPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.replication.directories.views import DirectoryView


async def handle(port: ClusterPort, ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    response = DescribeLogDirsResponse()
    for directory in port.partitions.describe_dirs():
        response.results.append(await _describe(directory, wanted))
    return response


async def _describe(directory: DirectoryView, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    if not directory.online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    pauses = Pauses()
    for name, size, lag, future in directory.replicas:
        await pauses.after(1)
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
