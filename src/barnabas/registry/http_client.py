"""Shell: a client for JSON over HTTP/1.1 with one persistent connection, which sends one request at a time."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import h11

from barnabas.client.errors import ClientClosedError
from barnabas.core.errors import BarnabasError
from barnabas.registry.errors import RegistryError

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 65_536


class RegistryUnreachableError(BarnabasError):
    """None of the registry's addresses answered."""


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of one registry URL."""

    host: str
    port: int
    tls: bool
    path: str
    credentials: str | None = field(default=None, repr=False)


def parse_urls(urls: str | Sequence[str]) -> tuple[Address, ...]:
    """Parse `http://[user:password@]host[:port][/path]`; several URLs as a list or separated by commas. Raises
    ValueError.
    """
    texts = [text.strip() for text in (urls.split(",") if isinstance(urls, str) else urls) if text.strip()]
    addresses = []
    for text in texts:
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{text!r} is not a registry URL: write http://host:port.")
        tls = parts.scheme == "https"
        credentials = None
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        port = parts.port or (443 if tls else 80)
        addresses.append(Address(parts.hostname, port, tls, parts.path.rstrip("/"), credentials))
    if not addresses:
        raise ValueError("No registry URL was given: write http://host:port.")
    return tuple(addresses)


class HttpClient:
    """Sends requests to the first address that answers, and keeps using that address."""

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        basic_auth: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_ms: float = 10_000,
    ) -> None:
        self._addresses = list(parse_urls(urls))
        self._credentials = None if basic_auth is None else ":".join(basic_auth)
        self._tls = tls
        self._timeout_s = timeout_ms / 1000
        self._closed = False
        self._request_lock = asyncio.Lock()
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter, h11.Connection] | None = None

    async def close(self) -> None:
        self._closed = True
        self._drop()

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the JSON document of the response.

        Raises RegistryError for an error response, and RegistryUnreachableError if no address answers.
        """
        if self._closed:
            raise ClientClosedError("This registry client")
        async with self._request_lock:
            status, data = await self._request_any_address(
                method, path, None if body is None else json.dumps(body).encode()
            )
        try:
            document = json.loads(data) if data else {}
        except ValueError:
            document = {}
        if status < 300:
            return document
        known = document if isinstance(document, dict) else {}
        raise RegistryError(known.get("error_code", status), known.get("message", f"The registry answered {status}."))

    async def _request_any_address(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        failures: list[str] = []
        for _ in range(len(self._addresses)):
            address = self._addresses[0]
            reused = self._connection is not None
            try:
                async with asyncio.timeout(self._timeout_s):
                    try:
                        return await self._exchange(address, method, path, body)
                    except (OSError, EOFError, h11.RemoteProtocolError):
                        self._drop()
                        if not reused:  # the registry may have closed the kept connection: retry once on a new one
                            raise
                        return await self._exchange(address, method, path, body)
            except (OSError, EOFError, h11.RemoteProtocolError, TimeoutError) as error:
                self._drop()
                reason = (
                    f"no response within {self._timeout_s:g} s"
                    if isinstance(error, TimeoutError)
                    else str(error) or repr(error)
                )
                failures.append(f"{address.host}:{address.port}: {reason}")
                self._addresses.append(self._addresses.pop(0))
            except BaseException:  # cancellation, too: the rest of the response would be read by the next request
                self._drop()
                raise
        raise RegistryUnreachableError(
            f"No schema registry answers ({'; '.join(failures)}). Check the address, and that the registry is running."
        )

    async def _exchange(self, address: Address, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        reader, writer, protocol = self._connection or await self._connect(address)
        headers = [("Host", f"{address.host}:{address.port}"), ("Accept", f"{CONTENT_TYPE}, application/json")]
        credentials = self._credentials or address.credentials
        if credentials is not None:
            headers.append(("Authorization", f"Basic {base64.b64encode(credentials.encode()).decode()}"))
        if body is not None:
            headers += [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(body)))]
        target = address.path + path
        events = [
            h11.Request(method=method, target=target, headers=headers),
            h11.Data(data=body or b""),
            h11.EndOfMessage(),
        ]
        writer.writelines([protocol.send(event) or b"" for event in events])
        status, data = await _read_response(reader, protocol)
        if protocol.our_state is h11.DONE and protocol.their_state is h11.DONE:
            protocol.start_next_cycle()
        else:
            self._drop()
        return status, data

    async def _connect(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, h11.Connection]:
        tls = (self._tls or ssl.create_default_context()) if address.tls else None
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
        self._connection = reader, writer, h11.Connection(h11.CLIENT)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection[1].close()


async def _read_response(reader: asyncio.StreamReader, protocol: h11.Connection) -> tuple[int, bytes]:
    status = 0
    parts: list[bytes] = []
    size = 0
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(_READ_BYTES)
            if not data and protocol.their_state is h11.SEND_RESPONSE:
                raise EOFError("the connection was closed before the response was complete")
            protocol.receive_data(data)
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            size += len(event.data)
            if size > _RESPONSE_BYTES_MAX:
                raise EOFError(f"the response is larger than {_RESPONSE_BYTES_MAX} bytes")
            parts.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            return status, b"".join(parts)
