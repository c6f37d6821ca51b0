"""NodeClient over real sockets: versions, order, purposes, time-outs, lost connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import Metrics
from barnabas.protocol.transport.connection_config import Destination
from barnabas.protocol.transport.eager import start
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.protocol.transport.ports import Answer, CloseConnectionError, Finished, Peer, RequestScheduling
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.wire.messages.vote import VoteRequest
from barnabas.protocol.wire.server_conn import ReceivedRequest
from tests.configs import transport_config


class Scripted:
    """Another node, which serves BrokerHeartbeat up to version 1.

    A broker epoch of 13 closes the connection, 99 is never answered, and 50 is answered after `let_go` is set.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.connections = 0
        self.let_go = asyncio.Event()

    def scheduling(self, request: ReceivedRequest) -> RequestScheduling:
        return RequestScheduling.SEQUENTIAL

    def begin(self, request: ReceivedRequest, peer: Peer) -> Finished[Answer] | Coroutine[Any, Any, Answer]:
        return start(self._handle(request))

    def on_closed(self, peer: Peer) -> None:
        self.connections += 1

    async def _handle(self, request: ReceivedRequest) -> Answer:
        if request.header.api_key == ApiKey.API_VERSIONS:
            return request.answer(
                ApiVersionsResponse(
                    api_keys=[ApiVersion(api_key=ApiKey.BROKER_HEARTBEAT, min_version=0, max_version=1)]
                )
            )
        message = request.decode()
        assert isinstance(message, BrokerHeartbeatRequest)
        self.seen.append((message.broker_id, request.header.api_version))
        match message.broker_epoch:
            case 13:
                raise CloseConnectionError("as asked")
            case 99:
                await asyncio.get_running_loop().create_future()
            case 50:
                await self.let_go.wait()
        return request.answer(BrokerHeartbeatResponse(throttle_time_ms=message.broker_id))


def talk(conversation: Callable[[NodeClient, Scripted, ListenerEndpoint], Awaitable[None]]) -> None:
    async def main() -> None:
        scripted = Scripted()
        listener = Listener(ListenerEndpoint("CONTROLLER", "127.0.0.1", 0), scripted, transport_config(), Metrics())
        endpoint = await listener.bind()
        client = NodeClient("node 1", random.Random(1))
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(listener.serve())
            running = tasks.create_task(client.run())
            await asyncio.sleep(0)
            await conversation(client, scripted, endpoint)
            running.cancel()
            listener.stop()
            await serving

    asyncio.run(main())


def beat(number: int, epoch: int = 0) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(broker_id=number, broker_epoch=epoch)


async def answer(
    client: NodeClient, to: ListenerEndpoint, number: int, epoch: int = 0, purpose: str = "", ms: int = 9_000
) -> int:
    found = await client.send(to.host, to.port, beat(number, epoch), timeout_ms=ms, purpose=purpose)
    assert isinstance(found, BrokerHeartbeatResponse)
    return found.throttle_time_ms


def test_requests_are_sent_in_order_in_the_highest_common_version() -> None:
    async def conversation(client: NodeClient, scripted: Scripted, to: ListenerEndpoint) -> None:
        assert await asyncio.gather(*(answer(client, to, number) for number in range(5))) == [0, 1, 2, 3, 4]
        assert scripted.seen == [(number, 1) for number in range(5)]
        with pytest.raises(KafkaError) as refused:
            await client.send(to.host, to.port, VoteRequest(), timeout_ms=1_000)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION

    talk(conversation)


def test_a_late_response_delays_only_requests_of_the_same_purpose() -> None:
    async def conversation(client: NodeClient, scripted: Scripted, to: ListenerEndpoint) -> None:
        async with asyncio.TaskGroup() as tasks:
            parked = tasks.create_task(answer(client, to, 1, epoch=50, purpose="fetch"))
            assert await answer(client, to, 2) == 2
            assert not parked.done()
            scripted.let_go.set()
        assert parked.result() == 1

    talk(conversation)


def test_a_lost_connection_is_opened_again_and_nothing_is_sent_twice() -> None:
    async def conversation(client: NodeClient, scripted: Scripted, to: ListenerEndpoint) -> None:
        with pytest.raises(KafkaError) as lost:
            await answer(client, to, 1, epoch=13)
        assert lost.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        assert await answer(client, to, 2) == 2
        assert [number for number, _ in scripted.seen] == [1, 2]

    talk(conversation)


def test_a_timed_out_request_closes_its_connection() -> None:
    async def conversation(client: NodeClient, scripted: Scripted, to: ListenerEndpoint) -> None:
        outcomes = await asyncio.gather(
            answer(client, to, 1, epoch=99, ms=100), answer(client, to, 2), return_exceptions=True
        )
        assert [error.code for error in outcomes if isinstance(error, KafkaError)] == [
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.BROKER_NOT_AVAILABLE,
        ]
        assert await answer(client, to, 3) == 3

    talk(conversation)


def test_refused_connections_and_a_stopped_client_raise_broker_not_available() -> None:
    async def conversation(client: NodeClient, scripted: Scripted, to: ListenerEndpoint) -> None:
        with pytest.raises(KafkaError) as unreachable:
            await client.send("127.0.0.1", 1, beat(1), timeout_ms=2_000)
        assert unreachable.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        with pytest.raises(KafkaError) as idle:
            await NodeClient("idle", random.Random(1)).send(to.host, to.port, beat(1), timeout_ms=2_000)
        assert idle.value.code is ErrorCode.BROKER_NOT_AVAILABLE

    talk(conversation)


def test_the_loss_of_a_connection_is_notified_by_purpose() -> None:
    async def conversation(client: NodeClient, scripted: Scripted, endpoint: ListenerEndpoint) -> None:
        lost: list[str] = []
        both = asyncio.Event()

        def on_lost(purpose: str) -> None:
            lost.append(purpose)
            both.set()

        client.on_lost("heartbeat", lambda: on_lost("heartbeat"))
        for purpose in ("heartbeat", "other"):
            await client.send(
                endpoint.host, endpoint.port, BrokerHeartbeatRequest(broker_id=1), timeout_ms=5_000, purpose=purpose
            )
        assert lost == []
        with pytest.raises(KafkaError):
            await client.send(
                endpoint.host, endpoint.port, BrokerHeartbeatRequest(broker_epoch=13), timeout_ms=5_000, purpose="other"
            )
        assert lost == []
        with pytest.raises(KafkaError):
            await client.send(
                endpoint.host, endpoint.port, BrokerHeartbeatRequest(broker_epoch=13), timeout_ms=5_000,
                purpose="heartbeat",
            )  # fmt: skip
        await both.wait()
        assert lost == ["heartbeat"]

    talk(conversation)


def test_the_connections_of_a_node_share_the_memory_that_they_receive_into() -> None:
    """A node has many connections, and a large response would otherwise take new memory each time."""

    async def conversation(client: NodeClient, scripted: Scripted, to: ListenerEndpoint) -> None:
        memories = []
        for purpose in ("one", "two"):
            await answer(client, to, 1, purpose=purpose)
            assert client._pool is not None
            connection = client._pool.current(Destination(to.host, to.port, purpose))
            assert connection is not None
            memories.append(connection._frames._memory)
        assert memories == [client._config.memory, client._config.memory]

    talk(conversation)
