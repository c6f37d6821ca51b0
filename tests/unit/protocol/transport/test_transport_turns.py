"""The requests of very many connections are started in several turns of the event loop, and clients share the turns by
what their requests cost."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.telemetry import Metrics
from barnabas.protocol.transport.accepted_connection import AcceptedConnection
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.transport.ports import Answer, Finished, Peer, RequestScheduling
from barnabas.protocol.transport.turn_taking import SLICE_S, TURN_S, TurnTaking
from barnabas.protocol.transport.turns import IDLE_CLIENTS_MAX, Share, Turns
from barnabas.protocol.wire.server_conn import REQUESTS_AT_ONCE, ReceivedRequest
from tests.configs import transport_config

COST_S = 2.0**-13
"""What each request costs, by the clock of these tests: a number whose sums are exact."""
OF_TURN = math.ceil(TURN_S / COST_S)
OF_SLICE = math.ceil(SLICE_S / COST_S)
BODY = bytes.fromhex("0012000000000001ffff")
FRAME = len(BODY).to_bytes(4, "big") + BODY


class FakeTransport:
    """A socket that accepts everything."""

    host = "127.0.0.1"

    def get_extra_info(self, name: str) -> object:
        return (self.host, 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def __init__(self) -> None:
        self.is_reading = True

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None: ...


class Started:
    """Keeps the connections whose requests were started, in order. Every request is finished at once."""

    def __init__(self) -> None:
        self.connections: list[int] = []
        self.time = 0.0

    def scheduling(self, request: ReceivedRequest) -> RequestScheduling:
        return RequestScheduling.PIPELINED

    def begin(self, request: ReceivedRequest, peer: Peer) -> Finished[Answer] | Coroutine[Any, Any, Answer]:
        self.connections.append(peer.connection_id)
        self.time += COST_S
        return Finished(None)

    def on_closed(self, peer: Peer) -> None: ...


def endless_turns() -> TurnTaking:
    """Every request is started as soon as it arrives, however long the ones before it took."""
    return TurnTaking(turn_s=math.inf, slice_s=math.inf)


async def connected(handler: Started, *hosts: str) -> tuple[Listener, list[AcceptedConnection]]:
    """A listener, and a connection from each of these hosts."""
    listener = Listener(ListenerEndpoint("PLAINTEXT", "127.0.0.1", 0), handler, transport_config(), Metrics())
    await listener.bind()
    listener.turns.use_clock(lambda: handler.time)
    connections = []
    for host in hosts:
        transport = FakeTransport()
        transport.host = host
        connection = AcceptedConnection(listener)
        connection.connection_made(cast("Any", transport))
        connections.append(connection)
    return listener, connections


@asynccontextmanager
async def serving_connections(
    handler: Started, *hosts: str
) -> AsyncIterator[tuple[Listener, list[AcceptedConnection]]]:
    """As `connected`; the listener has tasks for requests that are suspended."""
    listener, connections = await connected(handler, *hosts)
    async with asyncio.TaskGroup() as tasks:
        listener._tasks = tasks
        yield listener, connections
        for task in list(listener._request_tasks):
            task.cancel()
    listener.stop()


def number(connection: AcceptedConnection) -> int:
    assert connection.peer is not None
    return connection.peer.connection_id


async def test_a_turn_of_the_loop_has_a_limited_time() -> None:
    handler = Started()
    count = 2 * OF_TURN + OF_TURN // 2
    listener, connections = await connected(handler, *("127.0.0.1",) * count)
    for connection in connections:
        connection.data_received(FRAME)
    per_turn = [len(handler.connections)]
    while len(handler.connections) < count:
        before = len(handler.connections)
        await asyncio.sleep(0)
        per_turn.append(len(handler.connections) - before)
    assert per_turn == [OF_TURN, OF_TURN, OF_TURN // 2]
    assert handler.connections == list(map(number, connections)), "the requests are started in the order of arrival"
    listener.stop()


async def test_a_connection_that_waits_for_its_turn_keeps_the_order_of_its_requests() -> None:
    handler = Started()
    listener, connections = await connected(handler, *("127.0.0.1",) * (OF_TURN + 1))
    for connection in connections:
        connection.data_received(FRAME)
    connections[-1].data_received(FRAME)
    connections[0].data_received(FRAME)
    assert len(handler.connections) == OF_TURN
    await asyncio.sleep(0)
    first, last = number(connections[0]), number(connections[-1])
    assert handler.connections[OF_TURN:] == [last, last, first]
    listener.stop()


async def test_a_connection_that_waits_for_its_turn_is_not_read_for_ever() -> None:
    """Its requests are counted in the limits of the connection and of the node."""
    handler = Started()
    listener, connections = await connected(handler, *("127.0.0.1",) * 3)
    transports = [cast("FakeTransport", connection._transport) for connection in connections]
    for connection in connections:
        connection.data_received(FRAME * OF_TURN)
    waiting = sum(len(connection._waiting) for connection in connections)
    assert listener.budget.requests == waiting > 0, "the rest of the bursts is not parsed yet"
    assert [transport.is_reading for transport in transports] == [False] * 3
    while len(handler.connections) < 3 * OF_TURN:
        await asyncio.sleep(0)
    assert listener.budget.requests == 0
    assert [transport.is_reading for transport in transports] == [True] * 3
    listener.stop()


async def test_a_newcomer_waits_for_one_slice_of_a_client_that_pipelines() -> None:
    """However many connections and requests the other client has."""
    handler = Started()
    listener, connections = await connected(handler, *("10.0.0.1",) * 20, "10.0.0.2", "10.0.0.2")
    *hostile, newcomer, second = connections
    for connection in hostile:
        connection.data_received(FRAME * 60)
    await asyncio.sleep(0)
    newcomer.data_received(FRAME)
    second.data_received(FRAME)
    before = len(handler.connections)
    await asyncio.sleep(0)
    served = handler.connections[before:]
    assert served.index(number(newcomer)) <= OF_SLICE
    assert served.index(number(second)) <= 2 * OF_SLICE + 1
    listener.stop()


async def test_clients_share_the_time_and_not_the_connections() -> None:
    handler = Started()
    listener, connections = await connected(handler, *("10.0.0.1",) * 19, "10.0.0.2")
    for _ in range(20):
        for connection in connections:
            connection.data_received(FRAME * (OF_TURN // 2 - OF_SLICE))
        await asyncio.sleep(0)
    of_one = handler.connections.count(number(connections[-1]))
    assert of_one == 20 * (OF_TURN // 2 - OF_SLICE), "the client with one connection is never behind"
    listener.stop()


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 3), st.integers(1, 40)), max_size=120
    )
)
def test_no_client_gets_more_than_its_share_while_another_waits(arrivals: list[tuple[str, str, int, int]]) -> None:
    """Between two clients of a listener that both wait all the time, the costs differ by at most a slice of each."""
    turns = Turns()
    shares: dict[tuple[str, str, int], Share] = {}
    backlog: dict[Share, list[int]] = {}
    names: dict[Share, tuple[str, str]] = {}

    def serve() -> None:
        share = turns.next()
        cost = backlog[share].pop(0)
        together = {names[s] for s, left in backlog.items() if left} | {names[share]}
        for pair in list(since):
            if pair not in together:
                del since[pair]
        for pair in together:
            since.setdefault(pair, 0)
        since[names[share]] += cost
        turns.charge(share, cost, waits=bool(backlog[share]))
        for listener in "ab":
            of_listener = [spent for (name, _), spent in since.items() if name == listener]
            if of_listener:
                assert max(of_listener) - min(of_listener) <= 40 * 2 + max(0, len(since) - 1) * 40

    since: dict[tuple[str, str], int] = {}
    for listener, client, connection, cost in arrivals:
        key = listener, client, connection
        if key not in shares:
            shares[key] = turns.share(listener, client, key)
            backlog[shares[key]] = []
            names[shares[key]] = listener, client
        backlog[shares[key]].append(cost)
        turns.enter(shares[key])
        if cost % 3 == 0 and turns:
            serve()
    while turns:
        serve()
    assert not any(backlog.values()), "every request is served"


@given(
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(1, 10), st.integers(1, 10)), min_size=1, max_size=40),
    st.integers(1, 10),
)
def test_a_bystander_waits_for_at_most_one_slice_of_each_connection(
    hostile: int, rounds: list[tuple[int, int]], slice_cost: int
) -> None:
    """Even if it belongs to the same client, and uses more than an equal share of all its connections."""
    turns = Turns(grace=10)
    for index in range(hostile):
        turns.enter(turns.share("L", "c", index))
    bystander = turns.share("L", "c", "bystander")
    for others, cost in rounds:
        for _ in range(others):
            turns.charge(turns.next(), slice_cost, waits=True)
        turns.enter(bystander)
        before: list[object] = []
        while (share := turns.next()) is not bystander:
            before.append(share.owner)
            turns.charge(share, slice_cost, waits=True)
        assert len(before) == len(set(before)), "at most one slice of each connection"
        turns.charge(bystander, cost, waits=False)


def test_what_a_connection_uses_outside_its_turn_is_charged() -> None:
    turns = Turns()
    first, second = turns.share("L", "a", 1), turns.share("L", "b", 2)
    turns.enter(first)
    turns.enter(second)
    turns.add(first, 2.5)
    owners = []
    for _ in range(4):
        share = turns.next()
        owners.append(share.owner)
        turns.charge(share, 1.0, waits=True)
    assert owners == [2, 2, 2, 1]


class Paused(Started):
    """Every request pauses so many times. Keeps the connections and the steps, in order."""

    def __init__(self, pauses: int) -> None:
        super().__init__()
        self.pauses = pauses
        self.steps: list[int] = []

    def begin(self, request: ReceivedRequest, peer: Peer) -> Finished[Answer] | Coroutine[Any, Any, Answer]:
        super().begin(request, peer)
        return self._work(peer.connection_id) if self.pauses else Finished(None)

    async def _work(self, connection_id: int) -> Answer:
        for _ in range(self.pauses):
            await asyncio.sleep(0)
            self.steps.append(connection_id)
            self.time += SLICE_S
        return None


async def serve_until(done: Callable[[], bool], turns: int = 1_000) -> None:
    """Run turns of the event loop until the condition holds."""
    for _ in range(turns):
        if done():
            return
        await asyncio.sleep(0)
    raise AssertionError("the requests make no progress")


async def test_a_turn_of_the_loop_has_one_slice_of_long_work_and_a_client_finishes_its_oldest_first() -> None:
    handler = Paused(3)
    async with serving_connections(handler, *("10.0.0.1",) * 4) as (_, connections):
        for connection in connections:
            connection.data_received(FRAME)
        per_turn: list[int] = []
        while len(handler.steps) < 12:
            before = len(handler.steps)
            await asyncio.sleep(0)
            per_turn.append(len(handler.steps) - before)
            assert len(per_turn) < 100
        assert max(per_turn) == 1
        assert handler.steps == [number(c) for c in connections for _ in range(3)]


async def test_clients_share_the_slices_of_long_work() -> None:
    handler = Paused(4)
    async with serving_connections(handler, *("10.0.0.1",) * 8, "10.0.0.2") as (_, connections):
        for connection in connections:
            connection.data_received(FRAME)
        last = number(connections[-1])
        await serve_until(lambda: handler.steps.count(last) == 4)
        assert len(handler.steps) <= 8, "half of the slices are those of the other client"


async def test_a_short_request_does_not_wait_for_long_work() -> None:
    handler = Paused(50)
    async with serving_connections(handler, *("10.0.0.1",) * 9) as (_, connections):
        for connection in connections[:-1]:
            connection.data_received(FRAME)
        await serve_until(lambda: len(handler.steps) == 5)
        handler.pauses = 0
        connections[-1].data_received(FRAME)
        await asyncio.sleep(0)
        assert handler.connections[-1] == number(connections[-1])
        assert len(handler.steps) <= 6


async def test_a_request_that_waits_for_a_slice_may_be_cancelled() -> None:
    handler = Paused(3)
    async with serving_connections(handler, *("10.0.0.1",) * 3) as (listener, connections):
        for connection in connections:
            connection.data_received(FRAME)
        await asyncio.sleep(0)
        first = next(iter(listener._request_tasks))
        first.cancel()
        await serve_until(lambda: len(handler.steps) == 6)
        await serve_until(lambda: not listener._request_tasks)
        assert number(connections[0]) not in handler.steps


async def test_a_burst_of_small_requests_is_read_in_parts_and_in_order() -> None:
    handler = Started()
    listener, (burst, other) = await connected(handler, "10.0.0.1", "10.0.0.2")
    count = 10 * REQUESTS_AT_ONCE
    burst.data_received(FRAME * count)
    assert len(handler.connections) + len(burst._waiting) <= 64 + REQUESTS_AT_ONCE, "the rest is not read yet"
    other.data_received(FRAME)
    await serve_until(lambda: len(handler.connections) == count + 1)
    assert handler.connections.index(number(other)) <= OF_TURN + OF_SLICE
    assert not burst._frames.has_more
    listener.stop()


def test_idle_clients_are_forgotten_and_those_in_debt_last() -> None:
    turns = Turns()
    busy = turns.share("L", "busy", None)
    turns.enter(busy)
    turns.charge(turns.next(), 5.0, waits=False)
    for client in range(2 * IDLE_CLIENTS_MAX):
        turns.share("L", str(client), None)
    assert busy.parent is not None and busy.parent.parent is not None
    assert len(busy.parent.parent.children) <= IDLE_CLIENTS_MAX + 1
    assert "busy" in busy.parent.parent.children


class Failing:
    """A connection with a bug."""

    def __init__(self, turns: TurnTaking, name: str, *, fails: bool) -> None:
        self.share = turns.turns.share("L", name, self)
        self.fails = fails
        self.calls: list[str] = []

    def start_waiting(self) -> None:
        self.calls.append("started")
        if self.fails:
            raise ValueError("a bug")

    def fail(self) -> None:
        self.calls.append("failed")

    def find_share(self) -> Share:
        return self.share


async def test_a_connection_that_fails_in_its_turn_does_not_end_the_turns_of_others() -> None:
    turns = TurnTaking()
    bad, good = Failing(turns, "bad", fails=True), Failing(turns, "good", fails=False)
    for _ in range(2):
        turns.wait(bad)
        turns.wait(good)
        while turns.is_busy:
            await asyncio.sleep(0)
    assert bad.calls == ["started", "failed"] * 2
    assert good.calls == ["started"] * 2
