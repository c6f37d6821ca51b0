"""Clients of a secure listener that do not authenticate: their time, number and memory are limited.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import ssl
import struct
import tracemalloc

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security import scram
from barnabas.protocol.transport import secure_connection, unauthenticated
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.transport.secure_connection import AUTHENTICATION_S, HANDSHAKE_S
from barnabas.protocol.transport.turn_taking import TURN_S, TurnTaking
from barnabas.protocol.transport.unauthenticated import TIME_TO_AUTHENTICATE_S, UnauthenticatedConnections
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.unit.protocol.transport.secure_listeners import (
    DELAY_MS,
    RIGHT,
    WRONG,
    Client,
    Served,
    sasl_config,
    secure_listener,
    serving,
    tls_acceptor,
)
from tests.unit.protocol.transport.test_transport_muting import in_virtual_time

MB = 1_000_000


def client_hello() -> bytes:
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(received, sent, server_hostname="localhost").do_handshake()
    return sent.read()


# ---- time


def test_a_client_that_sends_one_byte_now_and_then_has_a_limited_time_to_authenticate() -> None:
    async def main() -> None:
        listener = secure_listener(Served(), sasl=sasl_config())
        drip = Client(listener)
        honest = Client(listener)
        assert honest.log_in().error_code == ErrorCode.NONE
        drip.handshake()
        frame = drip.frame(SaslAuthenticateRequest(auth_bytes=bytes(1000)), 2)
        for index in range(int(AUTHENTICATION_S) - 1):
            drip.send(frame[index : index + 1])
            await asyncio.sleep(1.0)
        assert not drip.transport.closed
        await asyncio.sleep(1.5)
        assert drip.transport.closed
        assert not honest.transport.closed

    in_virtual_time(main())


def test_a_client_that_completes_only_tls_has_a_limited_time_to_authenticate() -> None:
    async def main() -> None:
        listener = secure_listener(Served(), sasl=sasl_config(), tls=tls_acceptor())
        client = Client(listener)
        await asyncio.sleep(HANDSHAKE_S - 0.1)
        shake_hands(client)
        await asyncio.sleep(AUTHENTICATION_S - 0.1)
        assert not client.transport.closed
        await asyncio.sleep(0.2)
        assert client.transport.closed

    in_virtual_time(main())


def test_a_client_that_begins_to_authenticate_anew_has_a_limited_time_and_small_messages() -> None:
    async def main() -> None:
        served = Served()
        listener = secure_listener(served, sasl=sasl_config(reauth_ms=600_000, receive_size=2_000))
        slow, large = Client(listener), Client(listener)
        for client in (slow, large):
            client.log_in()
            assert client.handshake().error_code == ErrorCode.NONE
        large.send(struct.pack(">i", 2_001))
        assert large.transport.closed
        await asyncio.sleep(AUTHENTICATION_S + 0.1)
        assert slow.transport.closed
        assert served.requests == []

    in_virtual_time(main())


def test_a_session_that_was_renewed_has_no_deadline_and_large_requests() -> None:
    async def main() -> None:
        served = Served()
        listener = secure_listener(served, sasl=sasl_config(reauth_ms=600_000, receive_size=2_000))
        client = Client(listener)
        for _ in range(3):
            assert client.log_in().error_code == ErrorCode.NONE
            await asyncio.sleep(AUTHENTICATION_S + 1)
        request = client.frame(ApiVersionsRequest(), 0)[4:]
        client.send(struct.pack(">i", 100_000) + request + bytes(100_000 - len(request)))
        assert not client.transport.closed
        assert served.requests == [(ApiKey.API_VERSIONS, "alice")]

    in_virtual_time(main())


def test_a_failed_authentication_is_answered_after_the_delay_and_not_before() -> None:
    async def main() -> None:
        listener = secure_listener(Served(), sasl=sasl_config())
        clients = [Client(listener) for _ in range(40)]
        for client in clients:
            client.handshake()
            assert client.authenticate(WRONG) is None
        await asyncio.sleep(DELAY_MS / 1000 - 0.001)
        assert not any(client.transport.written or client.transport.closed for client in clients)
        await asyncio.sleep(0.002)
        assert {client.answer().error_code for client in clients} == {ErrorCode.SASL_AUTHENTICATION_FAILED}
        assert all(client.transport.closed for client in clients)

    in_virtual_time(main())


# ---- number


class _Waiting:
    """A connection whose client does not authenticate."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def give_up(self, reason: str) -> None:
        self.reasons.append(reason)


