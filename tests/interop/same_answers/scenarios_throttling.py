"""Table: scenarios about clients that exceed their quotas. Each is played to both brokers.

The clients are User:ANONYMOUS. A quota covers 11 windows of a second, of which 10 count from the first use on: a client
with 1000 bytes per second may send 10,000 bytes at once.
"""

from __future__ import annotations

import math
import time
from itertools import product

from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.schema import Request
from tests.interop.same_answers.asking import T, fetch
from tests.interop.same_answers.scenarios_quotas import (
    CONNECTIONS,
    FETCH,
    MUTATION,
    PRODUCE,
    REQUEST,
    Entity,
    entry,
    remove_all_quotas,
    set_quotas,
)
from tests.interop.same_answers.talk import Talk, batch, produce
from tests.system.broker.wire_client import WireClient

LOW, HIGH = 1000.0, 1e9
"""Limits in bytes per second: one that a Produce request exceeds, and one that it does not."""
OVERRIDES = {"127.0.0.7": 2}
"""`max.connections.per.ip.overrides` of both brokers."""


def quota_precedence(talk: Talk) -> None:
    """Of the levels at which limits are set, the first decides, whether its limit is the lowest or the highest."""
    topic = talk.topic("topic")
    for first, (limit, others) in product(range(8), ((LOW, HIGH), (HIGH, LOW))):
        client = f"client {first} {limit}"
        remove_all_quotas(talk)
        levels = _levels(client)[first:]
        set_quotas(talk, *(entry(level, {PRODUCE: others if n else limit}) for n, level in enumerate(levels)))
        _produce(talk, topic, client, f"level {first + 1} has {limit}, those after it {others}")
    remove_all_quotas(talk)


def quota_sharing(talk: Talk) -> None:
    """The level of the limit decides which clients share it. A shared one is exceeded for the second client, too."""
    topic = talk.topic("topic")
    for level in range(8):
        remove_all_quotas(talk)
        first, second = f"first of {level}", f"second of {level}"
        entities = [_levels(client)[level] for client in (first, second)]
        if entities[0] == entities[1]:
            entities.pop()
        set_quotas(talk, *(entry(entity, {PRODUCE: LOW}) for entity in entities))
        _produce(talk, topic, first, f"level {level + 1}, first client")
        _produce(talk, topic, second, f"level {level + 1}, second client", "small")
    for client in ("", None, "a b", "ü/%", "*", "<default>"):
        remove_all_quotas(talk)
        set_quotas(talk, entry({"client-id": None}, {PRODUCE: LOW}))
        _produce(talk, topic, client, f"client id {client!r} by default")
        if client:
            remove_all_quotas(talk)
            set_quotas(talk, entry({"client-id": client}, {PRODUCE: LOW}))
            _produce(talk, topic, client, f"client id {client!r} by name")
    remove_all_quotas(talk)


def throttle_times(talk: Talk) -> None:
    """How long clients of each kind of quota must wait, and that their connections are not read meanwhile."""
    topic = talk.topic("topic")
    talk.fill(topic, *(batch("x" * 20_000, at=T) for _ in range(5)))
    remove_all_quotas(talk)
    for client, key, limit in (
        ("producer", PRODUCE, LOW),
        ("consumer", FETCH, 3000.0),
        ("requests", REQUEST, 0.00001),
        ("both", PRODUCE, LOW),
        ("both", REQUEST, 0.00001),
        ("silent", PRODUCE, 9_000.0),
        ("muted", PRODUCE, 9_000.0),
    ):
        set_quotas(talk, entry({"user": "ANONYMOUS", "client-id": client}, {key: limit}))
    _produce(talk, topic, "producer", "a producer", exact=True)
    _produce(talk, topic, "both", "two quotas: the longer delay", exact=True)
    for number in range(4):
        talk.connect("consumer")
        # One batch per response: with more, the delay of some milliseconds decides how many whole seconds there are.
        response = talk.quietly(fetch(topic, 0, max_bytes=20_000, total=20_000), 11)
        read = sum(len(p.records or b"") for t in response.responses for p in t.partitions)
        talk.note(f"fetch {number}: bytes, seconds", (read, math.ceil(response.throttle_time_ms / 1000)))
    talk.connect("requests")
    talk.note("request time", talk.quietly(MetadataRequest(topics=[]), 9).throttle_time_ms)
    for client, acks in (("muted", 1), ("silent", 0)):
        connection = talk.connect(client)
        begin = time.monotonic()
        sending = produce(topic, batch("x" * 100_000, at=T), acks=acks)
        if acks:
            connection.call(sending, 7)
        else:
            connection.send(sending, 7, expect_response=False)
        answered = time.monotonic() - begin
        connection.call(ApiVersionsRequest(), 0)
        waited = time.monotonic() - begin
        talk.note(f"acks {acks}: answered at once, then not read for a second", (answered < 1.0, waited > 1.0))
    talk.hang_up()
    remove_all_quotas(talk)


