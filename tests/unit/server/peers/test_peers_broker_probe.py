"""Probes of broker addresses, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from barnabas.server.metadata.controller.suspicions import ProbeOutcome
from barnabas.server.peers.broker_probe import BrokerConnector

Address = tuple[str, int]


@contextmanager
def bound(*, listening: bool) -> Iterator[Address]:
    """A port that is held by this process, and refuses connections unless `listening`."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        if listening:
            sock.listen()
        yield sock.getsockname()


def probe(*addresses: Address) -> ProbeOutcome:
    return asyncio.run(BrokerConnector().probe(addresses))


def test_a_listening_address_accepts() -> None:
    with bound(listening=True) as address:
        assert probe(address) is ProbeOutcome.ACCEPTED


def test_a_port_on_which_no_process_listens_refuses() -> None:
    with bound(listening=False) as address:
        assert probe(address) is ProbeOutcome.REFUSED


def test_one_listener_that_accepts_is_enough_to_accept() -> None:
    with bound(listening=False) as gone, bound(listening=True) as there:
        assert probe(gone, there) is ProbeOutcome.ACCEPTED
        assert probe(there, gone) is ProbeOutcome.ACCEPTED
        assert probe(gone, gone) is ProbeOutcome.REFUSED


def test_a_broker_without_addresses_is_silent() -> None:
    assert probe() is ProbeOutcome.SILENT


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(110, "Connection timed out"),
        OSError(113, "No route to host"),
        OSError(24, "Too many open files"),
        socket.gaierror(-2, "Name or service not known"),
        OSError("Multiple exceptions: Connection refused, No route to host"),
    ],
)
def test_any_other_error_is_silence_even_beside_a_refusal(error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(address: Address) -> ProbeOutcome:
        loop = asyncio.get_running_loop()
        real = loop.create_connection

        async def create_connection(factory: object, host: str, port: int) -> object:
            if host == "elsewhere":
                raise error
            return await real(asyncio.Protocol, host, port)

        monkeypatch.setattr(loop, "create_connection", create_connection)
        return await BrokerConnector().probe([address, ("elsewhere", 9092)])

    with bound(listening=False) as address:
        assert asyncio.run(scenario(address)) is ProbeOutcome.SILENT
