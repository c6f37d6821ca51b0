"""The way to the active controller: it moves, cannot be reached, does not answer. Sleeps take virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.transport.node_client import NodeClient, UnansweredError
from barnabas.protocol.transport.ports import Peer
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.protocol.wire.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.protocol.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.schema import Message, schema_of
from barnabas.server.broker.apis import CONTROLLER_APIS
from barnabas.server.broker.forwarded import ForwardingHandlers
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.handlers.controller.port import ControllerPort
from barnabas.server.broker.handlers.security.port import SecurityPort
from barnabas.server.broker.quorum.ports import QuorumHandle
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.served import load_handler
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.publish import Publisher
from barnabas.server.peers.controller import ActiveController, unwrap, wrap
from tests.unit.server.metadata.controller_house import House, play

ME = 9
Places = dict[tuple[str, int], "Controller"]


@dataclass
class Quorum:
    """Who leads, as this node sees it."""

    leader_id: int = -1
    leader_epoch: int = 1
    place: tuple[str, int] | None = None

    def leader_endpoint(self) -> tuple[str, int] | None:
        return self.place

    def move(self, leader_id: int, place: tuple[str, int] | None) -> None:
        self.leader_id, self.place, self.leader_epoch = leader_id, place, self.leader_epoch + 1


class Controller:
    """A controller at some address: a real service behind its real handlers, through the real codec."""

    def __init__(self, house: House) -> None:
        self.ports = ports(house)
        self.failures: list[KafkaError] = []
        self.silent = False
        self.requests: list[Message] = []

    async def answer(self, request: Message) -> Message:
        self.requests.append(request)
        if self.failures:
            raise self.failures.pop(0)
        if self.silent:
            await asyncio.get_running_loop().create_future()
        key = ApiKey(schema_of(request).key)
        version = CONTROLLER_APIS.by_key[key].max_version
        received = decode(type(request), version, encode(request, version))
        folder = CONTROLLER_APIS.by_key[key].folder
        response: Any = await load_handler(folder, key)(self.ports[folder], context(key, version), received)
        return decode(APIS[key].response, version, encode(response, version))


class Network:
    """In place of `NodeClient`."""

    def __init__(self) -> None:
        self.places: Places = {}
        self.versions: dict[ApiKey, int] = {}
        """The newest version of an API that the controllers know, if they are older than this node."""
        self.limits: list[int] = []
        """The time-outs of the requests."""

    async def version_of(
        self, host: str, port: int, key: ApiKey, *, timeout_ms: int, purpose: str = "", version_max: int
    ) -> int:
        if (host, port) not in self.places:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "connection refused")
        return min(version_max, self.versions.get(key, version_max))

    async def send(
        self,
        host: str,
        port: int,
        request: Message,
        *,
        timeout_ms: int,
        purpose: str = "",
        version_max: int | None = None,
    ) -> Message:
        controller = self.places.get((host, port))
        if controller is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "connection refused")
        self.limits.append(timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await controller.answer(request)
        except TimeoutError:
            raise UnansweredError(ErrorCode.REQUEST_TIMED_OUT) from None


def ports(house: House) -> dict[str, Any]:
    """The ports of the handlers of a controller."""
    quorum = cast("QuorumHandle", None)
    found: dict[str, Any] = {"admin": AdminPort(1, CONTROLLER_APIS, house.publisher, house.service, quorum, {}, None)}
    found["security"] = SecurityPort(house.publisher, house.service, {})
    forwarded = ForwardingHandlers(found, None)
    found["controller"] = ControllerPort("c", house.publisher, house.service, quorum, forwarded)
    return found


async def nothing_to_apply() -> None:
    """This node has no broker."""


def context(key: int, version: int) -> RequestContext:
    peer = Peer(1, "PLAINTEXT", "PLAINTEXT", "10.1.2.3", 5, KafkaPrincipal("User", "alice"))
    return RequestContext(key, version, 77, "client", peer, 0, 0.0)


class World:
    """A controller in the house, at ("c1", 1); this node is another one."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.quorum = Quorum()
        self.network = Network()
        self.first = Controller(house)
        self.network.places["c1", 1] = self.first
        self.publisher = Publisher(ClusterImage(cluster_id="c"))
        self.channel = ActiveController(
            self.quorum,
            cast("NodeClient", self.network),
            self.publisher,
            node_id=ME,
            rng=random.Random(3),
            images_applied=nothing_to_apply,
            timeout_ms=10_000,
            heartbeat_timeout_ms=4_500,
        )

    async def create(self, name: str = "t", **more: Any) -> ErrorCode:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], **{"timeout_ms": 10_000, **more})
        response = await self.channel.call(request, 7, context(ApiKey.CREATE_TOPICS, 7))
        assert isinstance(response, CreateTopicsResponse)
        return ErrorCode(response.topics[0].error_code)

    async def allocate(self) -> int:
        request = AllocateProducerIdsRequest(broker_id=5, broker_epoch=self.house.epochs[5])
        response = await self.channel.call(request, 0)
        assert isinstance(response, AllocateProducerIdsResponse)
        assert response.error_code == ErrorCode.NONE
        return response.producer_id_start


