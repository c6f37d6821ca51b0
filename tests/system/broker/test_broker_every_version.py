"""Every advertised API gets a response in every advertised version, whether the request succeeds or not.

A response that cannot be encoded in some version would otherwise be found only by a client that uses this version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.wire.schema import schema_of
from barnabas.server.broker.apis import BROKER_APIS
from barnabas.testing import EmbeddedBroker
from tests.system.broker.wire_client import WireClient

TOPIC = "every-version"
MISSING = "no-such-topic"

CASES = [
    pytest.param(ApiKey(key), version, id=f"{ApiKey(key).name}-v{version}")
    for key, served in BROKER_APIS.by_key.items()
    for version in range(served.min_version, served.max_version + 1)
]


@pytest.fixture(scope="module")
def topic_id(embedded: EmbeddedBroker) -> UUID:
    with WireClient(embedded.bootstrap_servers) as client:
        topics = [MetadataRequestTopic(name=TOPIC)]
        client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
        for _ in range(50):
            (topic,) = client.call(MetadataRequest(topics=topics), 12).topics
            if topic.error_code == 0 and topic.partitions and topic.partitions[0].leader_id >= 0:
                found: UUID = topic.topic_id
                return found
    raise AssertionError("the topic was not created")


@pytest.fixture(scope="module")
def embedded() -> Any:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.parametrize(("key", "version"), CASES)
@pytest.mark.parametrize("name", [TOPIC, MISSING])
def test_every_version_is_answered(
    embedded: EmbeddedBroker, topic_id: UUID, key: ApiKey, version: int, name: str
) -> None:
    identity = topic_id if name == TOPIC else UUID(int=12345)
    request = fill(APIS[key].request, version, name, identity)
    with WireClient(embedded.bootstrap_servers) as client:
        response = client.call(request, version)
        assert type(response) is APIS[key].response
        again = client.call(
            fill(APIS[ApiKey.API_VERSIONS].request, 3, name, identity), 3
        )  # the connection is still open
        assert again.error_code == 0


def fill(message: type, version: int, name: str, topic_id: UUID) -> Any:
    """A message with one element in every array and a plausible value in every field that `version` has."""
    built = message()
    for field in schema_of(message).fields:
        if version not in field.versions:
            continue
        value = _plausible(field, version, name, topic_id)
        if field.name == "group_id":  # a group for each version: members would wait for each other
            value = f"{value}-{version}"
        if value is not _KEEP:
            setattr(built, field.name, value)
    return built


_KEEP = object()
_SCALARS: dict[str, Callable[[str, UUID], Any]] = {
    "name": lambda name, _: name,
    "topic": lambda name, _: name,
    "topic_name": lambda name, _: name,
    "topic_id": lambda _, topic_id: topic_id,
    "group_id": lambda name, _: f"group-of-{name}",
    "member_id": lambda *_: "",
    "protocol_type": lambda *_: "consumer",
    "session_timeout_ms": lambda *_: 10_000,
    "rebalance_timeout_ms": lambda *_: 500,
    "timeout_ms": lambda *_: 2_000,
    "acks": lambda *_: -1,
    "max_bytes": lambda *_: 1 << 20,
    "partition_max_bytes": lambda *_: 1 << 20,
    "timestamp": lambda *_: -1,
    "resource_type": lambda *_: 2,
    "resource_name": lambda name, _: name,
    "replica_id": lambda *_: -1,
    "num_partitions": lambda *_: 1,
    "replication_factor": lambda *_: 1,
    "count": lambda *_: 3,
    "transaction_timeout_ms": lambda *_: 10_000,
    "client_software_name": lambda *_: "test",
    "client_software_version": lambda *_: "1",
    "include_synonyms": lambda *_: True,
    "include_documentation": lambda *_: True,
    "allow_auto_topic_creation": lambda *_: False,
    "validate_only": lambda *_: True,
    "key_type": lambda *_: 0,
    "key": lambda *_: "every-version-group",
    "coordinator_keys": lambda *_: ["every-version-group"],
}


def _plausible(field: Any, version: int, name: str, topic_id: UUID) -> Any:
    if field.kind == "records":
        return build_batch([SimpleRecord(b"k", b"v", 1_700_000_000_000)])
    if field.name in ("assignments", "configs", "configuration_keys", "forgotten_topics_data", "topology"):
        return _KEEP  # without manual assignments, which would contradict the numbers of partitions
    if field.name == "transactional_id":
        return _KEEP
    if field.name in _SCALARS and field.kind != "array":
        return _SCALARS[field.name](name, topic_id)
    if field.kind == "array":
        if field.name in _SCALARS:
            return _SCALARS[field.name](name, topic_id)
        if isinstance(field.element, str):
            return {"int32": [0], "string": [name], "uuid": [topic_id]}.get(field.element, _KEEP)
        return [fill(field.element, version, name, topic_id)]
    return _KEEP
