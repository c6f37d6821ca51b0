"""Vulnerabilities that Apache Kafka had, each with its number: the listener does not have them."""

from __future__ import annotations

import hmac
import logging
import struct
import tracemalloc
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.frame_buffer import FrameBuffer, ReceiveMemory, write_pieces
from tests.unit.protocol.transport.secure_listeners import WRONG, Client, Served, sasl_config, secure_listener
from tests.unit.protocol.transport.test_transport_muting import in_virtual_time

HUGE = 0x7FFFFFFF
_HANDSHAKE, _VERSIONS, _AUTHENTICATE = 17, 18, 36
PAYLOADS = {
    "the length of the frame": struct.pack(">i", HUGE),
    "the mechanism of SaslHandshake": (_HANDSHAKE, 1, struct.pack(">h", 0x7FFF)),
    "the client id of the header": struct.pack(">ihhih", 10, _HANDSHAKE, 1, 1, 0x7FFF),
    "a text of ApiVersions": (_VERSIONS, 3, b"\x00" + b"\xff\xff\xff\xff\x07"),
    "the number of tagged fields": (_VERSIONS, 3, b"\x00\x02a\x021" + b"\xff\xff\xff\xff\x07"),
    "the size of a tagged field": (_VERSIONS, 3, b"\x00\x02a\x021\x01\x05" + b"\xff\xff\xff\xff\x07"),
}


def _request(payload: bytes | tuple[int, int, bytes]) -> bytes:
    if isinstance(payload, bytes):
        return payload
    key, version, rest = payload
    frame = struct.pack(">hhih", key, version, 1, -1) + rest
    return struct.pack(">i", len(frame)) + frame


@pytest.mark.parametrize("name", PAYLOADS)
def test_cve_2022_34917_a_size_is_checked_before_memory_is_allocated(name: str) -> None:
    async def main() -> None:
        served = Served()
        for handshakes in (False, True):
            client = Client(secure_listener(served, sasl=sasl_config()))
            if handshakes:
                client.handshake()
            tracemalloc.start()
            client.send(_request(PAYLOADS[name]))
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 1_000_000
            assert client.connection._failing is not None or client.transport.closed
        assert served.requests == []

    in_virtual_time(main())


def test_cve_2022_34917_the_size_of_a_sasl_message_is_checked_before_memory_is_allocated() -> None:
    async def main() -> None:
        client = Client(secure_listener(Served(), sasl=sasl_config()))
        client.handshake()
        tracemalloc.start()
        client.send(_request((_AUTHENTICATE, 1, struct.pack(">i", HUGE))))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000
        assert client.connection._failing is not None

    in_virtual_time(main())


@pytest.mark.parametrize("token", [b"\0alice\0alice-secret", WRONG, b"\0mallory\0wrong", b"\0alice\0" + b"x" * 1000])
def test_cve_2021_38153_passwords_are_compared_in_constant_time(token: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare_digest(a: Any, b: Any) -> bool:
        compared.append(bytes(a))
        return real(a, b)

    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", compare_digest)

    async def main() -> None:
        client = Client(secure_listener(Served(), sasl=sasl_config()))
        client.handshake()
        client.authenticate(token)
        assert compared == [token.split(b"\0")[2]]

    in_virtual_time(main())


def test_cve_2021_38153_proofs_of_scram_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare_digest(a: Any, b: Any) -> bool:
        compared.append(bytes(a))
        return real(a, b)

    real = hmac.compare_digest

    async def main() -> None:
        for user in (b"alice", b"mallory"):
            client = Client(secure_listener(Served(), sasl=sasl_config()))
            client.handshake("SCRAM-SHA-256")
            challenge = bytes(client.authenticate(b"n,,n=" + user + b",r=abc").auth_bytes)
            compared.clear()
            client.authenticate(b"c=biws," + challenge.split(b",")[0] + b",p=" + b"A" * 43 + b"=")
            assert len(compared) == 2  # the nonce and the key

    monkeypatch.setattr(hmac, "compare_digest", compare_digest)
    in_virtual_time(main())


def test_cve_2019_12399_messages_of_sasl_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        for token in (b"\0alice\0top-secret", b"top-secret", b"\0\0top-secret", b"n,,n=alice,r=top-secret"):
            for mechanism in ("PLAIN", "SCRAM-SHA-256"):
                client = Client(secure_listener(Served(), sasl=sasl_config()))
                client.handshake(mechanism)
                client.authenticate(token)

    with caplog.at_level(logging.DEBUG):
        in_virtual_time(main())
    assert caplog.records
    assert "top-secret" not in caplog.text
    assert not any("top-secret" in repr(vars(record)) for record in caplog.records)


def test_cve_2026_35554_memory_is_not_reused_while_a_request_refers_to_it() -> None:
    memory = ReceiveMemory(preallocated_bytes_max=0)
    first, second = (FrameBuffer(10_000_000, memory) for _ in range(2))

    def receive(frames: FrameBuffer, letter: bytes) -> Any:
        data = struct.pack(">i", 500_000) + letter * 500_000
        (frame,) = [frame for count in write_pieces(data, frames.target) for frame in frames.received(count)]
        return frame

    kept = memoryview(receive(first, b"a"))[1_000:2_000]
    other = receive(second, b"b")
    assert bytes(kept) == b"a" * 1_000
    assert bytes(other) == b"b" * 500_000


def test_the_right_password_still_authenticates() -> None:
    async def main() -> None:
        client = Client(secure_listener(Served(), sasl=sasl_config()))
        assert client.log_in().error_code == ErrorCode.NONE

    in_virtual_time(main())
