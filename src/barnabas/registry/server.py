"""Shell: a running registry: its topic, its state, and its HTTP API.

server = RegistryServer({"bootstrap.servers": "localhost:9092"}, listener="http://127.0.0.1:8081")
await server.run()            # until `stop`
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.http.doors import require_login
from barnabas.protocol.transport.http.server import HttpListenerError, http_api, parse_http_listener
from barnabas.registry.api.app import RegistryApp
from barnabas.registry.errors import RegistryError
from barnabas.registry.schema_log import DEFAULT_TOPIC, KafkaSchemaLog
from barnabas.registry.security import HOST_NAME, build_security
from barnabas.registry.service import Registry

log = get_logger("barnabas.registry")

DEFAULT_LISTENER: Final = "http://127.0.0.1:8081"
FOLLOW_INTERVAL_S: Final = 5.0
"""How often the registry reads the topic without a request, so that a request finds few new records."""


class RegistryServer:
    """A schema registry server, in a process of its own or inside a broker's process."""

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        listener: str = DEFAULT_LISTENER,
        topic: str = DEFAULT_TOPIC,
        configs: Mapping[str, str] | None = None,
        prefix: str = "",
        read_only: bool = False,
        insecure: bool = False,
    ) -> None:
        """`settings` are those of the Kafka client. `configs` are the settings of the HTTP server, whose names begin
        with `prefix` (`security.py`). With `read_only`, the topic must exist, and nothing is written to it. Without
        `insecure`, a listener that other hosts reach needs a login. Raises ConfigError, HttpListenerError and
        OpenListenerError.
        """
        host, port = parse_http_listener(listener, example=DEFAULT_LISTENER, allows_tls=True)
        security = build_security(configs or {}, settings, is_https=listener.startswith("https://"), prefix=prefix)
        has_login = security is not None and security.has_login
        remedy = f"Set {prefix}authentication.method=BASIC (docs/REGISTRY.md)"
        require_login("The registry", host, has_login=has_login, insecure=insecure, remedy=remedy)
        names = [(configs or {}).get(f"{prefix}{HOST_NAME}", "")]
        self._log = KafkaSchemaLog(settings, topic=topic, creates=not read_only)
        self.registry = Registry(self._log, read_only=read_only)
        self._http = http_api(host, port, RegistryApp(self.registry), security=security, names=names)

    @property
    def url(self) -> str:
        """The URL at which clients connect; the port is known when `run` calls `on_ready`."""
        return self._http.url

    def stop(self) -> None:
        """Make `run` return. Must be called on the server's event loop."""
        self._http.stop()

    async def run(self, on_ready: Callable[[RegistryServer], None] | None = None) -> None:
        """Read the topic, then serve requests until `stop`. If the start fails, raises HttpListenerError,
        RegistryError, or an error of the Kafka client.
        """
        try:
            await self._http.bind()
        except OSError as error:
            raise HttpListenerError(
                f"The registry cannot listen at {self._http.url}: {error.strerror or error}. Choose another address, or"
                " port 0 for any free port."
            ) from error
        try:
            await self._log.open()
            await self.registry.refresh()
            async with asyncio.TaskGroup() as tasks:
                follower = tasks.create_task(self._follow(), name="registry follower")
                serving = tasks.create_task(self._http.serve(), name="registry http")
                await asyncio.sleep(0)
                if on_ready is not None:
                    on_ready(self)
                await serving
                follower.cancel()
        finally:
            await self._log.close()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_INTERVAL_S)
            try:
                await self.registry.refresh()
            except (BarnabasError, RegistryError, TimeoutError) as error:
                log.warning("the schemas topic cannot be read; retrying", reason=str(error))
