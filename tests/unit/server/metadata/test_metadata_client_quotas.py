"""AlterClientQuotas and DescribeClientQuotas: which entities and values are accepted, and which entities are found."""

from __future__ import annotations

import math
import random

import pytest
from msgspec import Struct

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.security.quotas.limits import QuotaEntity
from barnabas.protocol.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    EntryDataResponse,
    OpData,
)
from barnabas.protocol.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.protocol.wire.messages.describe_client_quotas import ComponentData
from barnabas.server.metadata.controller.answers import RefusedError
from barnabas.server.metadata.controller.client_quotas import (
    MatchType,
    decide_alter_client_quotas,
    find_client_quotas,
)
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import replayed
from barnabas.server.metadata.image.persistent import PersistentMap
from barnabas.server.metadata.image.small import QuotasImage
from tests.configs import controller_config
from tests.unit.server.metadata.controller_house import House, play

CONTEXT = DecideContext(0, random.Random(0), controller_config())


def entry(entity: dict[str, str | None] | list[tuple[str, str | None]], **ops: float | None) -> EntryData:
    """Values to set; None removes one."""
    parts = entity.items() if isinstance(entity, dict) else entity
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
    )


def alter(
    image: ClusterImage, *entries: EntryData, validate_only: bool = False
) -> tuple[ClusterImage, list[EntryDataResponse]]:
    decision = decide_alter_client_quotas(
        image, AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only), CONTEXT
    )
    return replayed(image, decision.records), decision.response.entries


def test_quotas_are_set_changed_and_removed() -> None:
    alice = {"user": "alice"}
    image, answers = alter(ClusterImage(), entry(alice, producer_byte_rate=1000.0, consumer_byte_rate=2000.0))
    assert [(answer.error_code, answer.error_message) for answer in answers] == [(0, None)]
    image, _ = alter(image, entry(alice, producer_byte_rate=5.0, consumer_byte_rate=None, request_percentage=None))
    assert image.quotas.by_entity == {(("user", "alice"),): {"producer_byte_rate": 5.0}}
    image, _ = alter(image, entry(alice, producer_byte_rate=None))
    assert image.quotas.by_entity == {}


def test_a_value_that_is_set_already_needs_no_record() -> None:
    given = entry({"client-id": None, "user": "a"}, request_percentage=0.5)
    image, _ = alter(ClusterImage(), given)
    request = AlterClientQuotasRequest(entries=[given])
    assert not decide_alter_client_quotas(image, request, CONTEXT).records
    assert list(image.quotas.by_entity) == [(("client-id", None), ("user", "a"))]


def test_a_validation_changes_nothing() -> None:
    image, answers = alter(
        ClusterImage(),
        entry({"user": "a"}, request_percentage=1.0),
        entry({"user": "b"}, x=1.0),
        validate_only=True,
    )
    assert [answer.error_code for answer in answers] == [0, ErrorCode.INVALID_REQUEST]
    assert image.quotas.by_entity == {}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (entry({}, producer_byte_rate=1.0), "empty client quota entity"),
        (entry({"group": "a"}, producer_byte_rate=1.0), "Unhandled client quota entity type: group"),
        (entry([("user", "a"), ("user", "b")], producer_byte_rate=1.0), "duplicate entity entry user"),
        (entry({"user": ""}, producer_byte_rate=1.0), "Empty user"),
        (entry({"ip": "1.2.3.4", "user": "a"}, connection_creation_rate=1.0), "should not be combined"),
        (entry({"ip": "nowhere"}, connection_creation_rate=1.0), "nowhere is not an IP address"),
        (entry({"ip": "1.2.3.4"}, producer_byte_rate=1.0), "Invalid configuration key producer_byte_rate"),
        (entry({"user": "a"}, connection_creation_rate=1.0), "Invalid configuration key connection_creation_rate"),
        (entry({"user": "a"}, producer_byte_rate=-1.0), "must be greater than 0"),
        (entry({"user": "a"}, producer_byte_rate=math.nan), "must be greater than 0"),
        (entry({"user": "a"}, producer_byte_rate=1.5), "cannot be a fractional value"),
        (entry({"user": "a"}, producer_byte_rate=1e30), "too large for a LONG"),
        (entry({"user": "a"}, request_percentage=math.inf), "too large for a DOUBLE"),
        (entry({"ip": None}, connection_creation_rate=3e9), "too large for a INT"),
    ],
)
def test_an_invalid_entity_or_value_is_refused_and_the_others_are_changed(given: EntryData, problem: str) -> None:
    image, answers = alter(ClusterImage(), given, entry({"ip": "::1"}, connection_creation_rate=7.0))
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert problem in (answers[0].error_message or "")
    assert answers[0].entity == given.entity
    assert image.quotas.by_entity == {(("ip", "::1"),): {"connection_creation_rate": 7.0}}


