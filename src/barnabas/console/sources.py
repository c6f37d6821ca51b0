"""Shell: what the pages read from: the clients of the cluster, the registry and Connect, and the sampler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.client import AsyncProducer
from barnabas.client.admin import AsyncAdmin
from barnabas.console.access.users import Role, User
from barnabas.console.browse.decoding import Decoder, RegistryDecoder
from barnabas.console.browse.reading import BrowseReader
from barnabas.console.browse.records import Viewer
from barnabas.console.errors import ConsoleError, NotFoundError
from barnabas.console.sampling.sampler import Sampler
from barnabas.console.settings import ConsoleSettings
from barnabas.core.clock import Clock

_MIRRORS_FOR_S = 10.0
_MIRRORS_TIMEOUT_S = 30.0

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.registry.client import AsyncRegistryClient
    from barnabas.registry.http_client import HttpClient


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its user, the parameters of its path, and its query string (or the fields of its form)."""

    sources: Sources
    user: User
    path: Mapping[str, str]
    query: Mapping[str, str]
    now_ms: int

    @property
    def admin(self) -> AsyncAdmin:
        return self.sources.admin


class Sources:
    """Owns the clients. `async with Sources(settings, clock, digest)` connects lazily and closes all of them."""

    def __init__(self, settings: ConsoleSettings, clock: Clock, digest: Callable[[str], str]) -> None:
        self.settings = settings
        self._digest = digest
        self.admin = AsyncAdmin({"client.id": "barnabas-console", **_admin_settings(settings.client)})
        self.sampler = Sampler(self.admin, settings.sampling, clock)
        self.reader = BrowseReader(self.admin, settings.browse)
        self._registry: AsyncRegistryClient | None = None
        self._connect: HttpClient | None = None
        self._registry_decoder: RegistryDecoder | None = None
        if settings.registry_url is not None:
            try:
                from barnabas.registry.client import AsyncRegistryClient

                self._registry = AsyncRegistryClient(settings.registry_url)
                self._registry_decoder = RegistryDecoder(settings.registry_url)
            except ModuleNotFoundError as error:
                raise ConsoleError(f"--registry needs {error.name}: pip install 'barnabas[registry]'") from None
        if settings.connect_url is not None:
            from barnabas.registry.http_client import HttpClient

            self._connect = HttpClient(settings.connect_url)
        self._mirrors: tuple[float, Sequence[Mapping[str, Any]]] | None = None
        self._mirrors_lock = asyncio.Lock()
        self.decoder = Decoder(self._registry_decoder)
        self._producer: AsyncProducer | None = None
        self._producer_lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producer is not None:
            await self._producer.close()
        if self._registry is not None:
            await self._registry.close()
        if self._registry_decoder is not None:
            await self._registry_decoder.close()
        if self._connect is not None:
            await self._connect.close()
        with contextlib.suppress(TimeoutError):
            await self.admin.close()

    @property
    def has_registry(self) -> bool:
        return self._registry is not None

    @property
    def has_connect(self) -> bool:
        return self._connect is not None

    @property
    def registry(self) -> AsyncRegistryClient:
        if self._registry is None:
            raise NotFoundError("This console has no schema registry: start it with --registry URL.")
        return self._registry

    async def connect(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to Connect's REST API."""
        if self._connect is None:
            raise NotFoundError("This console has no Connect cluster: start it with --connect URL.")
        return await self._connect.request(method, path, body)

    async def mirrors(self) -> Sequence[Mapping[str, Any]]:
        """The pairs of the mirror. They are read at most once in ten seconds, whatever the number of users."""
        if self.settings.mirror is None:
            raise NotFoundError("This console has no mirror: start it with --mirror FILE.")
        async with self._mirrors_lock:
            now = asyncio.get_running_loop().time()
            if self._mirrors is None or now - self._mirrors[0] >= _MIRRORS_FOR_S:
                async with asyncio.timeout(_MIRRORS_TIMEOUT_S):
                    self._mirrors = (now, await self.settings.mirror())
            return self._mirrors[1]

    async def producer(self) -> AsyncProducer:
        """The producer of the console; created for the first record."""
        async with self._producer_lock:
            if self._producer is None:
                self._producer = AsyncProducer({**self.settings.client, "client.id": "barnabas-console"})
            return self._producer

    def viewer(self, topic: str, user: User) -> Viewer:
        """What decodes the records of a topic for a user. Only administrators who have logged in see masked fields."""
        sees_all = user.role >= Role.ADMIN and not user.is_anonymous
        return Viewer(topic, self.decoder, () if sees_all else self.settings.masks, self._digest)


def _admin_settings(given: Mapping[str, object]) -> dict[str, object]:
    """Pages answer within seconds, or say that the cluster does not."""
    return {"default.api.timeout.ms": 10_000, "request.timeout.ms": 8_000, **given}
