"""`barnabas quotas`, the admin client's quotas, and clients of librdkafka that are delayed by them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent
from typer.testing import CliRunner

from barnabas import Admin, ErrorCode, KafkaError
from barnabas.cli.app import build_app
from barnabas.client.admin.quotas import ANY_NAME, quota_entity
from barnabas.testing import EmbeddedBroker
from tests.progress import flush, wait_until

ALICE = quota_entity({"user": "alice"})
ANONYMOUS = quota_entity({"user": "ANONYMOUS"})
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"quota.window.num": "2"}) as broker:  # a client waits for two seconds, not for eleven
        yield broker


@pytest.fixture
def tool(broker: EmbeddedBroker) -> Tool:
    app = build_app(("quotas",))

    def run(*words: str, fails: bool = False) -> str:
        result = CliRunner().invoke(app, ["quotas", *words, "--bootstrap-server", broker.bootstrap_servers])
        assert (result.exit_code != 0) == fails, result.output
        return f"{result.output}{result.exception or ''}" if fails else result.output

    return run


def test_quotas_are_set_listed_and_removed(tool: Tool) -> None:
    assert "no quotas are set" in tool("list")
    tool("set", "--user", "alice", "producer_byte_rate=1048576", "request_percentage=0.5")
    tool("set", "--user", "<default>", "--client-id", "c", "consumer_byte_rate=7")
    tool("set", "--ip", "127.0.0.9", "connection_creation_rate=3")
    listed = tool("list")
    assert [line.split() for line in listed.splitlines()[1:]] == [
        ["<default>", "c", "consumer_byte_rate", "7"],
        ["127.0.0.9", "connection_creation_rate", "3"],
        ["alice", "producer_byte_rate", "1048576"],
        ["alice", "request_percentage", "0.5"],
    ]
    assert json.loads(tool("list", "--user", "alice", "--json")) == [
        {"user": "alice", "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 0.5}}
    ]
    tool("remove", "--user", "alice", "producer_byte_rate", "request_percentage")
    tool("remove", "--user", "<default>", "--client-id", "c", "consumer_byte_rate")
    tool("remove", "--ip", "127.0.0.9", "connection_creation_rate")
    assert "no quotas are set" in tool("list")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("set", "producer_byte_rate=1"), "name an entity"),
        (("set", "--user", "a", "producer_byte_rate"), "is not NAME=VALUE"),
        (("set", "--user", "a", "producer_byte_rate=fast"), "is not NAME=VALUE"),
        (("set", "--user", "a", "speed=1"), "Invalid configuration key speed"),
        (("set", "--user", "a", "producer_byte_rate=0"), "must be greater than 0"),
    ],
)
def test_a_wrong_quota_is_refused_with_the_reason(tool: Tool, words: tuple[str, ...], problem: str) -> None:
    assert problem in " ".join(tool(*words, fails=True).split())


def test_the_admin_client_finds_entities_by_filters(broker: EmbeddedBroker) -> None:
    both = quota_entity({"client-id": None, "user": "alice"})
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.alter_client_quotas({ALICE: {"request_percentage": 1.0}, both: {"request_percentage": 2.0}}) == {
            ALICE: None,
            both: None,
        }
        assert admin.describe_client_quotas({"user": "alice"}, strict=True) == {ALICE: {"request_percentage": 1.0}}
        assert admin.describe_client_quotas({"client-id": None}) == {both: {"request_percentage": 2.0}}
        assert set(admin.describe_client_quotas({"user": ANY_NAME})) == {ALICE, both}
        wrong = admin.alter_client_quotas({ALICE: {"x": 1.0}}, validate_only=True)[ALICE]
        assert isinstance(wrong, KafkaError) and wrong.code is ErrorCode.INVALID_REQUEST
        with pytest.raises(KafkaError, match="Unsupported entity type"):
            admin.describe_client_quotas({"group": "a"})
        admin.alter_client_quotas({ALICE: {"request_percentage": None}, both: {"request_percentage": None}})
        assert admin.describe_client_quotas() == {}


def test_clients_above_their_quota_are_delayed_and_lose_nothing(broker: EmbeddedBroker) -> None:
    """2.2 MB are sent and read, where 1 MB may be used at once: both must wait a second or two."""
    records, size = 220, 10_000
    throttled: list[float] = []

    def on_throttle(event: ThrottleEvent) -> None:
        if event.throttle_time:
            throttled.append(event.throttle_time)

    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("limited", 1, 1)
        limits = {"producer_byte_rate": 1_000_000.0, "consumer_byte_rate": 1_000_000.0}
        admin.alter_client_quotas({ANONYMOUS: limits})
        settings = {"bootstrap.servers": broker.bootstrap_servers, "throttle_cb": on_throttle}
        producer = Producer({**settings, "batch.size": 100_000, "linger.ms": 5})
        for number in range(records):
            producer.produce("limited", f"{number:0{size}}".encode())
        flush(producer)
        producer.poll(0)
        assert throttled, "the producer must wait"
        throttled.clear()
        consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["limited"])
        found: list[int] = []

        def consumed() -> bool:
            messages = consumer.consume(records, 0.5)
            found.extend(int((one.value() or b"")[-9:]) for one in messages if one.error() is None)
            return len(found) >= records

        wait_until(consumed, "all records are consumed", progress=lambda: len(found))
        consumer.close()
        admin.alter_client_quotas({ANONYMOUS: dict.fromkeys(limits)})
    assert found == list(range(records))
    assert throttled, "the consumer must wait"