def mutation_quotas(talk: Talk) -> None:
    """The versions that refuse what exceeds the quota, and those that only delay (KIP-599). 20 partitions may be
    changed at once, and 2 in each second."""
    remove_all_quotas(talk)
    for version in (5, 6, 7):
        _mutate(talk, f"create v{version}", _creating(talk, f"c{version}-a", f"c{version}-b"), version)
    for version in (1, 4, 5, 6):
        names = [talk.topic(f"d{version}-{letter}", 30) for letter in "ab"]
        by_name = [DeleteTopicState(name=name) for name in names]
        named = {"topics": by_name} if version >= 6 else {"topic_names": names}
        deleting = DeleteTopicsRequest(**named, timeout_ms=30_000)
        _mutate(talk, f"delete v{version}", deleting, version)
    for version in (0, 2, 3):
        names = [talk.topic(f"p{version}-{letter}", 1) for letter in "ab"]
        growing = [CreatePartitionsTopic(name=name, count=31, assignments=None) for name in names]
        _mutate(talk, f"grow v{version}", CreatePartitionsRequest(topics=growing, timeout_ms=30_000), version)
    checked = _creating(talk, "checked-a", "checked-b")
    checked.validate_only = True
    _mutate(talk, "create, checked only", checked, 7)
    existing, large = talk.topic("exists"), talk.topic("large", 30)
    _mutate(talk, "create what exists", _creating(talk, "exists"), 7)
    missing = [DeleteTopicState(name=talk.name("missing-a")), DeleteTopicState(name=talk.name("missing-b"))]
    _mutate(talk, "delete what is missing", DeleteTopicsRequest(topics=missing, timeout_ms=30_000), 6)
    same = [CreatePartitionsTopic(name=large, count=30, assignments=None)]
    _mutate(talk, "grow to the same size", CreatePartitionsRequest(topics=same, timeout_ms=30_000), 3)
    grown = [CreatePartitionsTopic(name=existing, count=31, assignments=None)]
    only = CreatePartitionsRequest(topics=grown, timeout_ms=30_000, validate_only=True)
    _mutate(talk, "grow, checked only", only, 3)
    remove_all_quotas(talk)


def connection_quotas(talk: Talk) -> None:
    """Connections per address, and new connections per second and address."""
    remove_all_quotas(talk)
    host, limit = next(iter(OVERRIDES.items()))
    talk.note("override of an address", _answered(talk, host, limit + 3))
    set_quotas(
        talk,
        entry({"ip": "127.0.0.1"}, {CONNECTIONS: 1e6}),
        entry({"ip": "127.0.0.8"}, {CONNECTIONS: 1.0}),
        entry({"ip": None}, {CONNECTIONS: 2.0}),
    )
    talk.note("an address with its own rate", _answered(talk, "127.0.0.8", 15))
    talk.note("an address with the default rate", _answered(talk, "127.0.0.9", 25))
    talk.note("another address with the default rate", _answered(talk, "127.0.0.10", 5))
    set_quotas(talk, entry({"ip": "127.0.0.8"}, {CONNECTIONS: None}))
    talk.note("the default rate again", _answered(talk, "127.0.0.8", 12))
    remove_all_quotas(talk)
    talk.note("no rate", _answered(talk, "127.0.0.8", 15))


def _levels(client: str) -> tuple[Entity, ...]:
    """The eight levels for this client, the first of which decides."""
    user = "ANONYMOUS"
    return (
        {"user": user, "client-id": client},
        {"user": user, "client-id": None},
        {"user": user},
        {"user": None, "client-id": client},
        {"user": None, "client-id": None},
        {"user": None},
        {"client-id": client},
        {"client-id": None},
    )


def _produce(
    talk: Talk, topic: str, client: str | None, label: str, value: str = "x" * 20_000, *, exact: bool = False
) -> None:
    """Send a Produce request as a client, and note whether, or for how long, the client is delayed."""
    talk.connect(client)
    delay_ms = talk.quietly(produce(topic, batch(value, at=T)), 7).throttle_time_ms
    talk.note(f"{label}: {'milliseconds' if exact else 'delayed'}", delay_ms if exact else delay_ms > 0)
    talk.hang_up()


def _mutate(talk: Talk, label: str, request: Request, version: int) -> None:
    """Send the request twice as a client with a quota of its own; note the codes, and the delays in seconds."""
    set_quotas(talk, entry({"user": "ANONYMOUS", "client-id": label}, {MUTATION: 2.0}))
    for attempt in ("first", "second"):
        talk.connect(label)
        response = talk.quietly(request, version)
        answers = getattr(response, "topics", None) or getattr(response, "responses", None) or response.results
        codes = sorted(int(answer.error_code) for answer in answers)
        talk.note(f"{label}, {attempt}: codes, seconds", (codes, math.ceil(response.throttle_time_ms / 1000)))
        talk.hang_up()


def _creating(talk: Talk, *shorts: str) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=talk.name(short), num_partitions=30, replication_factor=1) for short in shorts]
    return CreateTopicsRequest(topics=topics, timeout_ms=30_000)


def _answered(talk: Talk, host: str, count: int) -> int:
    """How many of so many connections from an address, opened at once, are served."""
    connections = [WireClient(talk.address, timeout_s=10.0, host=host) for _ in range(count)]
    served = 0
    for connection in connections:
        try:
            connection.call(ApiVersionsRequest(), 0)
            served += 1
        except ConnectionError:
            pass
    for connection in connections:
        connection.socket.close()
    return served


SCENARIOS = (quota_precedence, quota_sharing, throttle_times, mutation_quotas, connection_quotas)
