"""Subscriptions of clients, and the decisions on their requests (KIP-714)."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.wire.regex import Re2Pattern
from barnabas.server.broker.client_metrics.instances import INSTANCES, ZERO, ClientInstance, ClientInstances, Push
from barnabas.server.broker.client_metrics.shares import Bounds
from barnabas.server.broker.client_metrics.subscriptions import (
    ClientAttributes,
    Subscription,
    WantedMetrics,
    hash_of,
    read_subscriptions,
    wanted_of,
)
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.image.cluster import ClusterImage, MetadataProvenance, ResourceType
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.records.other import ConfigRecord

JAVA = ClientAttributes(client_id="c1", client_software_name="apache-kafka-java", client_software_version="4.0.0")
PRODUCERS = Subscription(
    "p", ("org.apache.kafka.producer.",), 60_000, (("client_software_name", Re2Pattern("apache.*")),)
)
EVERYTHING = Subscription("e", ("*",), 100, (("client_id", Re2Pattern("c1")),))
BYTES_MAX = 1_000


def test_matching_subscriptions_are_united() -> None:
    more = Subscription("m", ("a.", "b."), 30_000, ())
    assert wanted_of((PRODUCERS, more), JAVA) == WantedMetrics(("a.", "b.", "org.apache.kafka.producer."), 30_000)
    assert wanted_of((PRODUCERS, EVERYTHING), JAVA) == WantedMetrics(("*",), 100)
    assert wanted_of((PRODUCERS,), ClientAttributes(client_software_name="xapache")) == WantedMetrics((), 300_000)


def test_hash_is_that_of_java() -> None:
    # UUID.fromString("00000001-0002-0003-0004-000000000005").hashCode()
    assert hash_of(UUID("00000001-0002-0003-0004-000000000005")) == 1 ^ 0x00020003 ^ 0x00040000 ^ 5


def clients(*subscriptions: Subscription, bounds: Bounds = INSTANCES) -> ClientInstances:
    found = ClientInstances(random.Random(1), bounds)
    found.on_subscriptions(subscriptions)
    return found


def push_of(instance: ClientInstance, **changes: object) -> Push:
    fields: dict[str, object] = {
        "instance_id": instance.instance_id, "subscription_id": instance.subscription_id, "is_terminating": False,
        "codec": CompressionType.NONE, "size": 10,
    }  # fmt: skip
    return Push(**{**fields, **changes})  # type: ignore[arg-type]  # the fields of a push, by name


def refusal(known: ClientInstances, push: Push, now_ms: int) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        known.push(push, JAVA, now_ms, BYTES_MAX)
    return refused.value.code


def test_a_client_asks_pushes_and_ends() -> None:
    known = clients(PRODUCERS)
    found = known.subscribe(ZERO, JAVA, 1_000)
    assert found.instance_id != ZERO
    assert known.push(push_of(found), JAVA, 1_000, BYTES_MAX) is found
    assert refusal(known, push_of(found), 60_999) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    with pytest.raises(KafkaError) as refused:
        known.subscribe(found.instance_id, JAVA, 60_999)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert known.push(push_of(found), JAVA, 61_000, BYTES_MAX) is found
    assert known.push(push_of(found, is_terminating=True), JAVA, 61_001, BYTES_MAX).is_terminating
    assert refusal(known, push_of(found), 200_000) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"instance_id": ZERO}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"codec": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size": BYTES_MAX + 1}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_pushes_are_refused(changes: dict[str, object], code: ErrorCode) -> None:
    known = clients(EVERYTHING)
    found = known.subscribe(ZERO, JAVA, 0)
    assert refusal(known, push_of(found, **changes), 0) is code


def test_a_change_of_subscriptions_reaches_the_client_at_its_next_push() -> None:
    known = clients(PRODUCERS)
    found = known.subscribe(ZERO, JAVA, 0)
    known.on_subscriptions((PRODUCERS, EVERYTHING))
    assert refusal(known, push_of(found), 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = known.subscribe(found.instance_id, JAVA, 2)
    assert (again.instance_id, again.wanted) == (found.instance_id, WantedMetrics(("*",), 100))
    assert known.push(push_of(again), JAVA, 3, BYTES_MAX) is again
    known.on_subscriptions((EVERYTHING,))
    assert known.push(push_of(again), JAVA, 103, BYTES_MAX) is again, "nothing has changed for this client"


def test_a_client_without_a_subscription_pushes_nothing() -> None:
    known = clients(PRODUCERS)
    other = ClientAttributes(client_software_name="other")
    found = known.subscribe(ZERO, other, 0)
    assert found.wanted.metrics == ()
    with pytest.raises(KafkaError) as refused:
        known.push(push_of(found), other, 1, BYTES_MAX)
    assert refused.value.code is ErrorCode.UNKNOWN_SUBSCRIPTION_ID


def test_invented_instances_of_one_address_neither_displace_others_nor_avoid_the_interval() -> None:
    known = clients(EVERYTHING, bounds=Bounds(total=10, of_principal=5, of_address=2))
    alice = replace(JAVA, principal="User:alice", client_source_address="10.0.0.1")
    eve = replace(JAVA, principal="User:eve", client_source_address="10.0.0.2")
    honest = known.subscribe(ZERO, alice, 0)
    invented = [known.subscribe(UUID(int=number), eve, 1) for number in (1, 2)]
    with pytest.raises(KafkaError) as refused:
        known.subscribe(UUID(int=3), eve, 2)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    known.subscribe(UUID(int=3), eve, 101)  # the interval of the first is over: it is replaced
    assert len(known) == 3
    assert known.push(push_of(honest), alice, 150, BYTES_MAX) is honest
    assert known.push(push_of(invented[1]), eve, 150, BYTES_MAX) is invented[1]


def test_the_client_that_was_silent_for_the_longest_time_is_forgotten() -> None:
    known = clients(EVERYTHING, bounds=Bounds(total=2, of_principal=9, of_address=9))
    first, second = known.subscribe(ZERO, JAVA, 0), known.subscribe(ZERO, JAVA, 0)
    known.push(push_of(first), JAVA, 1, BYTES_MAX)
    known.subscribe(ZERO, JAVA, 2)
    assert len(known) == 2
    assert known.push(push_of(first), JAVA, 200, BYTES_MAX) is first
    assert known.push(push_of(second), JAVA, 200, BYTES_MAX) is not second


def test_an_expression_that_backtracks_exponentially_is_matched_in_linear_time() -> None:
    nested = Subscription("n", ("*",), 100, (("client_id", Re2Pattern("(a+)+b")),))
    assert wanted_of((nested,), ClientAttributes(client_id="a" * 32_000)) == WantedMetrics((), 300_000)
    assert wanted_of((nested,), ClientAttributes(client_id="a" * 32_000 + "b")) == WantedMetrics(("*",), 100)


def test_a_subscription_that_cannot_be_compiled_is_left_out_and_reported() -> None:
    delta = ClusterDelta(ClusterImage())
    for name, match in (("java", "client_id=(?=a)"), ("re2", "client_id=a.*")):
        delta.apply(
            ConfigRecord(resource_type=ResourceType.CLIENT_METRICS, resource_name=name, name="match", value=match)
        )
    configs = delta.finish(MetadataProvenance()).configs
    subscriptions, unreadable = read_subscriptions(ConfigView(configs, node_id=-1, static={}), configs)
    assert [subscription.name for subscription in subscriptions] == ["re2"]
    assert list(unreadable) == ["java"]
    assert unreadable["java"].code is ErrorCode.INVALID_REGULAR_EXPRESSION
