"""Shell: the time of one authorization check, and what it adds to a request, with up to 10,000 ACLs.

    python -m bench.authorizer            about half a minute

Back of an envelope: a broker that answers 20,000 requests a second on one core has 50 us for each; a check should take
a few of them at most, however many ACLs the cluster has. "first" is a check whose answer is not remembered, "again" one
that repeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import uvloop

from barnabas import AsyncAdmin
from barnabas.protocol.security.acl_index import AclIndex
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.transport.ports import Peer
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.fetch import FetchRequest
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.authorization.enforcement import authorized
from barnabas.server.broker.authorization.standard import StandardAuthorizer
from barnabas.server.broker.authorization.table import BROKER_ACCESS
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.image.cluster import AclImage, ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from bench.produce_path import REQUESTS, least_us, open_path

CHECKS = 10_000
ROUNDS = 3
ACLS = 10_000
AUTHORIZING = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # for the requests of the broker itself
}
SHAPES = ("users x topics", "one topic, many users", "prefixes of all lengths")


def build_acls(shape: str, count: int) -> list[AclBinding]:
    allow, topic = AclPermissionType.ALLOW, AclResourceType.TOPIC
    literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
    match shape:
        case "users x topics":
            return [
                AclBinding(topic, f"topic-{i % 1000}", literal, f"User:u{i // 1000}", "*", AclOperation.READ, allow)
                for i in range(count)
            ]
        case "one topic, many users":
            return [
                AclBinding(topic, "topic-1", literal, f"User:u{i}", "*", AclOperation.READ, allow) for i in range(count)
            ]
        case _:
            return [
                AclBinding(topic, ("topic-" * 40)[: 1 + i % 200], prefixed, f"User:u{i}", "*", AclOperation.READ, allow)
                for i in range(count)
            ]


def first(index: AclIndex[int]) -> float:
    """Seconds for each check of a name that was not checked before."""
    began = time.perf_counter()
    for i in range(CHECKS):
        index.decide("User:u5", "10.0.0.1", AclOperation.READ, AclResourceType.TOPIC, f"topic-{i}")
    return (time.perf_counter() - began) / CHECKS


def again(index: AclIndex[int]) -> float:
    """Seconds for each check of a name that was checked before."""
    began = time.perf_counter()
    for _ in range(CHECKS):
        index.decide("User:u5", "10.0.0.1", AclOperation.READ, AclResourceType.TOPIC, "topic-1")
    return (time.perf_counter() - began) / CHECKS


def best(run: Callable[[AclIndex[int]], float], acls: list[AclBinding]) -> float:
    return min(run(AclIndex(enumerate(acls))) for _ in range(ROUNDS))


class _Services:
    """The services that the enforcement uses."""

    access = BROKER_ACCESS

    def __init__(self, authorizer: StandardAuthorizer | None) -> None:
        self.authorizer = authorizer


async def _handler(services: Any, ctx: RequestContext, request: Any) -> None:
    """Stands for the handler of an API."""


def of_request(key: ApiKey, version: int, request: Message, authorizer: StandardAuthorizer | None) -> float:
    """Seconds that a request with an empty handler takes; without an authorizer it is not authorized."""
    services = _Services(authorizer)
    handle = authorized(_handler, key, services)
    peer = Peer(1, "CLIENTS", "SASL_SSL", "10.0.0.1", 1, KafkaPrincipal("User", "u5"))
    began = time.perf_counter()
    for _ in range(CHECKS):
        ctx = RequestContext(key, version, 1, "client", peer, 0, 0.0)
        with contextlib.suppress(StopIteration):
            handle(services, ctx, request).send(None)
    return (time.perf_counter() - began) / CHECKS


def requests() -> list[tuple[str, ApiKey, int, Message]]:
    records = bytes(8) + (49).to_bytes(4, "big") + bytes(49)
    partitions = [PartitionProduceData(index=i, records=records) for i in range(10)]
    return [
        (name, ApiKey.PRODUCE, 9, ProduceRequest(topic_data=[TopicProduceData(name="topic-1", partition_data=data)]))
        for name, data in (("Produce, 1 partition", partitions[:1]), ("Produce, 10 partitions", partitions))
    ] + [("Fetch of a session", ApiKey.FETCH, 12, FetchRequest())]


def authorizer_with(acls: list[AclBinding]) -> StandardAuthorizer:
    """An authorizer that has read these ACLs from the metadata log."""
    authorizer = StandardAuthorizer({})
    delta = ClusterDelta(ClusterImage())
    for number, acl in enumerate(acls):
        delta.acls.put(UUID(int=number + 1), AclImage(UUID(int=number + 1), *acl))
    authorizer.on_image(delta, ClusterImage())
    authorizer.on_caught_up()
    return authorizer


async def of_produce(acls: list[AclBinding] | None) -> float:
    """Microseconds of CPU of a whole Produce request of 16 KB; without ACLs there is no authorizer."""
    settings = {} if acls is None else AUTHORIZING

    async def prepare(admin: AsyncAdmin) -> None:
        if acls is not None:
            await admin.create_acls(acls)

    async with open_path(settings=settings, prepare=prepare) as path:
        gc.collect()
        gc.freeze()  # as `barnabas serve` does: else the ACLs lengthen every garbage collection
        try:
            return least_us(path.send, lambda: [path.produce_frame() for _ in range(REQUESTS)])
        finally:
            gc.unfreeze()


def compare_produce() -> tuple[float, float]:
    """Microseconds of CPU of a Produce request: without an authorizer, and with one that has 10,000 ACLs."""
    writes = [acl._replace(operation=AclOperation.WRITE) for acl in build_acls(SHAPES[0], ACLS)]
    topic, literal, allow = AclResourceType.TOPIC, PatternType.LITERAL, AclPermissionType.ALLOW
    writes.append(AclBinding(topic, "bench", literal, "User:ANONYMOUS", "*", AclOperation.ALL, allow))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rounds = [(runner.run(of_produce(None)), runner.run(of_produce(writes))) for _ in range(ROUNDS)]
    return min(plain for plain, _ in rounds), min(checked for _, checked in rounds)


def main() -> None:
    out = sys.stdout.write
    plain_us, checked_us = compare_produce()
    out(f"{'a whole Produce request of 16 KB':40s}{plain_us:10.1f} us\n")
    out(f"{'with an authorizer and 10,000 ACLs':40s}{checked_us:10.1f} us, {checked_us / plain_us - 1:+.1%}\n\n")
    writes = [acl._replace(operation=AclOperation.WRITE) for acl in build_acls(SHAPES[0], 10_000)]
    authorizer = authorizer_with(writes)
    out(f"{'request, 10,000 ACLs':28s}{'plain, us':>12s}{'added, us':>12s}\n")
    for name, key, version, request in requests():
        plain = min(of_request(key, version, request, None) for _ in range(ROUNDS))
        checked = min(of_request(key, version, request, authorizer) for _ in range(ROUNDS))
        out(f"{name:28s}{plain * 1e6:12.2f}{(checked - plain) * 1e6:12.2f}\n")
    out(f"{'ACLs':28s}{'count':>8s}{'first, us':>12s}{'again, us':>12s}\n")
    for shape in SHAPES:
        for count in (10, 10_000):
            acls = build_acls(shape, count)
            out(f"{shape:28s}{count:8d}{best(first, acls) * 1e6:12.2f}{best(again, acls) * 1e6:12.2f}\n")


if __name__ == "__main__":
    main()
