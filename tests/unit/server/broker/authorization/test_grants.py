"""Permissions are remembered, and never for longer than the ACLs allow them."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.errors import ErrorCode
from barnabas.core.telemetry import Metrics
from barnabas.core.telemetry.log import AUDIT_LOGGER
from barnabas.core.work import STEP_UNITS
from barnabas.protocol.security.acl_index import NAME_LENGTH_MAX
from barnabas.protocol.security.acls import AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.transport.ports import Peer
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.server.broker.apis import API_ROWS
from barnabas.server.broker.authorization import grants as memory
from barnabas.server.broker.authorization.access import ApiAccess
from barnabas.server.broker.authorization.checks import DENIALS_LOGGED, REFUSALS, ClientRights
from barnabas.server.broker.authorization.enforcement import authorized
from barnabas.server.broker.authorization.grants import Grants, grants_of, operation_on
from barnabas.server.broker.authorization.ports import Action, AuthorizedClient
from barnabas.server.broker.authorization.standard import StandardAuthorizer
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.image.cluster import AclImage, ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from tests.logs import logged, messages
from tests.steps import longest_step
from tests.unit.server.broker.authorization.requests import batch

WRITE, READ, TOPIC = AclOperation.WRITE, AclOperation.READ, AclResourceType.TOPIC
ALICE = KafkaPrincipal("User", "alice")
MANY_NAMES = [f"name-{number}" for number in range(5_000)]


class AskedAuthorizer(StandardAuthorizer):
    """A class of a user, which does not opt in."""


def acl(name: str, operation: AclOperation = WRITE, *, deny: bool = False) -> AclImage:
    kind = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    return AclImage(UUID(int=0), TOPIC, name, PatternType.LITERAL, "User:alice", "*", operation, kind)


def access_of(key: ApiKey) -> ApiAccess:
    """The needs of an API on brokers, or where brokers forward it, on controllers."""
    row = API_ROWS[key]
    assert row.broker is not None
    if not row.broker.access.is_forwarded:
        return row.broker.access
    assert row.controller is not None
    return row.controller.access


class Served:
    """An authorizer that follows committed ACLs, and the handler of Produce behind it."""

    def __init__(self, authorizer: StandardAuthorizer) -> None:
        self.authorizer = authorizer
        self.authorizer.on_caught_up()
        self._produce = authorized(self._handle, ApiKey.PRODUCE, access_of(ApiKey.PRODUCE), authorizer)
        self.peer = Peer(1, "CLIENTS", "SASL_SSL", "10.0.0.1", 1, ALICE)

    async def _handle(self, services: Any, ctx: RequestContext, request: Any) -> Any:
        return ProduceResponse()

    def commit(self, number: int, entry: AclImage | None) -> None:
        delta = ClusterDelta(ClusterImage())
        if entry is None:
            delta.acls.remove(UUID(int=number))
        else:
            delta.acls.put(UUID(int=number), entry)
        self.authorizer.on_image(delta, ClusterImage())

    def context(self) -> RequestContext:
        return RequestContext(ApiKey.PRODUCE, 9, 1, "client", self.peer, 0, 0.0)

    def produce(self, *names: str, records: bytes | None = None) -> bool:
        """Whether all topics are allowed."""
        data = [PartitionProduceData(index=0, records=batch() if records is None else records)]
        topics = [TopicProduceData(name=name, partition_data=data) for name in names]
        request = ProduceRequest(acks=-1, topic_data=topics)
        return asyncio.run(self._produce(self, self.context(), request)) == ProduceResponse()

    def allows(self, operation: AclOperation, name: str) -> bool:
        return ClientRights(self.authorizer, grants_of(self.authorizer), self.context()).allows(operation, TOPIC, name)


def test_a_request_that_repeats_is_not_asked_about_again() -> None:
    served = Served(StandardAuthorizer({}))
    served.commit(1, acl("orders"))
    assert [served.produce("orders") for _ in range(3)] == [True] * 3
    assert served.authorizer.decisions == {True: 1, False: 0}
    assert served.authorizer.grants.hits == 2


def test_looked_up_permissions_are_counted_as_decisions() -> None:
    metrics = Metrics()
    served = Served(StandardAuthorizer({}))
    served.authorizer.add_metrics(metrics)
    served.commit(1, acl("orders"))
    for _ in range(3):
        served.produce("orders")
    assert metrics.gauge("barnabas_authorizer_decisions", result="allowed").value == 3


@pytest.mark.parametrize("change", [(1, None), (2, acl("orders", deny=True)), (1, acl("others"))])
def test_a_changed_acl_takes_effect_with_the_next_request(change: tuple[int, AclImage | None]) -> None:
    served = Served(StandardAuthorizer({}))
    served.commit(1, acl("orders"))
    assert served.produce("orders")
    assert served.produce("orders")
    served.commit(*change)
    assert not served.produce("orders")
    served.commit(2, None)
    served.commit(1, acl("orders"))
    assert served.produce("orders")


def test_the_permission_of_one_client_is_not_that_of_another() -> None:
    served = Served(StandardAuthorizer({}))
    served.commit(1, AclImage(UUID(int=1), *acl("orders").binding._replace(host="10.0.0.1")))
    assert served.produce("orders")
    assert not served.produce("orders", "others")
    served.peer = Peer(2, "CLIENTS", "SASL_SSL", "10.0.0.2", 1, ALICE)
    assert not served.produce("orders")
    served.peer = Peer(3, "CLIENTS", "SASL_SSL", "10.0.0.1", 1, KafkaPrincipal("User", "bob"))
    assert not served.produce("orders")


def test_a_transactional_batch_is_checked_although_the_topic_is_granted() -> None:
    served = Served(StandardAuthorizer({}))
    served.commit(1, acl("orders"))
    assert served.produce("orders")
    assert not served.produce("orders", records=batch(transactional=True))


def test_a_class_that_does_not_opt_in_is_asked_each_time() -> None:
    served = Served(AskedAuthorizer({}))
    assert grants_of(served.authorizer) is None
    served.commit(1, acl("orders"))
    assert [served.produce("orders") for _ in range(3)] == [True] * 3
    assert served.authorizer.decisions == {True: 3, False: 0}


def test_allowed_requests_are_audited_each_time(caplog: pytest.LogCaptureFixture) -> None:
    served = Served(StandardAuthorizer({}))
    served.commit(1, acl("orders"))
    assert served.produce("orders")
    caplog.set_level(logging.DEBUG, AUDIT_LOGGER)
    assert served.produce("orders")
    assert served.produce("orders")
    assert [entry.levelno for entry in logged(caplog, AUDIT_LOGGER)] == [logging.DEBUG] * 2


def test_a_request_with_very_many_denials_does_not_flood_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    served = Served(StandardAuthorizer({}))
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    for _ in range(2):  # the limit is that of one request
        caplog.clear()
        assert not served.produce(*(f"orders-{number}" for number in range(DENIALS_LOGGED + 500)))
        found = messages(caplog, AUDIT_LOGGER)
        denied = [message for message in found if " is Denied " in message]
        assert len(denied) == DENIALS_LOGGED
        assert [message for message in found if message not in denied] == [
            "Principal = User:alice from host = 10.0.0.1: the request = Produce has 1000 denied operations; further "
            "ones of this request are not logged."
        ]
    assert served.authorizer.decisions[False] == 2 * (DENIALS_LOGGED + 500)


def test_denied_requests_are_audited_each_time(caplog: pytest.LogCaptureFixture) -> None:
    served = Served(StandardAuthorizer({}))
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    assert not served.produce("orders")
    assert not served.produce("orders")
    assert [entry.levelno for entry in logged(caplog, AUDIT_LOGGER)] == [logging.INFO] * 2


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "GRANTS_MAX", 3)
    grants = Grants()
    for name in ("a", "b", "c", "d"):
        grants.remember((1, name, ALICE, "host"))
    assert grants.known == {(1, "d", ALICE, "host")}
    grants.remember((1, "x" * (NAME_LENGTH_MAX + 1), ALICE, "host"))
    grants.remember((1, None, ALICE, "host"))
    assert len(grants.known) == 1


def test_each_operation_on_each_type_is_a_number_of_its_own() -> None:
    every = {operation_on(operation, kind) for operation in AclOperation for kind in AclResourceType}
    assert len(every) == len(AclOperation) * len(AclResourceType)


_NAMES = st.sampled_from(["orders", "others", "*"])
_CHANGES = st.tuples(
    st.integers(1, 4), st.none() | st.builds(acl, _NAMES, st.sampled_from([READ, WRITE]), deny=st.booleans())
)


@given(st.lists(st.one_of(_CHANGES, _NAMES)))
def test_answers_are_those_of_an_authorizer_that_remembers_nothing(steps: list[Any]) -> None:
    remembering, asked = Served(StandardAuthorizer({})), Served(AskedAuthorizer({}))
    for step in steps:
        for _ in range(2):  # the second time an answer may come from memory
            for operation in (READ, WRITE, AclOperation.DESCRIBE):
                for name in ("orders", "others"):
                    assert remembering.allows(operation, name) == asked.allows(operation, name)
            assert remembering.produce("orders") == asked.produce("orders")
        if isinstance(step, tuple):
            for served in (remembering, asked):
                served.commit(*step)


def test_a_refused_topic_has_its_error() -> None:
    served = Served(StandardAuthorizer({}))
    served.commit(1, acl("orders"))
    served.produce("orders")
    data = [PartitionProduceData(index=0, records=batch())]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="others", partition_data=data)])
    response: Any = asyncio.run(served._produce(served, served.context(), request))
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_the_class_of_a_user_can_opt_in() -> None:
    class OptingIn(StandardAuthorizer):
        grants = StandardAuthorizer.grants

        def authorize(self, client: AuthorizedClient, action: Action) -> bool:
            self.asked = getattr(self, "asked", 0) + 1
            return True

    authorizer = OptingIn({})
    served = Served(authorizer)
    assert served.produce("orders")
    assert served.produce("orders")
    assert authorizer.asked == 1


async def _empty_metadata(services: Any, ctx: RequestContext, request: Any) -> Any:
    return MetadataResponse()


@pytest.mark.parametrize(
    ("key", "version", "request_"),
    [
        (ApiKey.METADATA, 9, MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in MANY_NAMES])),
        (ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in MANY_NAMES])),
        (ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=MANY_NAMES)),
        (ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=MANY_NAMES)),
        (ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=MANY_NAMES)),
        (ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(transactional_ids=MANY_NAMES)),
        (
            ApiKey.DESCRIBE_CONFIGS,
            4,
            DescribeConfigsRequest(
                resources=[DescribeConfigsResource(resource_type=2, resource_name=name) for name in MANY_NAMES]
            ),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)
def test_a_client_without_rights_that_names_very_many_resources_does_not_hold_the_loop(
    key: ApiKey, version: int, request_: Any
) -> None:
    response, units = refused(key, version, request_)
    (answers,) = (entries for entries in vars_of(response) if len(entries) == len(MANY_NAMES))
    assert {answer.error_code for answer in answers} <= set(REFUSALS.values())
    assert 0 < units <= STEP_UNITS


def test_a_refused_topic_with_very_many_partitions_does_not_hold_the_loop() -> None:
    partitions = [ListOffsetsPartition(partition_index=index) for index in range(5_000)]
    topics = [
        ListOffsetsTopic(name="a", partitions=partitions),
        ListOffsetsTopic(name="b", partitions=partitions[:3]),
    ]
    response, units = refused(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(topics=topics))
    found = [(topic.name, p.partition_index, p.error_code) for topic in response.topics for p in topic.partitions]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert found == [("a", index, code) for index in range(5_000)] + [("b", index, code) for index in range(3)]
    assert 0 < units <= STEP_UNITS


def refused(key: ApiKey, version: int, request: Any) -> tuple[Any, int]:
    """The response to a client without any right, and the units of the longest step of its request."""
    authorizer = StandardAuthorizer({})
    authorizer.on_caught_up()
    port = SimpleNamespace(
        metadata=SimpleNamespace(image=ClusterImage()),
        config=SimpleNamespace(current=SimpleNamespace(auto_create_topics_enable=True)),
    )
    ctx = RequestContext(key, version, 1, "client", Peer(1, "CLIENTS", "SASL_SSL", "10.0.0.1", 1, ALICE), 0, 0.0)
    handle = authorized(_empty_metadata, key, access_of(key), authorizer)
    response, units = asyncio.run(longest_step(handle(port, ctx, request)))
    assert ctx.runs_alone, "a later request of the connection waits"
    assert ctx.has_many_entries, "a thread encodes the response"
    assert authorizer.decisions[True] == 0
    return response, units


def vars_of(message: Any) -> list[list[Any]]:
    """The lists of a message."""
    values = [getattr(message, field.name) for field in message.__schema__.fields]
    return [value for value in values if isinstance(value, list)]
