"""Shell: the HTTP pages of `barnabas serve --metrics URL`: the metrics for Prometheus, and pages for a supervisor:

    /metrics    or the path of the URL
    /livez      is the process alive? text
    /readyz     does the node give full service? JSON, with a reason for each part that does not
    /healthz    as /livez, with one line for each problem
    /version    the version, the node and the cluster; JSON

The node imports this module only if a metrics URL is configured.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from barnabas.core.config import ConfigError
from barnabas.core.telemetry import Metrics
from barnabas.core.telemetry.exposition import Exposition, building
from barnabas.core.telemetry.prometheus import CONTENT_TYPE
from barnabas.core.telemetry.table import NameFamily
from barnabas.protocol.transport.http.doors import host_name
from barnabas.protocol.transport.http.pages import Page, PageServer
from barnabas.server.node.health import Health

if TYPE_CHECKING:
    from barnabas.protocol.transport.http.security import HttpSecurity

HOST_NAME: Final = "host.name"
PREFIX: Final = "barnabas.metrics."
"""The settings of the pages begin with this."""
_LOOPBACK: Final = "127.0.0.1"
_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?:\[(?P<v6>[0-9a-fA-F:]+)\]|(?P<host>[^/:\[\]]*)):(?P<port>\d{1,5})(?P<path>/[^?#]*)?\Z"
)
LIVE_PATH: Final = "/livez"
READY_PATH: Final = "/readyz"
HEALTH_PATH: Final = "/healthz"
VERSION_PATH: Final = "/version"
_JSON: Final = "application/json"
_SLICE_S: Final = 0.002
"""For this time the page of metrics is built before other tasks of the event loop may run."""


class MetricsPages:
    """The pages of one node. The constructor binds the port. `health` returns the present state of the node, `about`
    what the page `/version` says. The settings in `configs` that begin with `barnabas.metrics.` give the pages TLS and
    users (`http/settings.py`)."""

    def __init__(
        self,
        url: str,
        metrics: Metrics,
        health: Callable[[], Health],
        *,
        about: Callable[[], Mapping[str, Any]] = dict,
        names: NameFamily = NameFamily.STRIMZI,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Raises ConfigError if `url` is not valid or the port cannot be bound."""
        match = _URL.match(url)
        if match is None or int(match["port"]) > 65_535:
            raise ConfigError(
                f"--metrics {url}: write http://HOST:PORT[/PATH], for example http://127.0.0.1:9404/metrics"
            )
        path = match["path"] or ""
        self._path = path if path.strip("/") else "/metrics"
        if self._path in (LIVE_PATH, READY_PATH, HEALTH_PATH, VERSION_PATH):
            raise ConfigError(
                f"--metrics {url}: {self._path} is the path of another page; choose another path for the metrics"
            )
        self._metrics = metrics
        self._health = health
        self._about = about
        self._names = names
        self._last_build_s = 0.0
        self._scheme = match["scheme"]
        host = match["v6"] or match["host"] or _LOOPBACK
        try:
            security = _security(configs or {}, is_https=self._scheme == "https")
        except ConfigError as error:
            raise ConfigError(f"--metrics {url}: {error} The settings of this server begin with {PREFIX}") from error
        self._server = PageServer(
            host,
            int(match["port"]),
            {self._path: self._metrics_page, VERSION_PATH: self._version_page},
            probes={LIVE_PATH: self._live_page, READY_PATH: self._ready_page, HEALTH_PATH: self._health_page},
            security=security,
            names=_own_names(configs or {}),
        )
        try:
            self._server.bind()
        except OSError as error:
            raise ConfigError(f"--metrics {url}: {error.strerror or error}. Choose another port (0: any).") from error
        self.run = self._server.serve
        self.close = self._server.close

    @property
    def url(self) -> str:
        """The URL of the metrics page, with the bound port."""
        host = self._server.host
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{self._server.port}{self._path}"

    async def _metrics_page(self) -> Page:
        page, clock = Exposition(self._names), time.perf_counter
        began = turn = clock()
        page.family("barnabas_metrics_build_seconds").add(round(self._last_build_s, 6))
        for _ in building(self._metrics, page):
            if clock() - turn >= _SLICE_S:
                await asyncio.sleep(0)
                turn = clock()
        pieces: list[bytes] = []
        for piece in page.pieces():
            pieces.append(piece)
            if clock() - turn >= _SLICE_S:
                await asyncio.sleep(0)
                turn = clock()
        self._last_build_s = clock() - began
        return Page(b"".join(pieces), content_type=CONTENT_TYPE)

    def _live_page(self) -> Page:
        health = self._health()
        return Page("ok\n", 200) if health.alive else _lines(health, 503)

    def _health_page(self) -> Page:
        health = self._health()
        return _lines(health, 200 if health.alive else 503)

    def _ready_page(self) -> Page:
        health = self._health()
        parts = {part.name: {"ready": part.ready, "reasons": part.reasons} for part in health.parts}
        body = {"ready": health.ready, "parts": parts}
        return Page(_json(body), 200 if health.ready else 503, _JSON)

    def _version_page(self) -> Page:
        return Page(_json(self._about()), content_type=_JSON)


def _own_names(configs: Mapping[str, str]) -> list[str]:
    """The names by which clients reach this node: those that it advertises, and those of its pages."""
    listed = f"{configs.get('listeners', '')},{configs.get('advertised.listeners', '')}"
    hosts = [host_name(part.partition("://")[2]) for part in listed.split(",")]
    return hosts + [name.strip() for name in configs.get(f"{PREFIX}{HOST_NAME}", "").split(",")]


def _security(configs: Mapping[str, str], *, is_https: bool) -> HttpSecurity | None:
    """None if everybody may read the pages, without TLS. Raises ConfigError."""
    own = (f"{PREFIX}ssl.", f"{PREFIX}authentication.")
    if not is_https and not any(name.startswith(own) for name in configs):
        return None
    from barnabas.protocol.transport.http.security import HttpSecurity
    from barnabas.protocol.transport.http.settings import read_http_security

    return HttpSecurity(read_http_security(configs, is_https=is_https, prefix=PREFIX), time.monotonic)


def _lines(health: Health, status: int) -> Page:
    return Page("".join(f"{line}\n" for line in health.problems) or "ok\n", status)


def _json(body: Mapping[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode() + "\n"
