"""Shell: the time of one authorization check, and what it adds to a request, with up to 10,000 ACLs.

    python -m bench.authorizer [--write docs/PERFORMANCE.md]           about half a minute

Back of an envelope: a broker that answers 20,000 requests a second on one core has 50 us for each; a check should take
a few of them at most, however many ACLs the cluster has. "first" is a check whose answer is not remembered, "again" one
that repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

import uvloop
from rich.console import Console

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
from barnabas.server.broker.apis import BROKER_APIS
from barnabas.server.broker.authorization.enforcement import authorized
from barnabas.server.broker.authorization.standard import StandardAuthorizer
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.image.cluster import AclImage, ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from bench.produce_path import REQUESTS, Counted, RequestPath, count, open_path
from bench.report import Sheet, write

CHECKS = 10_000
ROUNDS = 3
ACLS = 10_000
PAIRS = 1_000
SECTION = "measured authorization"
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


async def _handler(port: Any, ctx: RequestContext, request: Any) -> None:
    """Stands for the handler of an API."""


def of_request(key: ApiKey, version: int, request: Message, authorizer: StandardAuthorizer | None) -> float:
    """Seconds that a request with an empty handler takes; without an authorizer it is not authorized."""
    handle = authorized(_handler, key, BROKER_APIS.by_key[key].access, authorizer)
    peer = Peer(1, "CLIENTS", "SASL_SSL", "10.0.0.1", 1, KafkaPrincipal("User", "u5"))
    began = time.perf_counter()
    for _ in range(CHECKS):
        ctx = RequestContext(key, version, 1, "client", peer, 0, 0.0)
        with contextlib.suppress(StopIteration):
            handle(None, ctx, request).send(None)
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


@dataclass(frozen=True)
class ProduceCost:
    """What a Produce request of 16 KB costs without an authorizer, and with one that has 10,000 ACLs."""

    plain_us: float
    """Microseconds of CPU of the whole request, the median of all rounds."""
    added: float
    """The share that the authorizer adds: the median of the pairs of neighbouring rounds."""
    plain: Counted
    checked: Counted


async def compare_produce() -> ProduceCost:
    """Two brokers in this process serve rounds of requests in turn, so that both see the same neighbours."""
    writes = [acl._replace(operation=AclOperation.WRITE) for acl in build_acls(SHAPES[0], ACLS)]
    topic, literal, allow = AclResourceType.TOPIC, PatternType.LITERAL, AclPermissionType.ALLOW
    writes.append(AclBinding(topic, "bench", literal, "User:ANONYMOUS", "*", AclOperation.ALL, allow))

    async def prepare(admin: AsyncAdmin) -> None:
        await admin.create_acls(writes)

    async with open_path() as plain, open_path(settings=AUTHORIZING, prepare=prepare) as checked:
        gc.collect()
        gc.freeze()  # as `barnabas serve` does: else the ACLs lengthen every garbage collection
        try:
            pairs = [_pair(plain, checked, number) for number in range(PAIRS)]
        finally:
            gc.unfreeze()
        counted = [count(partial(path.send, path.produce_frame())) for path in (plain, checked)]
    return ProduceCost(median(a for a, _ in pairs), median(b / a - 1 for a, b in pairs), *counted)


def _pair(plain: RequestPath, checked: RequestPath, number: int) -> tuple[float, float]:
    """Microseconds of CPU of a request to each broker, in one round each; every other pair begins with the second."""
    if number % 2:
        second = _round_us(checked)
        return _round_us(plain), second
    return _round_us(plain), _round_us(checked)


def _round_us(path: RequestPath) -> float:
    frames = [path.produce_frame() for _ in range(REQUESTS)]
    began = time.thread_time()
    for frame in frames:
        path.send(frame)
    return (time.thread_time() - began) / REQUESTS * 1e6


def produce_sheet(cost: ProduceCost) -> Sheet:
    """The table of docs/PERFORMANCE.md."""
    rows = [("CPU", f"{cost.plain_us:.1f} us", f"{cost.plain_us * (1 + cost.added):.1f} us", f"{cost.added:+.1%}")]
    for name in ("calls", "instructions"):
        plain, checked = (getattr(counted, name).total() for counted in (cost.plain, cost.checked))
        rows.append((f"Python {name}", f"{plain:,}", f"{checked:,}", f"{checked / plain - 1:+.1%}"))
    title = f"A Produce request of 16 KB, {PAIRS:,} pairs of rounds in turn"
    return Sheet(title, ("", "no authorizer", f"{ACLS:,} ACLs", "added"), rows)


def main() -> None:
    out = sys.stdout.write
    parser = argparse.ArgumentParser(prog="python -m bench.authorizer")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between the markers of this file")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sheet = produce_sheet(runner.run(compare_produce()))
    Console().print(sheet.render())
    if options.write:
        write(options.write, [sheet], SECTION)
    writes = [acl._replace(operation=AclOperation.WRITE) for acl in build_acls(SHAPES[0], 10_000)]
    authorizer = authorizer_with(writes)
    out(f"{'request, 10,000 ACLs':28s}{'plain, us':>12s}{'added, us':>12s}\n")
    for name, key, version, request in requests():
        plain = min(of_request(key, version, request, None) for _ in range(ROUNDS))
        checked = min(of_request(key, version, request, authorizer) for _ in range(ROUNDS))
        out(f"{name:28s}{plain * 1e6:12.2f}{(checked - plain) * 1e6:12.2f}\n")
    out(f"{'ACLs':28s}{'count':>8s}{'first, us':>12s}{'again, us':>12s}\n")
    for shape in SHAPES:
        for size in (10, ACLS):
            acls = build_acls(shape, size)
            out(f"{shape:28s}{size:8d}{best(first, acls) * 1e6:12.2f}{best(again, acls) * 1e6:12.2f}\n")


if __name__ == "__main__":
    main()
