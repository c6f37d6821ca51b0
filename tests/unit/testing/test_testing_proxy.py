"""The proxy between clients and a broker, in front of a server that sends back what it gets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from barnabas.testing.proxy import Proxy

TIMEOUT_S = 30.0
SHORT_S = 0.3


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that sends back what it gets."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(one: socket.socket) -> None:
        with one, suppress(ConnectionError):
            while data := one.recv(65536):
                one.sendall(data)

    def accept() -> None:
        while True:
            try:
                one, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(one,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


@pytest.fixture
def proxy(echo: str) -> Iterator[Proxy]:
    with Proxy(echo) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=TIMEOUT_S)


def exchange(connection: socket.socket, data: bytes) -> float:
    """The seconds until the data is back."""
    began = time.monotonic()
    connection.sendall(data)
    back = b""
    while len(back) < len(data):
        piece = connection.recv(65536)
        assert piece, "the connection has ended"
        back += piece
    assert back == data
    return time.monotonic() - began


def test_bytes_pass_in_both_directions_and_the_end_does_too(proxy: Proxy) -> None:
    with closing(connect(proxy)) as connection:
        exchange(connection, bytes(range(256)) * 4096)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""


def test_delay_counts_in_each_direction_of_open_connections(proxy: Proxy) -> None:
    with closing(connect(proxy)) as connection:
        exchange(connection, b"x")
        proxy.delay(150)
        assert exchange(connection, b"y") >= 0.3
        proxy.heal()
        exchange(connection, b"z")


def test_throttle_limits_the_rate(proxy: Proxy) -> None:
    with closing(connect(proxy)) as connection:
        proxy.throttle(50_000)
        assert exchange(connection, b"x" * 20_000) >= 0.4


def test_throttle_of_nothing_is_refused(proxy: Proxy) -> None:
    with pytest.raises(ValueError, match=r"throttle: bytes_per_s must be above 0, not 0; cut\(\) lets nothing pass"):
        proxy.throttle(0)


def test_what_was_sent_while_cut_arrives_after_heal(proxy: Proxy) -> None:
    with closing(connect(proxy)) as open_before:
        exchange(open_before, b"x")
        proxy.cut()
        with closing(connect(proxy)) as opened_meanwhile:
            for connection in (open_before, opened_meanwhile):
                connection.sendall(b"waits")
                connection.settimeout(SHORT_S)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
                connection.settimeout(TIMEOUT_S)
            proxy.heal()
            assert open_before.recv(5, socket.MSG_WAITALL) == b"waits"
            assert opened_meanwhile.recv(5, socket.MSG_WAITALL) == b"waits"


def test_reset_ends_connections_even_while_cut_and_new_ones_work(proxy: Proxy) -> None:
    with closing(connect(proxy)) as connection:
        exchange(connection, b"x")
        proxy.cut()
        connection.sendall(b"lost")
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    proxy.heal()
    with closing(connect(proxy)) as connection:
        exchange(connection, b"x")


def test_refuse_ends_connections_and_heal_listens_on_the_same_port(proxy: Proxy) -> None:
    with closing(connect(proxy)) as connection:
        exchange(connection, b"x")
        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.heal()
    with closing(connect(proxy)) as connection:
        exchange(connection, b"x")


def test_connection_ends_when_nothing_listens_at_the_target(proxy: Proxy, echo: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        unused = free.getsockname()[1]
    proxy.forward_to(f"127.0.0.1:{unused}")
    with closing(connect(proxy)) as connection:
        assert connection.recv(1) == b""
    proxy.forward_to(echo)
    with closing(connect(proxy)) as connection:
        exchange(connection, b"x")


def test_closed_proxy_leaves_no_thread(echo: str) -> None:
    before = set(threading.enumerate())
    proxy = Proxy(echo)
    proxy.close()
    proxy.close()
    assert {thread for thread in threading.enumerate() if "proxy" in thread.name} <= before
