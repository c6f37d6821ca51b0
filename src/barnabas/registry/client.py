"""Shell: a client for a schema registry, Barnabas' or Confluent's: an asyncio client, and a blocking facade over it.

    async with AsyncRegistryClient("http://localhost:8081") as registry:
        registered = await registry.register("orders-value", Schema('{"type": "record", ...}'))

    with RegistryClient("http://localhost:8081") as registry:       # the blocking facade, which serializers use
        registry.latest("orders-value")

Data that cannot change is requested once and cached: the schema of an id, and the id and version of a registered
schema.
"""

from __future__ import annotations

import functools
import ssl
import warnings
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar
from urllib.parse import quote, urlencode

from barnabas.client.arguments import checks_arguments
from barnabas.client.errors import ClientClosedError
from barnabas.client.loop_thread import LoopThread
from barnabas.core.config import ConfigError
from barnabas.registry.access import URL, read_login
from barnabas.registry.http_client import HttpClient
from barnabas.registry.values import Compatibility, Mode, Reference, RegisteredSchema, Schema, SchemaType

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")
CACHED_MAX: Final = 10_000


@checks_arguments()
class AsyncRegistryClient:
    """The asyncio client. Every method raises RegistryError with the registry's error code, or
    RegistryUnreachableError.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        basic_auth: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_ms: float = 10_000,
    ) -> None:
        self._http = HttpClient(url, basic_auth=basic_auth, tls=tls, timeout_ms=timeout_ms)
        self._by_id: _Cache[tuple[int, str], Schema] = _Cache()
        self._registered: _Cache[tuple[str, bytes, bool], RegisteredSchema] = _Cache()
        self._versions: _Cache[tuple[str, int], RegisteredSchema] = _Cache()

    @classmethod
    def from_settings(cls, settings: Mapping[str, object], *, timeout_ms: float = 10_000) -> Self:
        """A client with the settings of Confluent's serializers, which `access.py` lists: `schema.registry.url`,
        `basic.auth.credentials.source`, `schema.registry.ssl.truststore.location`, and so on. Raises ConfigError."""
        url, arguments = _arguments(settings)
        return cls(url, **arguments, timeout_ms=timeout_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.close()

    # -- schemas

    async def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Register a schema under a subject and return its version; the existing version if the schema is registered
        already. Raises RegistryError with status 409 if the schema is not compatible.
        """
        key = (subject, schema.fingerprint, normalize)
        known = self._registered.get(key)
        if known is None:
            path = f"/subjects/{_q(subject)}/versions{_query(normalize=normalize)}"
            document = await self._http.request("POST", path, schema.to_json())
            if "version" not in document:  # older registries answer with the id only
                return await self.look_up(subject, schema, normalize=normalize)
            known = RegisteredSchema(subject, document["version"], document["id"], schema)
            self._registered.put(key, known)
        return known

    async def look_up(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """The version of the subject that has this schema. Raises RegistryError with the code 40401 if the subject does
        not exist, or 40403 if no version has the schema.
        """
        key = (subject, schema.fingerprint, normalize)
        known = self._registered.get(key)
        if known is None:
            path = f"/subjects/{_q(subject)}{_query(normalize=normalize)}"
            known = _registered(await self._http.request("POST", path, schema.to_json()))
            self._registered.put(key, known)
        return known

    async def schema(self, schema_id: int, *, subject: str = "") -> Schema:
        """The schema of an id. Ids belong to a context: that of `subject`, or the default context without `subject`."""
        key = (schema_id, subject)
        known = self._by_id.get(key)
        if known is None:
            query = _query(subject=subject) if subject else ""
            known = _schema(await self._http.request("GET", f"/schemas/ids/{schema_id}{query}"))
            self._by_id.put(key, known)
        return known

    async def version(self, subject: str, version: int, *, deleted: bool = False) -> RegisteredSchema:
        """One version of a subject."""
        known = self._versions.get((subject, version))
        if known is None:
            path = f"/subjects/{_q(subject)}/versions/{version}{_query(deleted=deleted)}"
            known = _registered(await self._http.request("GET", path))
            self._versions.put((subject, version), known)
        return known

    async def latest(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject. Always requested, never cached."""
        return _registered(await self._http.request("GET", f"/subjects/{_q(subject)}/versions/latest"))

    async def dependencies(self, schema: Schema) -> dict[str, Schema]:
        """All schemas to which a schema refers, directly or indirectly, by reference name. Each comes after its own
        references.
        """
        found: dict[str, Schema] = {}

        async def visit(references: tuple[Reference, ...]) -> None:
            for reference in references:
                if reference.name not in found:
                    target = (await self.version(reference.subject, reference.version, deleted=True)).schema
                    await visit(target.references)
                    found[reference.name] = target

        await visit(schema.references)
        return found

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        found: list[int] = await self._http.request("GET", f"/subjects/{_q(subject)}/versions{_query(deleted=deleted)}")
        return found

    async def subjects(self, prefix: str = ":*:", *, deleted: bool = False) -> list[str]:
        found: list[str] = await self._http.request("GET", f"/subjects{_query(subjectPrefix=prefix, deleted=deleted)}")
        return found

    async def referenced_by(self, subject: str, version: int) -> list[int]:
        """The ids of the schemas that refer to a version."""
        found: list[int] = await self._http.request("GET", f"/subjects/{_q(subject)}/versions/{version}/referencedby")
        return found

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Soft-delete a subject, or delete it permanently after a soft delete (`permanent`). Returns the deleted
        versions.
        """
        self._drop_cached_versions(subject)
        path = f"/subjects/{_q(subject)}{_query(permanent=permanent)}"
        deleted: list[int] = await self._http.request("DELETE", path)
        return deleted

    async def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        """Soft-delete one version, or delete it permanently after a soft delete (`permanent`)."""
        self._drop_cached_versions(subject)
        path = f"/subjects/{_q(subject)}/versions/{version}{_query(permanent=permanent)}"
        deleted: int = await self._http.request("DELETE", path)
        return deleted

    async def problems(
        self, subject: str, schema: Schema, *, version: int | str | None = None, normalize: bool = False
    ) -> list[str]:
        """The reasons why a schema is incompatible with the subject (or with one `version`); empty if it is
        compatible.
        """
        path = f"/compatibility/subjects/{_q(subject)}/versions"
        if version is not None:
            path += f"/{version}"
        document = await self._http.request("POST", path + _query(verbose=True, normalize=normalize), schema.to_json())
        if document["is_compatible"]:
            return []
        return document.get("messages") or ["The schema is not compatible."]

    # -- settings

    async def compatibility(self, subject: str | None = None) -> Compatibility:
        """The compatibility level of a subject, inherited if it has none, or of the whole registry."""
        place = "/config" if subject is None else f"/config/{_q(subject)}{_query(defaultToGlobal=True)}"
        return Compatibility((await self._http.request("GET", place))["compatibilityLevel"])

    async def set_compatibility(self, level: Compatibility | str, subject: str | None = None) -> None:
        place = "/config" if subject is None else f"/config/{_q(subject)}"
        await self._http.request("PUT", place, {"compatibility": str(level)})

    async def delete_compatibility(self, subject: str) -> None:
        """Delete the subject's own compatibility level, so that it inherits one."""
        await self._http.request("DELETE", f"/config/{_q(subject)}")

    async def mode(self, subject: str | None = None) -> Mode:
        place = "/mode" if subject is None else f"/mode/{_q(subject)}{_query(defaultToGlobal=True)}"
        return Mode((await self._http.request("GET", place))["mode"])

    async def set_mode(self, mode: Mode | str, subject: str | None = None, *, force: bool = False) -> None:
        place = "/mode" if subject is None else f"/mode/{_q(subject)}"
        await self._http.request("PUT", place + _query(force=force), {"mode": str(mode)})

    async def contexts(self) -> list[str]:
        found: list[str] = await self._http.request("GET", "/contexts")
        return found

    def _drop_cached_versions(self, subject: str) -> None:
        self._registered.drop(lambda key: key[0] == subject)
        self._versions.drop(lambda key: key[0] == subject)


def _wait(
    method: Callable[Concatenate[AsyncRegistryClient, P], Awaitable[R]],
) -> Callable[Concatenate[RegistryClient, P], R]:
    @functools.wraps(method)
    def blocking(self: RegistryClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._closed:
            raise ClientClosedError("This registry client")
        return self._thread.run(lambda: method(self._client, *args, **kwargs))

    return blocking


class RegistryClient:
    """The blocking facade of `AsyncRegistryClient`, with the same arguments, results and errors. Thread-safe."""

    _closed = True  # until __init__ has succeeded

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        basic_auth: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_ms: float = 10_000,
    ) -> None:
        async def make() -> AsyncRegistryClient:
            return AsyncRegistryClient(url, basic_auth=basic_auth, tls=tls, timeout_ms=timeout_ms)

        self._thread = LoopThread("barnabas-registry")
        try:
            self._client = self._thread.run(make)
        except BaseException:  # KeyboardInterrupt, too: the thread must end
            self._thread.close()
            raise
        self._closed = False

    @classmethod
    def from_settings(cls, settings: Mapping[str, object], *, timeout_ms: float = 10_000) -> Self:
        """As `AsyncRegistryClient.from_settings`."""
        url, arguments = _arguments(settings)
        return cls(url, **arguments, timeout_ms=timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            self._closed = True
            warnings.warn(f"{self!r} was not closed; call close().", ResourceWarning, stacklevel=2, source=self)
            self._thread.end_after(self._client.close)

    def close(self) -> None:
        """Close the connection and stop the event loop's thread. May be called twice, and in a forked process."""
        if not self._closed:
            self._closed = True
            try:
                if self._thread.is_of_this_process:
                    self._thread.run(self._client.close)
            finally:
                self._thread.close()

    register = _wait(AsyncRegistryClient.register)
    look_up = _wait(AsyncRegistryClient.look_up)
    schema = _wait(AsyncRegistryClient.schema)
    version = _wait(AsyncRegistryClient.version)
    latest = _wait(AsyncRegistryClient.latest)
    dependencies = _wait(AsyncRegistryClient.dependencies)
    versions = _wait(AsyncRegistryClient.versions)
    subjects = _wait(AsyncRegistryClient.subjects)
    referenced_by = _wait(AsyncRegistryClient.referenced_by)
    delete_subject = _wait(AsyncRegistryClient.delete_subject)
    delete_version = _wait(AsyncRegistryClient.delete_version)
    problems = _wait(AsyncRegistryClient.problems)
    compatibility = _wait(AsyncRegistryClient.compatibility)
    set_compatibility = _wait(AsyncRegistryClient.set_compatibility)
    delete_compatibility = _wait(AsyncRegistryClient.delete_compatibility)
    mode = _wait(AsyncRegistryClient.mode)
    set_mode = _wait(AsyncRegistryClient.set_mode)
    contexts = _wait(AsyncRegistryClient.contexts)


class _Cache(Generic[K, V]):
    """A cache with a limited number of entries; the oldest entry is removed first."""

    def __init__(self) -> None:
        self._items: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        return self._items.get(key)

    def put(self, key: K, value: V) -> None:
        self._items[key] = value
        if len(self._items) > CACHED_MAX:
            self._items.popitem(last=False)

    def drop(self, should_drop: Callable[[K], bool]) -> None:
        for key in [key for key in self._items if should_drop(key)]:
            del self._items[key]


def _arguments(settings: Mapping[str, object]) -> tuple[str, dict[str, Any]]:
    """The URL of a registry, and the arguments of a client. Raises ConfigError."""
    url = settings.get(URL)
    if not url:
        raise ConfigError(f"{URL} is missing: write http://host:port or https://host:port.")
    login = read_login(settings.get)
    return str(url), {"basic_auth": login.basic_auth, "tls": login.tls_context()}


def _schema(document: Mapping[str, Any]) -> Schema:
    references = tuple(Reference(r["name"], r["subject"], r["version"]) for r in document.get("references") or ())
    kind = SchemaType(document.get("schemaType") or "AVRO")
    return Schema(document["schema"], kind, references, document.get("metadata"), document.get("ruleSet"))


def _registered(document: Mapping[str, Any]) -> RegisteredSchema:
    return RegisteredSchema(document["subject"], document["version"], document["id"], _schema(document))


def _q(text: str) -> str:
    return quote(text, safe="")


def _query(**parameters: object) -> str:
    """The query string of the parameters that are not False; empty if there are none."""
    given = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in parameters.items() if v is not False}
    return f"?{urlencode(given)}" if given else ""