def test_the_oldest_client_that_has_not_authenticated_makes_room() -> None:
    connections = UnauthenticatedConnections(2)
    first, second, third, fourth = (_Waiting() for _ in range(4))
    assert connections.try_add(first, 0.0) is None
    assert connections.try_add(second, 0.5) is None
    assert connections.try_add(third, TIME_TO_AUTHENTICATE_S - 0.1) is not None
    assert connections.try_add(third, TIME_TO_AUTHENTICATE_S) is None
    assert [len(waiting.reasons) for waiting in (first, second, third)] == [1, 0, 0]
    assert connections.try_add(fourth, TIME_TO_AUTHENTICATE_S) is not None
    connections.remove(second)
    connections.remove(second)
    assert connections.try_add(fourth, TIME_TO_AUTHENTICATE_S) is None
    assert len(connections) == 2


def test_clients_that_only_connect_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over sockets: more silent clients than the limit; then an honest one."""
    monkeypatch.setattr(secure_connection, "CONNECTIONS_MAX", 20)
    monkeypatch.setattr(unauthenticated, "TIME_TO_AUTHENTICATE_S", 0.0)

    async def main() -> None:
        served = Served()
        listener = secure_listener(served, sasl=sasl_config())
        async with serving(listener) as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            honest = Client(secure_listener(served, sasl=sasl_config()))  # for its frames only
            for message, version in (
                (SaslHandshakeRequest(mechanism="PLAIN"), 1),
                (SaslAuthenticateRequest(auth_bytes=RIGHT), 2),
            ):
                writer.write(honest.frame(message, version))
                await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            for closed, _ in silent[:40]:
                assert await closed.read(1) == b""
            assert len(listener.connections) == 20
            for _, other in (*silent, (reader, writer)):
                other.close()

    asyncio.run(main())


def test_clients_that_do_not_authenticate_use_a_quarter_of_the_descriptors() -> None:
    async def main() -> None:
        listener = secure_listener(Served(), sasl=sasl_config(), descriptors=40)
        clients = []
        for _ in range(12):
            clients.append(Client(listener))
            await asyncio.sleep(2.0)
        assert [client.transport.closed for client in clients] == [True, True] + [False] * 10

    in_virtual_time(main())


# ---- memory


def test_unfinished_messages_of_clients_that_have_not_authenticated_hold_a_limited_memory() -> None:
    async def main() -> None:
        listener = secure_listener(Served(), sasl=sasl_config())
        part = struct.pack(">i", 524_288) + bytes(524_000)
        hostile = [Client(listener) for _ in range(200)]
        tracemalloc.start()
        for client in hostile:
            client.send(part)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert held < 50 * MB  # 105 MB were sent
        assert sum(not client.transport.closed for client in hostile) == unauthenticated.HELD_BYTES_MAX // 524_004
        assert Client(listener).log_in().error_code == ErrorCode.NONE

    in_virtual_time(main())


def test_memory_for_unfinished_messages_is_free_again_when_their_clients_are_gone() -> None:
    connections = UnauthenticatedConnections(10)
    first, second = _Waiting(), _Waiting()
    connections.try_add(first, 0.0)
    connections.try_add(second, 0.0)
    assert connections.hold(first, unauthenticated.HELD_BYTES_MAX)
    assert not connections.hold(second, 1)
    assert connections.hold(second, 0)
    connections.remove(first)
    assert connections.hold(second, unauthenticated.HELD_BYTES_MAX)
    connections.remove(second)
    assert connections.held_bytes == 0


def test_a_client_that_fails_holds_no_memory_during_the_delay() -> None:
    async def main() -> None:
        listener = secure_listener(Served(), sasl=sasl_config())
        clients = [Client(listener) for _ in range(40)]
        burst = clients[0].frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        burst += clients[0].frame(SaslAuthenticateRequest(auth_bytes=b"x" * 500_000), 2)
        tracemalloc.start()
        for client in clients:
            client.send(burst + bytes(3))
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert held < 12 * MB  # 20 MB were sent; the listener keeps 8 MB for its next large requests

    in_virtual_time(main())


@pytest.mark.parametrize("tail", [b",r=abc", b",r=abc,x=y", b"", b"=2C,r=abc"])
def test_a_user_name_of_enormous_length_is_refused_at_once(tail: bytes) -> None:
    message = b"n,,n=" + b"a" * 500_000 + tail
    for _ in range(2):  # the first call may import modules
        tracemalloc.start()
        with pytest.raises(scram.ScramError, match="longer than"):
            scram.parse_client_first(message)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 100_000


def test_a_client_that_waits_after_its_first_scram_message_holds_a_limited_memory() -> None:
    async def main() -> None:
        listener = secure_listener(Served(), sasl=sasl_config())
        clients = [Client(listener) for _ in range(50)]
        first = b"n,,n=" + b"a" * (scram.MESSAGE_BYTES_MAX - 20) + b",r=abc"
        tracemalloc.start()
        for client in clients:
            client.handshake("SCRAM-SHA-256")
            assert client.authenticate(first).error_code == ErrorCode.NONE
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert held < 50 * 5 * scram.MESSAGE_BYTES_MAX

    in_virtual_time(main())


# ---- turns of the event loop


STEP_S = 2.0**-10
"""What a step of a handshake takes, by the clock of these tests."""
STEPS_OF_TURN = math.ceil(TURN_S / STEP_S)


def with_slow_handshakes(listener: Listener) -> Listener:
    """Each reading of the clock of turns is a third of a step later than the one before."""
    listener.turns = TurnTaking()
    ticks = itertools.count()
    listener.turns.use_clock(lambda: next(ticks) * STEP_S / 3)
    return listener


def test_a_turn_of_the_loop_has_a_limited_time_for_tls_handshakes() -> None:
    async def main() -> None:
        listener = with_slow_handshakes(secure_listener(Served(), tls=tls_acceptor()))
        clients = [Client(listener) for _ in range(3 * STEPS_OF_TURN)]
        hello = client_hello()

        def answered() -> int:
            return sum(bool(client.transport.written) for client in clients)

        for client in clients:
            client.connection.data_received(hello)
        per_turn = [answered()]
        while answered() < len(clients):
            await asyncio.sleep(0)
            per_turn.append(answered())
        steps = [after - before for before, after in zip([0, *per_turn], per_turn, strict=False)]
        assert max(steps) <= STEPS_OF_TURN, steps
        assert all(client.transport.is_read for client in clients)

    in_virtual_time(main())


def test_a_client_whose_handshake_waits_may_disconnect() -> None:
    async def main() -> None:
        listener = with_slow_handshakes(secure_listener(Served(), tls=tls_acceptor()))
        clients = [Client(listener) for _ in range(2 * STEPS_OF_TURN)]
        hello = client_hello()
        for client in clients:
            client.connection.data_received(hello)
        clients[-1].connection.connection_lost(None)
        await asyncio.sleep(1.0)
        assert not clients[-1].transport.written
        assert clients[-2].transport.written

    in_virtual_time(main())


def test_a_client_without_handshake_is_served_before_waiting_handshakes_of_another() -> None:
    """Hosts share the time, so one that floods the listener with handshakes keeps no other host waiting."""

    async def main() -> None:
        listener = with_slow_handshakes(secure_listener(Served(), tls=tls_acceptor()))
        hostile = [Client(listener) for _ in range(4 * STEPS_OF_TURN)]
        other = Client(listener, host="10.0.0.2")
        hello = client_hello()
        for client in hostile:
            client.connection.data_received(hello)
        other.connection.data_received(hello)
        await asyncio.sleep(0)
        assert other.transport.written, "its turn is the second, at the latest"
        assert not hostile[-1].transport.written

    in_virtual_time(main())


def shake_hands(client: Client) -> ssl.SSLObject:
    """Complete the TLS handshake of a client without a socket."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(received, sent)
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            client.send(sent.read())
            received.write(b"".join(client.transport.written))
            client.transport.written.clear()
        else:
            client.send(sent.read())
            return tls