def scenario(run: Callable[[World], Awaitable[None]], house: House | None = None) -> None:
    async def elected(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5)
        await run(World(house))

    play(elected, house)


async def failure(answer: Awaitable[object]) -> KafkaError:
    with pytest.raises(KafkaError) as refusal:
        await answer
    return refusal.value


def now() -> float:
    return asyncio.get_running_loop().time()


def test_request_waits_for_a_leader() -> None:
    async def run(world: World) -> None:
        waiting = asyncio.ensure_future(world.allocate())
        await asyncio.sleep(5)
        assert not waiting.done()
        world.quorum.move(1, ("c1", 1))
        assert await waiting == 0
        assert len(world.first.requests) == 1

    scenario(run)


def test_request_times_out_without_a_leader() -> None:
    async def run(world: World) -> None:
        before = now()
        error = await failure(world.allocate())
        assert (error.code, now() - before) == (ErrorCode.REQUEST_TIMED_OUT, 10.0)
        assert "no controller is known" in str(error)
        before = now()
        assert (await failure(world.create(timeout_ms=2_000))).code is ErrorCode.REQUEST_TIMED_OUT
        assert now() - before == 2.0

    scenario(run)


def test_client_request_is_forwarded_in_an_envelope_and_waits_for_the_image() -> None:
    async def run(world: World) -> None:
        world.quorum.move(1, ("c1", 1))
        creating = asyncio.ensure_future(world.create())
        await asyncio.sleep(0.5)
        assert "t" in world.house.image.topics
        assert not creating.done(), "this node's image has no topic yet"
        news = ClusterDelta.between(world.publisher.image, world.house.image)
        world.publisher.publish(news, world.house.image)
        assert await creating is ErrorCode.NONE
        envelope = world.first.requests[0]
        assert isinstance(envelope, EnvelopeRequest)
        assert bytes(envelope.client_host_address) == bytes([10, 1, 2, 3])
        assert await world.create() is ErrorCode.TOPIC_ALREADY_EXISTS

    scenario(run)


def test_a_new_token_is_in_the_image_when_the_client_has_its_response() -> None:
    """The client may log in with the token at once."""

    async def run(world: World) -> None:
        world.quorum.move(1, ("c1", 1))
        request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
        creating = asyncio.ensure_future(world.channel.call(request, 3, context(ApiKey.CREATE_DELEGATION_TOKEN, 3)))
        await asyncio.sleep(0.5)
        assert len(world.house.image.tokens.by_id) == 1
        assert not creating.done(), "this node's image has no token yet"
        world.publisher.publish(ClusterDelta.between(world.publisher.image, world.house.image), world.house.image)
        response = await creating
        assert isinstance(response, CreateDelegationTokenResponse)
        assert (response.principal_name, response.error_code) == ("alice", ErrorCode.NONE)

    scenario(run, House(delegation_token_secret_key="key"))


def test_wait_for_the_image_times_out() -> None:
    async def run(world: World) -> None:
        world.quorum.move(1, ("c1", 1))
        before = now()
        assert await world.create() is ErrorCode.NONE
        assert now() - before == 2.0

    scenario(run)


def test_requests_follow_a_controller_change() -> None:
    async def run(world: World) -> None:
        house = world.house
        world.quorum.move(1, ("c1", 1))
        house.log.elect(2)  # the first one is not active any more, and this node does not know yet
        waiting = [asyncio.ensure_future(world.allocate()), asyncio.ensure_future(world.create())]
        await asyncio.sleep(1)
        assert not any(task.done() for task in waiting)
        assert len(world.first.requests) < 20, "it backs off"
        house.log.elect(1)
        world.network.places = {("c2", 2): world.first}
        world.quorum.move(2, ("c2", 2))
        assert await asyncio.gather(*waiting) == [0, ErrorCode.NONE]

    scenario(run)


def test_unreachable_controller_is_retried() -> None:
    async def run(world: World) -> None:
        world.quorum.move(1, ("nowhere", 1))
        waiting = asyncio.ensure_future(world.create(validate_only=True))
        await asyncio.sleep(1)
        world.quorum.move(1, ("c1", 1))
        assert await waiting is ErrorCode.NONE

    scenario(run)


def test_unanswered_request_is_retried_only_if_idempotent() -> None:
    async def run(world: World) -> None:
        world.quorum.move(1, ("c1", 1))
        lost = UnansweredError(ErrorCode.BROKER_NOT_AVAILABLE)
        world.first.failures = [lost, lost]
        assert await world.allocate() == 0
        world.first.failures = [lost]
        error = await failure(world.create())
        assert error.code is ErrorCode.REQUEST_TIMED_OUT
        assert "may have been made" in str(error)
        world.first.failures = [lost]
        error = await failure(world.channel.call(AlterPartitionRequest(broker_id=5), 3))
        assert error is lost, "whoever asks for an ISR has to know that it may have come true"

    scenario(run)


