"""Shell: hundreds of members of one group, each on a connection of its own, speaking the protocol as raw messages.

A real client library per member would measure the library. What is timed is the broker's work and one Python process
that writes and reads the messages; the same process for every broker.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Any

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.protocol.wire.schema import Request

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, FIND_VERSION = 9, 5, 1, 4
LIMIT_S = 120.0
METADATA_BYTES, ASSIGNMENT_BYTES = 80, 60

_NOT_YET = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Member(asyncio.Protocol):
    """A connection that asks one thing at a time."""

    def __init__(self) -> None:
        self._wire = ClientConnection("bench")
        self._transport: Any = None
        self._answer: asyncio.Future[Any] | None = None
        self.member_id = ""
        self.generation = -1
        self.epoch = 0
        self.owned: dict[uuid.UUID, list[int]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for _, response in self._wire.feed(data):
            assert self._answer is not None
            self._answer.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(f"the broker closed the connection: {exc}"))

    async def ask(self, request: Request, version: int) -> Any:
        self._answer = asyncio.get_running_loop().create_future()
        _, parts = self._wire.send(request, version)
        self._transport.write(b"".join(bytes(part) for part in parts))
        return await self._answer

    def close(self) -> None:
        self._transport.close()

    # -- classic protocol --------------------------------------------------------------------------------------------

    async def join(self, group: str, salt: int) -> JoinGroupResponse:
        """Until a generation is formed; gives the leader the members."""
        while True:
            request = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=300_000,
                member_id=self.member_id,
                protocol_type="bench",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes([salt % 256]) * METADATA_BYTES)],
            )
            response: JoinGroupResponse = await self.ask(request, JOIN_VERSION)
            self.member_id = response.member_id or self.member_id
            if response.error_code == ErrorCode.NONE:
                self.generation = response.generation_id
                return response
            if response.error_code in _NOT_YET:
                await asyncio.sleep(0.1)
            else:
                assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED, response

    async def sync(self, group: str, joined: JoinGroupResponse) -> None:
        assignments = []
        if joined.leader == self.member_id:
            share = b"a" * ASSIGNMENT_BYTES
            assignments = [SyncGroupRequestAssignment(member_id=m.member_id, assignment=share) for m in joined.members]
        request = SyncGroupRequest(
            group_id=group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="bench",
            protocol_name="range",
            assignments=assignments,
        )
        response: SyncGroupResponse = await self.ask(request, SYNC_VERSION)
        assert response.error_code == ErrorCode.NONE, response
        assert len(response.assignment) == ASSIGNMENT_BYTES

    # -- new protocol (KIP-848) --------------------------------------------------------------------------------------

    async def heartbeat(self, group: str, topics: Sequence[str]) -> None:
        """One heartbeat; takes and gives up what it is told to at once."""
        owned = [TopicPartitions(topic_id=topic_id, partitions=p) for topic_id, p in self.owned.items()]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=list(topics),
            server_assignor="uniform",
            topic_partitions=owned,
        )
        response: ConsumerGroupHeartbeatResponse = await self.ask(request, HEARTBEAT_VERSION)
        while response.error_code in _NOT_YET:
            await asyncio.sleep(0.1)
            response = await self.ask(request, HEARTBEAT_VERSION)
        assert response.error_code == ErrorCode.NONE, response
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = {t.topic_id: list(t.partitions) for t in response.assignment.topic_partitions}


async def connect(address: str, count: int) -> list[Member]:
    host, port = address.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    members: list[Member] = []
    while len(members) < count:  # not all at once: a listener's backlog is finite
        many = min(100, count - len(members))
        made = await asyncio.gather(*(loop.create_connection(Member, host, int(port)) for _ in range(many)))
        members += [protocol for _, protocol in made]
    return members


async def _find_coordinator(member: Member, group: str) -> None:
    """Asked until there is one: the first time, `__consumer_offsets` has to be made."""
    while True:
        response = await member.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), FIND_VERSION)
        if response.coordinators[0].error_code == ErrorCode.NONE:
            return
        await asyncio.sleep(0.1)


async def _classic(address: str, count: int, rounds: int) -> list[float]:
    group = f"classic-{count}"
    members = await connect(address, count)
    await _find_coordinator(members[0], group)
    seconds = []
    for round_number in range(rounds + 1):
        began = time.perf_counter()
        joined = await asyncio.gather(*(member.join(group, round_number) for member in members))
        if round_number == 0:  # forming: the initial delay, and late ones who begin another generation
            joined = await _until_one_generation(members, group, joined)
        await asyncio.gather(*(m.sync(group, j) for m, j in zip(members, joined, strict=True)))
        if round_number:
            seconds.append(time.perf_counter() - began)
    for member in members:
        member.close()
    return seconds


async def _until_one_generation(
    members: list[Member], group: str, joined: list[JoinGroupResponse]
) -> list[JoinGroupResponse]:
    while len({member.generation for member in members}) > 1:
        joined = await asyncio.gather(*(member.join(group, 200) for member in members))
    return joined


async def _reconcile(address: str, topic: str, count: int) -> float:
    """All join at once and beat as fast as they are answered, until each has its one partition."""
    group = f"consumer-{count}"
    members = await connect(address, count)
    await _find_coordinator(members[0], group)
    for member in members:
        member.member_id = str(uuid.uuid4())
    began = time.perf_counter()
    while True:
        await asyncio.gather(*(member.heartbeat(group, [topic]) for member in members))
        held = [len(p) for member in members for p in member.owned.values()]
        if len(held) == count and set(held) == {1} and len({member.epoch for member in members}) == 1:
            break
    took = time.perf_counter() - began
    for member in members:
        member.close()
    return took


def rebalance_classic(address: str, count: int, rounds: int) -> list[float]:
    """Seconds of each rebalance: from the first JoinGroup to the last SyncGroup answer, all members known before."""
    return asyncio.run(asyncio.wait_for(_classic(address, count, rounds), LIMIT_S))


def reconcile_consumer(address: str, topic: str, count: int) -> float:
    """Seconds until `count` members that join a KIP-848 group at once have a partition each. `topic` has `count`."""
    return asyncio.run(asyncio.wait_for(_reconcile(address, topic, count), LIMIT_S))
