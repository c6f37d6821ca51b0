"""Connections that break the protocol, and that other connections are not affected."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.testing import EmbeddedBroker
from tests.progress import wait_until
from tests.system.broker.test_broker_data import batch, create, fetch, produce, produce_request, values
from tests.system.broker.wire_client import WireClient

HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">ihhi", 8, 9999, 0, 1),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 3, 12, 1, -1) + bytes(20),
    ],
    ids=["http", "tls", "negative", "zero", "oversize", "unknown-api", "no-header", "bad-body"],
)
def test_invalid_frame_closes_its_own_connection_only(
    client: WireClient, connect: Callable[[], WireClient], garbage: bytes
) -> None:
    bad = connect()
    bad.raw(garbage)
    if garbage[:4] == struct.pack(">i", 10):
        bad.raw(struct.pack(">ihhi", 9, 3, 99, 1) + b"x")
    assert bad.closed_by_peer()
    assert client.call(HELLO, 3).error_code == 0


def test_unknown_version_of_api_versions_is_answered_in_version_0(client: WireClient) -> None:
    client.raw(struct.pack(">ihhih", 11, 18, 99, 7, -1) + b"\x00")
    data = client.socket.recv(1 << 16)
    length, correlation_id, error, count, key, low, high = struct.unpack_from(">iihihhh", data)
    assert (correlation_id, error, count, key, low, high) == (7, ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0, 4)
    assert length == len(data) - 4
    assert client.call(HELLO, 4).error_code == 0, "the connection goes on"


def test_unknown_version_of_any_other_api_closes_the_connection(client: WireClient) -> None:
    client.raw(struct.pack(">ihhih", 11, 3, 99, 7, -1) + b"\x00")
    assert client.closed_by_peer()


def test_produce_below_version_3_is_rejected_although_advertised(client: WireClient) -> None:
    advertised = {api.api_key: (api.min_version, api.max_version) for api in client.call(HELLO, 3).api_keys}
    assert advertised[0] == (0, 13)
    client.raw(struct.pack(">ihhih", 10, 0, 2, 7, -1))
    assert client.closed_by_peer()


def test_invalid_client_software_name_is_rejected(client: WireClient) -> None:
    answer = client.call(ApiVersionsRequest(client_software_name="bad name!", client_software_version="1"), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_incomplete_frame_does_not_affect_other_connections(
    client: WireClient, connect: Callable[[], WireClient]
) -> None:
    lazy = [connect() for _ in range(20)]
    for each in lazy:
        each.raw(struct.pack(">i", 1_000_000) + b"only the beginning")
    assert client.call(HELLO, 3).error_code == 0


def test_frame_sent_byte_by_byte_is_served(client: WireClient) -> None:
    number, frame = client.frame(HELLO, 3)
    for byte in frame:
        client.raw(bytes((byte,)))
    assert client.receive(number).error_code == 0


def test_pipelined_requests_are_answered_in_order(client: WireClient, topic: str) -> None:
    create(client, topic)
    frames = [client.frame(produce_request(topic, batch(b"%d" % i)), 9) for i in range(100)]
    frames.append(client.frame(MetadataRequest(topics=None), 12))
    client.raw(b"".join(frame for _, frame in frames))
    for number, _ in frames:
        client.receive(number)
    assert client.order[-101:] == [number for number, _ in frames]
    assert values(fetch(client, topic)) == [b"%d" % i for i in range(100)]


def test_request_behind_a_delayed_fetch_is_answered_after_it(client: WireClient, topic: str) -> None:
    create(client, topic)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    parked = client.send(
        FetchRequest(max_wait_ms=300, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])]), 12
    )
    behind = client.send(HELLO, 3)
    client.receive(behind)
    assert client.order[-2:] == [parked, behind]


def test_more_pipelined_requests_than_the_limit_are_all_answered(client: WireClient) -> None:
    frames = [client.frame(HELLO, 3) for _ in range(2000)]
    client.raw(b"".join(frame for _, frame in frames))
    assert all(client.receive(number).error_code == 0 for number, _ in frames)


def test_requests_that_take_long_to_decode_are_answered_in_order_and_let_others_go_first(
    client: WireClient, connect: Callable[[], WireClient]
) -> None:
    topics = [MetadataRequestTopic(name=f"no-such-topic-{index:05d}") for index in range(8_000)]
    large = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    hostile = [connect() for _ in range(3)]
    asked = [[each.send(large, 9), each.send(HELLO, 3), each.send(large, 9)] for each in hostile]
    assert client.call(HELLO, 3).error_code == 0
    for each, numbers in zip(hostile, asked, strict=True):
        answers = [each.receive(number) for number in numbers]
        assert each.order == numbers
        assert [len(getattr(answer, "topics", ())) for answer in answers] == [8_000, 0, 8_000]


def test_client_that_does_not_read_blocks_only_its_own_connection(
    broker: EmbeddedBroker, client: WireClient, connect: Callable[[], WireClient], topic: str
) -> None:
    create(client, topic, max_message_bytes="2000000")
    for _ in range(8):
        assert produce(client, topic, batch(b"x" * 1_000_000)).error_code == 0
    greedy = connect()
    greedy.socket.settimeout(2)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=10_000_000, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    for _ in range(30):
        greedy.send(request, 12)
    assert client.call(HELLO, 3).error_code == 0, (
        "the greedy client takes nothing: this would otherwise never be answered"
    )
    node = broker.node
    assert node is not None
    sent = [
        m.value
        for name, _, members in node.metrics.families()
        if name.endswith("sent_bytes_total")
        for m in members.values()
        if hasattr(m, "value")
    ]
    assert sum(sent) < 30 * 8_000_000, "answers that nobody reads are not all made"


def test_idle_connections_are_closed(barnabas_broker_factory: Callable[..., EmbeddedBroker]) -> None:
    broker = barnabas_broker_factory(config={"connections.max.idle.ms": "200"})
    with WireClient(broker.bootstrap_servers) as idle:
        assert idle.call(HELLO, 3).error_code == 0
        assert idle.closed_by_peer()


def test_connections_over_the_limit_are_closed(barnabas_broker_factory: Callable[..., EmbeddedBroker]) -> None:
    broker = barnabas_broker_factory(config={"max.connections.per.ip": "2"})
    clients = [WireClient(broker.bootstrap_servers) for _ in range(2)]
    assert all(c.call(HELLO, 3).error_code == 0 for c in clients)
    with WireClient(broker.bootstrap_servers) as refused:
        assert refused.closed_by_peer()
    clients[0].socket.close()
    wait_until(lambda: _accepts(broker), "the closed connection does not count towards the limit any more")
    clients[1].socket.close()


def test_limit_of_connections_changes_while_the_broker_runs(
    barnabas_broker_factory: Callable[..., EmbeddedBroker],
) -> None:
    broker = barnabas_broker_factory()
    with WireClient(broker.bootstrap_servers) as client:
        assert _set(client, "max.connections", "1") == (0, None)
        wait_until(lambda: not _accepts(broker), "the limit is in effect")
        assert client.call(HELLO, 3).error_code == 0, "it is the one connection that the broker may have"
        assert _set(client, "max.connections", "100") == (0, None)
        wait_until(lambda: _accepts(broker), "the new limit is in effect")
        assert _set(client, "listener.name.plaintext.max.connections", "1") == (0, None)
        wait_until(lambda: not _accepts(broker), "the limit of the listener is in effect")
        code, message = _set(client, "listener.name.plaintext.max.connections", "0")
        assert code == ErrorCode.INVALID_REQUEST
        assert message is not None
        assert "must be greater than 0" in message
        code, message = _set(client, "log.dirs", "/elsewhere")
        assert code == ErrorCode.INVALID_REQUEST
        assert message is not None
        assert "Cannot update these configs dynamically: [log.dirs]" in message


def _set(client: WireClient, name: str, value: str) -> tuple[int, str | None]:
    """Change a config of the only broker. Returns the error code and the message."""
    change = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    answer = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
    return answer.error_code, answer.error_message


def _accepts(broker: EmbeddedBroker) -> bool:
    with WireClient(broker.bootstrap_servers, timeout_s=0.5) as client:
        try:
            return client.call(HELLO, 3).error_code == 0
        except OSError:  # closed, or not answered in time
            return False


def test_connection_above_the_limit_is_served_when_another_one_ends(
    barnabas_broker_factory: Callable[..., EmbeddedBroker],
) -> None:
    broker = barnabas_broker_factory(config={"max.connections": "1"})
    with WireClient(broker.bootstrap_servers) as first, WireClient(broker.bootstrap_servers) as second:
        assert first.call(HELLO, 3).error_code == 0
        number = second.send(HELLO, 3)
        second.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            second.socket.recv(1)
        second.socket.settimeout(60)
        first.socket.close()
        assert second.receive(number).error_code == 0


def test_connections_above_the_rate_of_their_address_are_closed(broker: EmbeddedBroker, client: WireClient) -> None:
    _set_connection_rate(client, 1, remove=False)
    try:
        wait_until(lambda: not _accepts(broker), "the quota of the address is in effect")
        assert client.call(HELLO, 3).error_code == 0
    finally:
        _set_connection_rate(client, 0, remove=True)
    wait_until(lambda: _accepts(broker), "the quota is removed")


def _set_connection_rate(client: WireClient, rate: float, *, remove: bool) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type="ip", entity_name="127.0.0.1")],
        ops=[OpData(key="connection_creation_rate", value=rate, remove=remove)],
    )
    answer = client.call(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    assert [(one.error_code, one.error_message) for one in answer.entries] == [(0, None)]


def test_frame_over_the_limit_closes_the_connection_before_it_is_read(
    barnabas_broker_factory: Callable[..., EmbeddedBroker],
) -> None:
    broker = barnabas_broker_factory(config={"socket.request.max.bytes": "5000"})
    with WireClient(broker.bootstrap_servers) as client:
        client.raw(struct.pack(">i", 5001))
        assert client.closed_by_peer()
