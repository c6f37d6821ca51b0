"""Whatever a client sends before it has authenticated: no exception, no request is served, and nothing is held.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import struct

from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.transport.secure_connection import AUTHENTICATION_S
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.unit.protocol.transport.secure_listeners import Client, Served, sasl_config, secure_listener, tls_acceptor
from tests.unit.protocol.transport.test_transport_muting import in_virtual_time

_WORDS = [b"n,,", b"n=", b"alice", b",", b"r=", b"=2C", b"\0", b"p=", b"c=biws", b"tokenauth=true"]
_TOKENS = (
    st.binary(max_size=60)
    | st.sampled_from([b"\0alice\0wrong", b"n,,n=alice,r=abc", b"n,,n=mallory,r=abc,x=y", b"c=biws,r=abc,p=AAAA"])
    | st.lists(st.sampled_from(_WORDS)).map(b"".join)
)
_REQUESTS = st.one_of(
    st.builds(lambda v: (ApiVersionsRequest(), v), st.sampled_from([0, 2])),
    st.builds(
        lambda m, v: (SaslHandshakeRequest(mechanism=m), v),
        st.sampled_from(["PLAIN", "SCRAM-SHA-256", "GSSAPI"]),
        st.sampled_from([0, 1]),
    ),
    st.builds(lambda t, v: (SaslAuthenticateRequest(auth_bytes=t), v), _TOKENS, st.sampled_from([0, 1, 2])),
    st.just((MetadataRequest(topics=[]), 9)),
)
_RAW = st.binary(max_size=40) | _TOKENS.map(lambda token: struct.pack(">i", len(token)) + token)
_STEPS = st.lists(_REQUESTS | _RAW, min_size=1, max_size=6)
_CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3)


def _data(client: Client, steps: list[object], changes: list[tuple[int, int]]) -> bytes:
    parts = [step if isinstance(step, bytes) else client.frame(*step) for step in steps]  # type: ignore[misc]
    data = bytearray(b"".join(parts))
    for place, value in changes:
        if data:
            data[place % len(data)] = value
    return bytes(data)


@given(_STEPS, _CHANGES, st.integers(1, 50))
def test_a_client_without_a_password_is_not_served(
    steps: list[object], changes: list[tuple[int, int]], piece: int
) -> None:
    async def main() -> None:
        served = Served()
        listener = secure_listener(served, sasl=sasl_config())
        client = Client(listener)
        data = _data(client, steps, changes)
        for start in range(0, len(data), piece):
            client.send(data[start : start + piece])
            await asyncio.sleep(0)
        await asyncio.sleep(AUTHENTICATION_S + 1)
        assert client.transport.closed
        client.connection.connection_lost(None)
        assert {(key, user) for key, user in served.requests} <= {(ApiKey.API_VERSIONS, "ANONYMOUS")}
        assert len(client.connection._shared.unauthenticated) == 0
        assert client.connection._shared.unauthenticated.held_bytes == 0

    in_virtual_time(main())


@given(_STEPS, _CHANGES, st.sampled_from([b"", b"\x16\x03\x01", b"\x15\x03\x03\x00\x02", b"\x17\x03\x03"]))
def test_garbage_instead_of_a_tls_handshake_ends_the_connection(
    steps: list[object], changes: list[tuple[int, int]], head: bytes
) -> None:
    async def main() -> None:
        served = Served()
        client = Client(secure_listener(served, sasl=sasl_config(), tls=_TLS))
        client.send(head + _data(client, steps, changes))
        await asyncio.sleep(AUTHENTICATION_S)
        assert client.transport.closed
        assert served.requests == []

    in_virtual_time(main())


_TLS = tls_acceptor()
