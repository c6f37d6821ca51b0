"""Shell: RunMaintenance (key 10002), version 0. An API of Barnabas, not of Kafka.

- 0: compacts partitions (`operation` 0) or enforces their retention (`operation` 1) now

`roll` closes the active segment before compaction, `force` compacts a partition that is not due, `dry_run` only
reports. The response is sent when all partitions are done, with the results in the order of the request. An error of
one partition does not stop the others. The work continues if the client disconnects.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec.structs import asdict

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.run_maintenance import (
    PartitionResponse,
    RunMaintenanceRequest,
    RunMaintenanceResponse,
    TopicResponse,
)
from barnabas.server.broker.handlers.maintenance.port import MaintenancePort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.replication.maintenance.on_demand import CompactOptions, MaintenanceResult


class MaintenanceOperation(IntEnum):
    """The values of `RunMaintenanceRequest.operation`."""

    COMPACT = 0
    ENFORCE_RETENTION = 1


async def handle(port: MaintenancePort, ctx: RequestContext, request: RunMaintenanceRequest) -> RunMaintenanceResponse:
    return RunMaintenanceResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    await _run(port, request, TopicPartition(topic.name, index)) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


async def _run(port: MaintenancePort, request: RunMaintenanceRequest, name: TopicPartition) -> PartitionResponse:
    try:
        done = await _done(port, request, name)
    except KafkaError as error:
        return PartitionResponse(partition_index=name.partition, error_code=error.code, error_message=str(error))
    return PartitionResponse(partition_index=name.partition, **asdict(done))


async def _done(port: MaintenancePort, request: RunMaintenanceRequest, name: TopicPartition) -> MaintenanceResult:
    match request.operation:
        case MaintenanceOperation.COMPACT:
            options = CompactOptions(request.roll, request.force, request.dry_run)
            return await port.maintenance.compact(name, options)
        case MaintenanceOperation.ENFORCE_RETENTION:
            return port.maintenance.enforce_retention(name, dry_run=request.dry_run)
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"Operation {request.operation} is unknown: 0 compacts, 1 enforces retention."
    )
