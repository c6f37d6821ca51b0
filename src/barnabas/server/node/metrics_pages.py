"""Shell: what `barnabas serve --metrics URL` shows: the metrics for Prometheus, and `/healthz` for whoever restarts us.

Imported only when it is asked for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.core.config import ConfigError
from barnabas.core.telemetry.prometheus import CONTENT_TYPE, render
from barnabas.protocol.transport.pages import Page, PageServer

if TYPE_CHECKING:
    from barnabas.server.node.server import Node

_URL: Final = re.compile(
    r"http://(?:\[(?P<v6>[0-9a-fA-F:]+)\]|(?P<host>[^/:\[\]]*)):(?P<port>\d{1,5})(?P<path>/[^?#]*)?\Z"
)
HEALTH_PATH: Final = "/healthz"


class MetricsPages:
    """The pages of one node. The port is taken at once. Raises ConfigError."""

    def __init__(self, url: str, node: Node) -> None:
        match = _URL.match(url)
        if match is None or int(match["port"]) > 65_535:
            raise ConfigError(
                f"--metrics {url}: write http://HOST:PORT[/PATH], for example http://127.0.0.1:9404/metrics"
            )
        path = match["path"] or ""
        self._path = path if path.strip("/") else "/metrics"
        if self._path == HEALTH_PATH:
            raise ConfigError(f"--metrics {url}: {HEALTH_PATH} is taken; give the metrics another path")
        self._node = node
        host = match["v6"] or match["host"]
        self._server = PageServer(host, int(match["port"]), {self._path: self._metrics, HEALTH_PATH: self._health})
        try:
            self._server.bind()
        except OSError as error:
            raise ConfigError(f"--metrics {url}: {error.strerror or error}. Choose another port (0: any).") from error
        self.run = self._server.serve
        self.close = self._server.close

    @property
    def url(self) -> str:
        """Where the metrics are, the port filled in."""
        host = self._server.host or "127.0.0.1"
        return f"http://{f'[{host}]' if ':' in host else host}:{self._server.port}{self._path}"

    def _metrics(self) -> Page:
        return Page(render(self._node.metrics), content_type=CONTENT_TYPE)

    def _health(self) -> Page:
        trouble = self._node.trouble()
        return Page("".join(f"{line}\n" for line in trouble), 503) if trouble else Page("ok\n")
