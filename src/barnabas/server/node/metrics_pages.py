"""Shell: the HTTP pages of `barnabas serve --metrics URL`: the metrics for Prometheus, and two pages for a supervisor:
`/healthz` (is the process alive?) and `/readyz` (does the node give full service?).

The node imports this module only if a metrics URL is configured.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from barnabas.core.config import ConfigError
from barnabas.core.telemetry import Metrics
from barnabas.core.telemetry.prometheus import CONTENT_TYPE, render
from barnabas.protocol.transport.pages import Page, PageServer
from barnabas.server.node.health import Health

_URL: Final = re.compile(
    r"http://(?:\[(?P<v6>[0-9a-fA-F:]+)\]|(?P<host>[^/:\[\]]*)):(?P<port>\d{1,5})(?P<path>/[^?#]*)?\Z"
)
HEALTH_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"


class MetricsPages:
    """The pages of one node. The constructor binds the port. `health` returns the present state of the node."""

    def __init__(self, url: str, metrics: Metrics, health: Callable[[], Health]) -> None:
        """Raises ConfigError if `url` is not valid or the port cannot be bound."""
        match = _URL.match(url)
        if match is None or int(match["port"]) > 65_535:
            raise ConfigError(
                f"--metrics {url}: write http://HOST:PORT[/PATH], for example http://127.0.0.1:9404/metrics"
            )
        path = match["path"] or ""
        self._path = path if path.strip("/") else "/metrics"
        if self._path in (HEALTH_PATH, READY_PATH):
            raise ConfigError(
                f"--metrics {url}: {self._path} is the path of a health page; choose another path for the metrics"
            )
        self._metrics = metrics
        self._health = health
        host = match["v6"] or match["host"]
        self._server = PageServer(
            host,
            int(match["port"]),
            {self._path: self._metrics_page, HEALTH_PATH: self._health_page, READY_PATH: self._ready_page},
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
        host = self._server.host or "127.0.0.1"
        return f"http://{f'[{host}]' if ':' in host else host}:{self._server.port}{self._path}"

    def _metrics_page(self) -> Page:
        return Page(render(self._metrics), content_type=CONTENT_TYPE)

    def _health_page(self) -> Page:
        health = self._health()
        return _page(health, 200 if health.alive else 503)

    def _ready_page(self) -> Page:
        health = self._health()
        return _page(health, 503 if health.problems else 200)


def _page(health: Health, status: int) -> Page:
    return Page("".join(f"{line}\n" for line in health.problems) or "ok\n", status)