def test_an_entity_or_key_that_occurs_twice_is_refused() -> None:
    twice = EntryData(entity=[EntityData(entity_type="user", entity_name="b")], ops=[OpData(key="x"), OpData(key="x")])
    image, answers = alter(
        ClusterImage(),
        entry({"user": "a", "client-id": "c"}, producer_byte_rate=1.0),
        twice,
        entry({"client-id": "c", "user": "a"}, producer_byte_rate=2.0),
    )
    assert [answer.error_message for answer in answers] == [
        "Ignoring duplicate entity client-id=c, user=a",
        "Duplicate quota key x not updating quota for this entity user=b",
    ]
    assert image.quotas.by_entity == {}


QUOTAS = QuotasImage(
    PersistentMap.of(
        {
            (("user", "a"),): {"request_percentage": 1.0},
            (("user", None),): {"request_percentage": 2.0},
            (("client-id", "c"), ("user", "a")): {"request_percentage": 3.0},
            (("client-id", None), ("user", "a")): {"request_percentage": 4.0},
            (("client-id", "c"),): {"request_percentage": 5.0},
            (("ip", "1.2.3.4"),): {"connection_creation_rate": 6.0},
            (("ip", None),): {"connection_creation_rate": 7.0},
        }
    )
)
A = ("user", MatchType.EXACT, "a")
ANY_USER = ("user", MatchType.SPECIFIED, None)
DEFAULT_CLIENT = ("client-id", MatchType.DEFAULT, None)


def find(*components: tuple[str, int, str | None], strict: bool) -> list[float]:
    """The values of the entities that are found."""
    given = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    found: list[tuple[QuotaEntity, object]] = list(find_client_quotas(QUOTAS, given, strict=strict))
    return sorted(next(iter(QUOTAS.by_entity[entity].values())) for entity, _ in found)


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, [1, 2, 3, 4, 5, 6, 7]),
        ([], True, []),
        ([A], True, [1]),
        ([A], False, [1, 3, 4]),
        ([ANY_USER], True, [1, 2]),
        ([ANY_USER], False, [1, 2, 3, 4]),
        ([("user", MatchType.DEFAULT, None)], False, [2]),
        ([A, DEFAULT_CLIENT], True, [4]),
        ([("client-id", MatchType.SPECIFIED, None)], False, [3, 4, 5]),
        ([("ip", MatchType.SPECIFIED, None)], True, [6, 7]),
        ([("ip", MatchType.EXACT, "1.2.3.4")], True, [6]),
        ([("user", MatchType.EXACT, "other")], False, []),
    ],
)
def test_the_filter_finds_the_entities(
    components: list[tuple[str, int, str | None]], strict: bool, expected: list[float]
) -> None:
    assert find(*components, strict=strict) == expected


@pytest.mark.parametrize(
    ("components", "code", "problem"),
    [
        ([("", 0, "a")], ErrorCode.INVALID_REQUEST, "empty entity type"),
        ([("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        ([A, ANY_USER], ErrorCode.INVALID_REQUEST, "more than once"),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST, "set match string to null"),
        ([("user", 1, "a")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_DEFAULT"),
        ([("user", 2, "a")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_SPECIFIED"),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 3"),
        ([("ip", 2, None), A], ErrorCode.INVALID_REQUEST, "IP filter component"),
    ],
)
def test_an_invalid_filter_is_refused(
    components: list[tuple[str, int, str | None]], code: ErrorCode, problem: str
) -> None:
    with pytest.raises(RefusedError, match=problem) as raised:
        find(*components, strict=False)
    assert raised.value.code is code


class Source(Struct):
    """The context of a client's request."""

    principal: KafkaPrincipal
    client_id: str | None = "c"
    connection_id: int = 1


def test_the_active_controller_limits_the_partitions_that_a_client_creates_and_deletes() -> None:
    """The bucket is empty at first, because the clock of the test stands at its beginning; it may become negative."""

    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1)
        source = Source(KafkaPrincipal("User", "a"))
        await house.service.call(
            AlterClientQuotasRequest(entries=[entry({"user": "a"}, controller_mutation_rate=2.0)]), 1, source
        )

        async def create(name: str, partitions: int, version: int, user: str = "a") -> tuple[int, int]:
            topic = CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in range(partitions)
                ],
            )
            source = Source(KafkaPrincipal("User", user))
            response = await house.service.call(CreateTopicsRequest(topics=[topic]), version, source)
            assert isinstance(response, CreateTopicsResponse)
            return response.topics[0].error_code, response.throttle_time_ms

        assert await create("first", 30, 7) == (0, 0)
        assert await create("second", 1, 7) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 14_999)
        assert await create("old-client", 1, 5) == (0, 15_499)
        assert await create("other-user", 50, 7, "b") == (0, 0)
        deleted = await house.service.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="first")]), 6, source)
        assert isinstance(deleted, DeleteTopicsResponse)
        assert deleted.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED

    play(scenario)
