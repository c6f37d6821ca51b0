"""Shell: pushes the metrics of a node to a receiver of OpenTelemetry's protocol (OTLP over HTTP, in protobuf).

The metrics are those of the page for Prometheus, with the same names and labels. A push that fails is logged and not
repeated: counters lose nothing, because the next push has their sums. The node imports this module only if
`barnabas.metrics.otlp.endpoint` is set.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from barnabas.core.config import ConfigError
from barnabas.core.telemetry import Metrics, get_logger
from barnabas.core.telemetry.exposition import Exposition, building
from barnabas.core.telemetry.otlp import Times, encode_page, encode_request
from barnabas.core.telemetry.table import NameFamily
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.transport.blocking_calls import run_beside
from barnabas.protocol.transport.tls import build_tls_context

if TYPE_CHECKING:
    from barnabas.server.node.config import NodeConfig

log = get_logger("barnabas.server.node.metrics")

REQUEST_BYTES_MAX: Final = 1024 * 1024
"""A page with more bytes is divided among several requests."""
_ENDPOINT: Final = "barnabas.metrics.otlp.endpoint"
_HEADERS: Final = "barnabas.metrics.otlp.headers"
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of HTTP (RFC 9110)."""
_TIMEOUT_S: Final = 5.0
_SLICE_S: Final = 0.002
_COUNTER: Final = "barnabas_otlp_pushes_total"


class OtlpPush:
    """Pushes in intervals, while its task `run` runs. `about` has the labels of the node."""

    def __init__(self, config: NodeConfig, metrics: Metrics, about: Callable[[], Mapping[str, str]]) -> None:
        """Raises ConfigError if a setting cannot be used."""
        self._receiver = Receiver(config[_ENDPOINT], parse_headers(config[_HEADERS]))
        self._names = NameFamily(config["barnabas.metrics.names"])
        self._interval_s = config["barnabas.metrics.otlp.interval.ms"] / 1000
        self._metrics = metrics
        self._about = about
        self._started_ns = time.time_ns()

    async def run(self) -> None:
        """Push until the task is cancelled. The first push follows after one interval."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.push()

    async def push(self) -> None:
        """Push once."""
        requests = await self._requests()
        try:
            for request in requests:
                await run_beside(self._receiver.post, request)
        except (OSError, http.client.HTTPException) as error:
            self._metrics.counter(_COUNTER, result="failed").add()
            log.warning("metrics could not be pushed", url=self._receiver.url, reason=str(error) or repr(error))
        else:
            self._metrics.counter(_COUNTER, result="ok").add()

    async def _requests(self) -> list[bytes]:
        """The page in requests of about REQUEST_BYTES_MAX. Other tasks run while it is built."""
        page, size = Exposition(self._names), 0
        requests: list[bytes] = []
        some: list[bytes] = []
        await _in_slices(building(self._metrics, page))
        labels = self._about()
        resource = {
            "service.name": "barnabas",
            "service.version": labels["version"],
            "service.instance.id": f"{labels['cluster_id']}/{labels['node_id']}",
        }
        turn = time.perf_counter()
        for metric in encode_page(page, Times(self._started_ns, time.time_ns())):
            some.append(metric)
            size += len(metric)
            if size >= REQUEST_BYTES_MAX:
                requests.append(encode_request(resource, some))
                some, size = [], 0
            if time.perf_counter() - turn >= _SLICE_S:
                await asyncio.sleep(0)
                turn = time.perf_counter()
        return [*requests, encode_request(resource, some)]


async def _in_slices(work: Iterator[Any]) -> None:
    turn = time.perf_counter()
    for _ in work:
        if time.perf_counter() - turn >= _SLICE_S:
            await asyncio.sleep(0)
            turn = time.perf_counter()


class Receiver:
    """A receiver of OTLP at a URL. `post` blocks, so call it in a thread."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """Raises ConfigError if the URL cannot be used."""
        self.url = url
        try:
            parts = urlsplit(url)
            host, self._port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigError(f"{_ENDPOINT}={url}: {error}") from error
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ConfigError(f"{_ENDPOINT}={url}: a URL has neither spaces nor characters outside of ASCII")
        if parts.scheme not in ("http", "https") or not host or parts.username is not None:
            raise ConfigError(
                f"{_ENDPOINT}={url}: write http://HOST:PORT/v1/metrics or https://..., and a login in {_HEADERS}"
            )
        self._host = host
        self._target = (parts.path or "/v1/metrics") + (f"?{parts.query}" if parts.query else "")
        self._context = build_tls_context(TlsConfig()) if parts.scheme == "https" else None
        self._headers = {**headers, "Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}

    def post(self, body: bytes) -> None:
        """Send one request. Raises OSError or HTTPException, also if the receiver rejects the request."""
        connection: http.client.HTTPConnection
        if self._context is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_S, context=self._context)
        try:
            connection.request("POST", self._target, gzip.compress(body, 1), self._headers)
            response = connection.getresponse()
            reason = response.read(1000)
        finally:
            connection.close()
        if response.status // 100 != 2:
            raise OSError(f"HTTP status {response.status} {reason[:200].decode(errors='replace')}".rstrip())


def parse_headers(text: str | None) -> dict[str, str]:
    """The headers in `name=value,name=value`. Raises ConfigError."""
    found: dict[str, str] = {}
    for pair in (text or "").split(","):
        name, sign, value = pair.partition("=")
        if not pair.strip():
            continue
        name, value = name.strip(), value.strip()
        if not sign or not _HEADER_NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise ConfigError(f"{_HEADERS}: write name=value,name=value, in printable characters of ASCII")
        found[name] = value
    return found
