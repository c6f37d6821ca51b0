"""Shell: RunUpkeep (key 10002), version 0. An API of Barnabas, not of Kafka.

- 0: compacts partitions (`chore` 0) or deletes their expired segments (`chore` 1) now

`roll` closes the active segment before compaction, `force` compacts a partition that is not due, `dry_run` only
reports. The response is sent when all partitions are done, with the results in the order of the request. An error of
one partition does not stop the others. The work continues if the client disconnects.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec.structs import asdict

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.run_upkeep import (
    PartitionResponse,
    RunUpkeepRequest,
    RunUpkeepResponse,
    TopicResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services
from barnabas.server.replication.on_request import CompactOptions, UpkeepDone


class Chore(IntEnum):
    """What to do."""

    COMPACT = 0
    RETAIN = 1


async def handle(services: Services, ctx: RequestContext, request: RunUpkeepRequest) -> RunUpkeepResponse:
    return RunUpkeepResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    await _run(services, request, TopicPartition(topic.name, index))
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


async def _run(services: Services, request: RunUpkeepRequest, name: TopicPartition) -> PartitionResponse:
    try:
        done = await _done(services, request, name)
    except KafkaError as error:
        return PartitionResponse(partition_index=name.partition, error_code=error.code, error_message=str(error))
    return PartitionResponse(partition_index=name.partition, **asdict(done))


async def _done(services: Services, request: RunUpkeepRequest, name: TopicPartition) -> UpkeepDone:
    match request.chore:
        case Chore.COMPACT:
            options = CompactOptions(request.roll, request.force, request.dry_run)
            return await services.on_request.compact(name, options)
        case Chore.RETAIN:
            return services.on_request.retain(name, dry_run=request.dry_run)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no chore {request.chore}: 0 compacts, 1 retains.")