def test_heartbeat_without_a_response_ends_in_time_for_the_next_one() -> None:
    """Half of the session is over then. The connection that carried the heartbeat is closed by its time-out."""

    async def run(world: World) -> None:
        world.quorum.move(1, ("dark", 1))
        dark = world.network.places["dark", 1] = Controller(world.house)
        dark.silent = True
        began = now()
        heartbeat = BrokerHeartbeatRequest(broker_id=5, broker_epoch=world.house.epochs[5])
        assert (await failure(world.channel.call(heartbeat, 1))).code is ErrorCode.REQUEST_TIMED_OUT
        assert now() - began == pytest.approx(4.5, abs=0.01)
        assert world.network.limits[0] == pytest.approx(4_500, abs=1)

    scenario(run)


def test_request_to_a_disconnected_controller_ends_after_a_leader_change() -> None:
    async def run(world: World) -> None:
        world.quorum.move(1, ("dark", 1))
        dark = world.network.places["dark", 1] = Controller(world.house)
        dark.silent = True
        waiting = asyncio.ensure_future(world.allocate())
        await asyncio.sleep(2)
        world.quorum.move(2, ("c1", 1))
        before = now()
        assert await waiting == 0
        assert now() - before < 1

    scenario(run)


def test_local_controller_is_called_directly() -> None:
    async def run(world: World) -> None:
        world.network.places = {}
        channel = ActiveController(
            Quorum(leader_id=ME),
            cast("NodeClient", world.network),
            world.house.publisher,
            node_id=ME,
            rng=random.Random(3),
            images_applied=nothing_to_apply,
            local=world.house.service,
            forwarded=ForwardingHandlers(ports(world.house), None),
        )
        world.channel = channel
        assert await world.allocate() == 0
        assert await world.create() is ErrorCode.NONE
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000)
        response = await channel.call(request, 6, context(ApiKey.DELETE_TOPICS, 6))
        assert isinstance(response, DeleteTopicsResponse)
        assert (response.responses[0].name, response.responses[0].error_code) == ("t", ErrorCode.NONE)
        world.house.log.elect(-1)
        waiting = asyncio.ensure_future(world.create("u"))
        await asyncio.sleep(1)
        assert not waiting.done()
        world.house.log.elect(1)
        assert await waiting is ErrorCode.NONE

    scenario(run)


def test_a_request_is_forwarded_in_the_newest_version_that_an_older_controller_knows() -> None:
    """Apache Kafka 3.9 knows version 0 of AlterPartitionReassignments only; brokers advertise version 1."""

    async def run(world: World) -> None:
        world.quorum.move(1, ("c1", 1))
        world.network.versions[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = 0
        ctx = context(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1)
        topic = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[5])])
        response = await world.channel.call(AlterPartitionReassignmentsRequest(topics=[topic]), 1, ctx)
        assert isinstance(response, AlterPartitionReassignmentsResponse)
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (envelope,) = world.first.requests
        assert isinstance(envelope, EnvelopeRequest)
        assert bytes(envelope.request_data)[:4] == b"\0\x2d\0\0", "key 45, version 0"
        request = AlterPartitionReassignmentsRequest(topics=[topic], allow_replication_factor_change=False)
        error = await failure(world.channel.call(request, 1, ctx))
        assert error.code is ErrorCode.UNSUPPORTED_VERSION
        assert "allow_replication_factor_change" in str(error)

    scenario(run)


def test_only_what_brokers_forward_may_come_in_an_envelope() -> None:
    async def run(world: World) -> None:
        async def send(request: Message, version: int) -> ErrorCode:
            ctx = context(schema_of(request).key, version)
            response = await world.first.answer(wrap(request, ctx))
            assert isinstance(response, EnvelopeResponse)
            return ErrorCode(response.error_code)

        assert await send(MetadataRequest(), 12) is ErrorCode.INVALID_REQUEST
        assert await send(AllocateProducerIdsRequest(), 0) is ErrorCode.INVALID_REQUEST
        assert await send(CreateTopicsRequest(), 0) is ErrorCode.UNSUPPORTED_VERSION
        assert await send(CreateTopicsRequest(), 7) is ErrorCode.NONE
        for broken in (
            EnvelopeRequest(request_data=b"\0"),
            EnvelopeRequest(request_data=b"\0\x13\0\x07xxxx"),
        ):
            answer = await world.first.answer(broken)
            assert isinstance(answer, EnvelopeResponse)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
        envelope = wrap(CreateTopicsRequest(), context(ApiKey.CREATE_TOPICS, 7))
        envelope.request_principal = b"\0\x07?"
        answer = await world.first.answer(envelope)
        assert isinstance(answer, EnvelopeResponse)
        assert answer.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
        with pytest.raises(KafkaError) as unreadable:
            unwrap(EnvelopeResponse(response_data=b"\0"), ApiKey.CREATE_TOPICS, context(ApiKey.CREATE_TOPICS, 7))
        assert unreadable.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    scenario(run)
