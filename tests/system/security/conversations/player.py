"""Shell: plays a conversation of the table over a socket, and writes down what the broker does.

A step is a verb and its arguments. `|` stands for NUL in a token.

    versions V | versions-invalid | -99    ApiVersions                                   -> versions CODE
    handshake MECHANISM V                  SaslHandshake                                 -> handshake CODE MECHANISMS
    token V TEXT | token-hex V HEX         SaslAuthenticate                              -> ok | challenge | CODE TEXT
    first V [CHANGE] | final V [CHANGE]    the messages of SCRAM, perhaps changed        -> the same
    raw TEXT | raw-first | raw-final       a token without headers                       -> raw BYTES
    user NAME PASSWORD MECHANISM           the user of the next messages of SCRAM
    metadata | large | request KEY V       other requests                                -> served | CODE | closed
    bytes HEX | ahead STEP; STEP           bytes; several requests before any answer
    wait SECONDS | add NAME | remove NAME | again (another connection)
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.config import SaslConfig
from barnabas.protocol.security.sasl_client import SaslClient, sasl_client
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.wire.schema import Request

NONCE: Final = b"the same nonce each time"
CLOSED: Final = "closed"
_ANSWER_S: Final = 10.0
ChangeUser = Callable[[str, bool], Awaitable[None]]
"""Gives a user of this name a SCRAM-SHA-256 credential with the password NAME-secret, or removes it."""


class Conversation:
    """One conversation with the listener at `address`."""

    def __init__(self, address: str, change_user: ChangeUser) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._change_user = change_user
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._wire = ClientConnection("conversation")
        self._user = ("alice", "alice-secret", "SCRAM-SHA-256")
        self._exchange: SaslClient | None = None
        self._challenge = b""
        self._last_final = b""

    async def play(self, steps: tuple[str, ...]) -> list[str]:
        """What the broker did after each step."""
        await self._connect()
        seen = []
        try:
            for step in steps:
                result: str | None = "silence"
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ANSWER_S):
                        result = await self._step(step)
                if result is not None:
                    seen.append(result)
        finally:
            self._writer.close()
        return seen

    async def _connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        self._wire = ClientConnection("conversation")

    async def _step(self, step: str) -> str | None:
        verb, _, rest = step.partition(" ")
        try:
            match verb:
                case "user":
                    name, password, mechanism = rest.split(" ")
                    self._user = name, password, mechanism
                    return None
                case "wait":
                    await asyncio.sleep(float(rest))  # a line of the script
                    return None
                case "add" | "remove":
                    await self._change_user(rest, verb == "add")
                    return None
                case "again":
                    self._writer.close()
                    await self._connect()
                    return None
                case "bytes":
                    return await self._bytes(bytes.fromhex(rest))
                case "raw" | "raw-first" | "raw-final":
                    return await self._raw(self._token(verb.partition("-")[2], rest))
                case "ahead":
                    return await self._ahead(rest.split("; "))
                case "versions-99":
                    return await self._unsupported_versions()
                case "request":
                    return await self._unparsed(*map(int, rest.split(" ")))
            return self._describe(verb, await self._ask(*self._request(verb, rest)))
        except (EOFError, ConnectionError):
            return CLOSED
        except WireError as error:
            return f"unexpected: {error}"

    # ---- what is sent

    def _request(self, verb: str, rest: str) -> tuple[Request, int]:
        match verb:
            case "versions":
                named = {"client_software_name": "test", "client_software_version": "1"} if int(rest) >= 3 else {}
                return ApiVersionsRequest(**named), int(rest)
            case "versions-invalid":
                return ApiVersionsRequest(client_software_name="not valid!", client_software_version="1"), 3
            case "handshake":
                mechanism, _, version = rest.rpartition(" ")
                return SaslHandshakeRequest(mechanism=mechanism), int(version)
            case "token" | "token-hex" | "first" | "final":
                version, _, rest = rest.partition(" ")
                kind = "hex" if verb == "token-hex" else verb.removeprefix("token")
                return SaslAuthenticateRequest(auth_bytes=self._token(kind, rest)), int(version)
            case "metadata":
                return MetadataRequest(topics=[]), 9
            case "large":
                return MetadataRequest(topics=[MetadataRequestTopic(name="x" * 249)] * 2_500), 9
        raise AssertionError(verb)

    def _token(self, kind: str, rest: str) -> bytes:
        if kind == "hex":
            return bytes.fromhex(rest)
        if kind == "first":
            return self._first(rest)
        if kind == "final":
            return self._final(rest)
        return rest.replace("|", "\0").encode()

    def _first(self, change: str) -> bytes:
        name, password, mechanism = self._user
        self._challenge = b""
        self._exchange = sasl_client(SaslConfig(mechanism, name, password), NONCE)
        return change.replace("|", "\0").encode() if change else self._exchange.first()

    def _final(self, change: str) -> bytes:
        assert self._exchange is not None
        if change == "replayed":
            return self._last_final
        if not self._challenge:
            return b"no challenge has come"
        final = self._exchange.next(self._challenge).decode()
        self._last_final = final.encode()
        unproved, _, proof = final.partition(",p=")
        binding, _, nonce = unproved.partition(",r=")
        own = self._challenge.decode().partition(",")[0][2:][: len(nonce) - 10]
        changes = {
            "": final,
            "other-nonce": final.replace(",r=", ",r=x"),
            "short-nonce": f"{binding},r={nonce[:-4]},p={proof}",
            "own-nonce": f"{binding},r={own},p={proof}",
            "no-proof": unproved,
            "empty-proof": f"{unproved},p=",
            "short-proof": f"{unproved},p=AAAA",
            "zero-proof": f"{unproved},p={'A' * 43}=",
            "not-base64": f"{unproved},p=***",
            "binding": final.replace("c=biws", "c=eSws"),
            "extension": f"{unproved},x=y,p={proof}",
            "first": self._exchange.first().decode(),
        }
        return changes[change].encode()

    async def _ask(self, message: Request, version: int) -> Any:
        _, parts = self._wire.send(message, version, expect_response=True)
        await self._send(b"".join(bytes(part) for part in parts))
        return self._wire.read(await self._frame())[1]

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def _frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def _bytes(self, data: bytes) -> str:
        """Bytes that are no request: the broker closes the connection, or waits for more of them."""
        await self._send(data)
        try:
            async with asyncio.timeout(1.0):
                return CLOSED if not await self._reader.read(1) else "answered"
        except TimeoutError:
            return "open"

    async def _raw(self, token: bytes) -> str:
        await self._send(struct.pack(">i", len(token)) + token)
        self._challenge = await self._frame()
        return f"raw {'challenge' if self._challenge.startswith(b'r=') else len(self._challenge)}"

    async def _ahead(self, steps: list[str]) -> str:
        """Several requests at once, and then their answers."""
        requests = [(step.partition(" ")[0], self._request(*step.partition(" ")[::2])) for step in steps]
        frames = [self._wire.send(*request, expect_response=True)[1] for _, request in requests]
        await self._send(b"".join(bytes(part) for parts in frames for part in parts))
        seen = []
        try:
            for verb, _ in requests:
                seen.append(self._describe(verb, self._wire.read(await self._frame())[1]))
        except (EOFError, ConnectionError):
            seen.append(CLOSED)
        return "; ".join(seen)

    async def _unsupported_versions(self) -> str:
        """ApiVersions in a version that no broker knows: the answer is that of version 0."""
        frame = struct.pack(">hhih", 18, 99, 1, -1) + bytes(4)
        await self._send(struct.pack(">i", len(frame)) + frame)
        (code,) = struct.unpack_from(">h", await self._frame(), 4)
        return f"versions {code}"

    async def _unparsed(self, key: int, version: int) -> str:
        """A request with an empty body; of a response, the first error code is read."""
        frame = struct.pack(">hhih", key, version, 1, -1)
        await self._send(struct.pack(">i", len(frame)) + frame)
        response = await self._frame()
        return f"answered {len(response)}"

    # ---- what comes back

    def _describe(self, verb: str, response: Any) -> str:
        code = getattr(response, "error_code", None)
        if verb.startswith("versions"):
            return f"versions {code}"
        if verb == "handshake":
            return f"handshake {code} {','.join(sorted(response.mechanisms))}".rstrip()
        if verb in ("metadata", "large"):
            return "served" if response.brokers else "not served"
        if code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            return f"{code} {response.error_message}"
        if code:
            return str(code)
        token = bytes(response.auth_bytes)
        if token.startswith(b"r="):
            self._challenge = token
            return "challenge"
        if token:
            assert self._exchange is not None
            try:
                self._exchange.verify(token)
            except WireError as error:
                return str(error)
        lifetime = response.session_lifetime_ms
        return f"ok, session of {lifetime} ms" if lifetime else "ok"
