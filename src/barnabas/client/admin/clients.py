"""Shell: what the clients of a cluster use per second: each broker's rates, and their sums. Barnabas brokers only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from barnabas.client.admin.requests import item_error
from barnabas.client.cluster.cluster import Cluster
from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.describe_clients import (
    ClientRow,
    ClientView,
    DescribeClientsRequest,
    DescribeClientsResponse,
    activity,
)

__all__ = ["ClientUse", "ClientUses", "ClientView", "describe_clients"]

LEAST: Final = 0.05
"""Bytes or records per second: a client with less is no producer or consumer, and a row with less is not shown."""


@dataclass(frozen=True, slots=True)
class ClientUse:
    """What a client, or a partition, uses per second: an average over about the last ten seconds. The names that the
    view does not have are None."""

    client_id: str | None
    address: str | None
    """The IPv4 address, or the /64 network of an IPv6 address."""
    principal: str | None
    topic: str | None
    partition: int
    """The partition; -1 without a topic."""
    producer_id: int
    """Of an idempotent producer in the view PARTITION_CLIENT; otherwise -1."""
    bytes_in: float
    """Of a client: bytes received from it. Of a partition: bytes of batches that were appended."""
    bytes_out: float
    """Of a client: bytes sent to it. Of a partition: bytes of records that consumers have read."""
    requests: float
    """0 in the views of partitions."""
    seconds: float
    """For how long the requests held the event loop of a broker, per second: 1 is a whole broker. 0 in the views of
    partitions."""
    records_in: float
    """Records that were appended."""

    @property
    def name(self) -> tuple[str | None, str | None, str | None, str | None, int]:
        """What tells this row from the others."""
        return self.client_id, self.address, self.principal, self.topic, self.partition


@dataclass(frozen=True, slots=True)
class ClientUses:
    """The sums over the brokers of a cluster."""

    clients: tuple[ClientUse, ...]
    """The most active first."""
    others: ClientUse
    """What all clients without a row use together: a broker has rows for its 1,000 most active clients."""
    failed: Mapping[int, KafkaError]
    """The brokers that did not answer, whose share is missing."""


BROKER_S: Final = 5.0
"""A broker that does not answer for so long, for example because it is paused, counts as failed."""
_NOBODY: Final = ClientUse(None, None, None, None, -1, -1, 0.0, 0.0, 0.0, 0.0, 0.0)


async def describe_clients(cluster: Cluster, view: ClientView, *, deadline: float) -> ClientUses:
    """Ask every broker once, and add up the answers. Raises KafkaError if no broker answers."""
    await cluster.refresh(deadline=deadline)
    brokers = sorted(cluster.metadata.brokers)
    deadline = min(deadline, cluster.now() + BROKER_S)

    async def ask(broker_id: int) -> DescribeClientsResponse | KafkaError:
        try:
            response: DescribeClientsResponse = await cluster.send(
                broker_id, DescribeClientsRequest(view=view), deadline=deadline
            )
        except KafkaError as error:  # unreachable, silent, or a broker that does not support the API
            return error
        if response.error_code:
            return item_error(response.error_code, response.error_message, f"Describing clients of broker {broker_id}")
        return response

    answers = dict(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))
    failed = {broker_id: answer for broker_id, answer in answers.items() if isinstance(answer, KafkaError)}
    if failed and len(failed) == len(answers):
        raise next(iter(failed.values()))
    rows = [row for answer in answers.values() if not isinstance(answer, KafkaError) for row in answer.rows]
    clients, others = add_up(rows)
    return ClientUses(clients, others, failed)


def add_up(rows: Iterable[ClientRow]) -> tuple[tuple[ClientUse, ...], ClientUse]:
    """The sums of the rows of several brokers, the most active client first, and the sum of the rows of all others."""
    sums: dict[object, ClientUse] = {}
    others = _NOBODY
    for row in rows:
        use = ClientUse(
            row.client_id, row.address, row.principal, row.topic, row.partition, row.producer_id, row.bytes_in,
            row.bytes_out, row.requests, row.seconds, row.records_in,
        )  # fmt: skip
        if row.is_others:
            others = _sum(others, use)
        else:
            known = sums.get(use.name)
            sums[use.name] = use if known is None else _sum(known, use)
    active = sorted(sums.values(), key=lambda use: -activity(use.seconds, use.bytes_in, use.bytes_out))
    return tuple(active), others


def _sum(known: ClientUse, more: ClientUse) -> ClientUse:
    return replace(
        known,
        producer_id=max(known.producer_id, more.producer_id),
        bytes_in=known.bytes_in + more.bytes_in,
        bytes_out=known.bytes_out + more.bytes_out,
        requests=known.requests + more.requests,
        seconds=known.seconds + more.seconds,
        records_in=known.records_in + more.records_in,
    )
