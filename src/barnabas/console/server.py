"""Shell: a running console: the application behind uvicorn, in a process of its own or inside a broker's.

server = ConsoleServer(ConsoleSettings({"bootstrap.servers": "localhost:9092"}))
await server.run()            # until `stop`
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import uvicorn

from barnabas.console.errors import ConsoleError
from barnabas.console.settings import ConsoleSettings
from barnabas.console.web.app import ConsoleApp
from barnabas.console.web.guarded_protocol import guarded_protocol
from barnabas.core.addresses import is_loopback
from barnabas.protocol.transport.http_slots import HttpSlots

DEFAULT_PORT = 8090
_CONNECTIONS_MAX = 500
_CONNECTIONS_OF_ADDRESS_MAX = 125
_SHUTDOWN_S = 3


class _Server(uvicorn.Server):
    """Leaves the signals to the program, which may run a broker as well, and says when it has started."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ConsoleServer:
    """Raises ConsoleError if the settings do not fit: a listener that other hosts can reach needs a login."""

    def __init__(self, settings: ConsoleSettings) -> None:
        host, port = parse_listener(settings.listener)
        if not is_loopback(host) and settings.users_file is None:
            raise ConsoleError(
                f"Other hosts could reach the console at {settings.listener}, and it has no login. Let it listen on"
                " 127.0.0.1, or give --users-file (`barnabas console add-user` writes one)."
            )
        if (settings.certificate is None) != (settings.key is None):
            raise ConsoleError("TLS needs both --certificate and --key.")
        self.settings = settings
        self.app = ConsoleApp(settings)
        self._host, self._port = host, port
        self._server: _Server | None = None
        self._is_stopped = False

    @property
    def url(self) -> str:
        """The URL for a browser; the port is known when `run` calls `on_ready`."""
        scheme = "http" if self.settings.certificate is None else "https"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self._port}"

    def stop(self) -> None:
        """Make `run` return. Must be called on the server's event loop."""
        self._is_stopped = True
        if self._server is not None:
            self._server.should_exit = True

    async def run(self, on_ready: Callable[[ConsoleServer], None] | None = None) -> None:
        """Serve until `stop`. Raises ConsoleError if the address cannot be bound."""
        config = uvicorn.Config(
            self.app.app,
            log_config=None,
            access_log=False,
            lifespan="on",
            http=guarded_protocol(HttpSlots(_CONNECTIONS_MAX, _CONNECTIONS_OF_ADDRESS_MAX)),
            ws="none",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            ssl_certfile=self.settings.certificate,
            ssl_keyfile=self.settings.key,
        )
        with self._bound() as listening:
            self._port = listening.getsockname()[1]
            server = self._server = _Server(config, lambda: None if on_ready is None else on_ready(self))
            server.should_exit = self._is_stopped
            try:
                await server.serve(sockets=[listening])
            except SystemExit as error:  # uvicorn's way to say that the application did not start
                raise ConsoleError("The console did not start; its log says why.") from error

    @contextlib.contextmanager
    def _bound(self) -> Iterator[socket.socket]:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        with socket.socket(family) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((self._host, self._port))
            except OSError as error:
                raise ConsoleError(
                    f"The console cannot listen at {self.url}: {error.strerror or error}. Choose another --port, or 0"
                    " for any free port."
                ) from error
            yield listening


def parse_listener(listener: str) -> tuple[str, int]:
    """(host, port) of `http://host:port`. Raises ConsoleError."""
    try:
        parts = urlsplit(listener)
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError
        return parts.hostname, parts.port if parts.port is not None else DEFAULT_PORT
    except ValueError:
        raise ConsoleError(f"{listener!r} is not a listener: write http://127.0.0.1:{DEFAULT_PORT}.") from None
