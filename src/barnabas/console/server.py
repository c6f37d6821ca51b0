"""Shell: a running console: the application behind uvicorn, in a process of its own or inside a broker's.

server = ConsoleServer(ConsoleSettings({"bootstrap.servers": "localhost:9092"}))
await server.run()            # until `stop`
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from barnabas.console.errors import ConsoleError
from barnabas.console.settings import ConsoleSettings
from barnabas.console.web.app import ConsoleApp
from barnabas.core.addresses import is_loopback
from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.transport.http.security import HttpSecurity
from barnabas.protocol.transport.http.server import HttpLimits, HttpServer
from barnabas.protocol.transport.http.settings import HttpSecurityConfig, HttpTlsConfig

DEFAULT_PORT = 8090
_CONNECTIONS: Final = HttpLimits(total=500, of_address=125)


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
        try:
            self.app = ConsoleApp(settings)
            security = _security(settings)
        except ConfigError as error:
            raise ConsoleError(str(error)) from error
        self._http = HttpServer(host, port, self.app.app, security=security, limits=_CONNECTIONS)

    @property
    def url(self) -> str:
        """The URL for a browser; the port is known when `run` calls `on_ready`."""
        return self._http.url

    def stop(self) -> None:
        """Make `run` return. Must be called on the server's event loop."""
        self._http.stop()

    async def run(self, on_ready: Callable[[ConsoleServer], None] | None = None) -> None:
        """Serve until `stop`. Raises ConsoleError if the address cannot be bound."""
        try:
            await self._http.bind()
        except OSError as error:
            raise ConsoleError(
                f"The console cannot listen at {self.url}: {error.strerror or error}. Choose another --port, or 0"
                " for any free port."
            ) from error
        try:
            async with self.app.running():
                if on_ready is not None:
                    on_ready(self)
                await self._http.serve()
        finally:
            self._http.close()


def _security(settings: ConsoleSettings) -> HttpSecurity | None:
    """The TLS of the console; its login is in its pages."""
    if settings.certificate is None:
        return None
    tls = TlsConfig(ssl_certificate_location=str(settings.certificate), ssl_key_location=str(settings.key))
    return HttpSecurity(HttpSecurityConfig(HttpTlsConfig(tls, "none")), time.monotonic)


def parse_listener(listener: str) -> tuple[str, int]:
    """(host, port) of `http://host:port`. Raises ConsoleError."""
    try:
        parts = urlsplit(listener)
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError
        return parts.hostname, parts.port if parts.port is not None else DEFAULT_PORT
    except ValueError:
        raise ConsoleError(f"{listener!r} is not a listener: write http://127.0.0.1:{DEFAULT_PORT}.") from None
