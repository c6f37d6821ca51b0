"""Shell: DescribeClients (key 10011), version 0. An API of Barnabas, not of Kafka.

- 0: what the clients of this broker use per second, by client id (view 0), address (1), principal (2), partition (3),
  or partition and client (4)

`broker/client_usage/tables.py` has the tables, their bounds, and the meaning of the rates. The rows are sorted:
the most active first, and at the end all others together. Each broker answers for itself.
"""

from __future__ import annotations

import asyncio

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.describe_clients import (
    ClientRow,
    ClientView,
    DescribeClientsRequest,
    DescribeClientsResponse,
)
from barnabas.server.broker.client_usage.series import Amounts
from barnabas.server.broker.client_usage.tables import PartitionClient
from barnabas.server.broker.handlers.maintenance.port import MaintenancePort
from barnabas.server.broker.request_context import RequestContext

_NAMES = {ClientView.CLIENT_ID: "client_id", ClientView.ADDRESS: "address", ClientView.PRINCIPAL: "principal"}


async def handle(
    port: MaintenancePort, ctx: RequestContext, request: DescribeClientsRequest
) -> DescribeClientsResponse:
    try:
        view = ClientView(request.view)
    except ValueError:
        return DescribeClientsResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"View {request.view} is unknown: 0 to {max(ClientView)} are views of clients.",
        )
    now = asyncio.get_running_loop().time()
    clients, pauses = port.clients, Pauses()
    clients.collect(now)
    table = clients.table(view)
    response = DescribeClientsResponse()
    for entry in table.most_active(now):
        row = _row(view, entry.key, entry.rates(now))
        row.producer_id = entry.producer_id
        response.rows.append(row)
        await pauses.after(1)
    response.rows.append(_row(view, None, table.others.rates(now)))
    return response


def _row(view: ClientView, key: str | TopicPartition | PartitionClient | None, rates: Amounts) -> ClientRow:
    row = ClientRow(is_others=key is None)
    row.bytes_in, row.bytes_out, row.requests, row.seconds, row.records_in = rates
    partition: TopicPartition | None = None
    if isinstance(key, str):
        setattr(row, _NAMES[view], key)
    elif isinstance(key, PartitionClient):
        row.client_id, row.address, row.principal, partition = key.client_id, key.address, key.principal, key.partition
    else:
        partition = key
    if partition is not None:
        row.topic, row.partition = partition.topic, partition.partition
    return row
