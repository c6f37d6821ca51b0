"""Shell: the schema registry that a command uses: its settings, a coroutine with a client, and JSON for records.

The address is that of `--registry` or BARNABAS_REGISTRY, that of the file of `--command-config`, that of the context
(see `contexts`), or http://127.0.0.1:8081. As with brokers, the settings of a
context are used with its own address only.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

import typer

from barnabas.cli.contexts import context_settings
from barnabas.cli.output import EXIT_UNREACHABLE, EXIT_USAGE, fail, note
from barnabas.cli.session import read_properties, run
from barnabas.core.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.registry.client import AsyncRegistryClient
    from barnabas.registry.serde.documents import Documents

T = TypeVar("T")

LOCAL_REGISTRY: Final = "http://127.0.0.1:8081"
RegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--registry", metavar="URL", envvar="BARNABAS_REGISTRY",
        help=f"The schema registry. Default: the context's, or {LOCAL_REGISTRY}.",
    ),
]  # fmt: skip
_URL: Final = "schema.registry.url"
_DECODING_ERRORS: Final = (BarnabasError, ValueError, TypeError, LookupError, EOFError)
"""What the registry and the libraries for Avro and Protobuf raise for bytes that do not fit."""


def registry_settings(url: str | None, command_config: str | None) -> dict[str, object]:
    """The settings of a client of the registry."""
    settings = read_properties(command_config)
    if url is not None:
        return {**settings, _URL: url}
    if _URL in settings:
        return settings
    return {_URL: LOCAL_REGISTRY, **context_settings(), **settings}


def run_registry(
    url: str | None, command_config: str | None, command: Callable[[AsyncRegistryClient], Awaitable[T]]
) -> T:
    """Open a client of the registry, run `command` with it, and close the client."""

    async def main() -> T:
        client_class = _import_client()
        from barnabas.registry.http_client import RegistryUnreachableError

        async with client_class.from_settings(registry_settings(url, command_config)) as client:
            try:
                return await command(client)
            except RegistryUnreachableError as error:
                fail(str(error), EXIT_UNREACHABLE)

    return run(main)


def _import_client() -> type[AsyncRegistryClient]:
    try:
        from barnabas.registry.client import AsyncRegistryClient
    except ModuleNotFoundError as error:
        fail(f"Schemas need {error.name}: pip install 'barnabas[registry]'", EXIT_USAGE)
    return AsyncRegistryClient


def open_documents(url: str | None, command_config: str | None) -> tuple[Documents, Callable[[], None]]:
    """Reads and writes documents by the registry; and what closes its client."""
    _import_client()
    from barnabas.registry.client import RegistryClient
    from barnabas.registry.serde.documents import Documents

    client = RegistryClient.from_settings(registry_settings(url, command_config))
    return Documents(client), client.close


class DecodedRecord(NamedTuple):
    """A record for the formats of `consume`: `key` and `value` are text, those that were decoded in JSON."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Any
    leader_epoch: int = -1
    delivery_count: int | None = None
    key_document: Any = None
    """The decoded key; None if `key` was not decoded."""
    value_document: Any = None


class RecordDecoder:
    """Decodes keys and values that name a schema. Others stay as they are, and so do those that cannot be decoded: the
    first one is noted, and how many there were at the end."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self.failures = 0

    def decode(self, record: Any) -> DecodedRecord:
        """The record with decoded key and value."""
        key, key_document = self._decode(record, record.key, is_key=True)
        value, value_document = self._decode(record, record.value, is_key=False)
        return DecodedRecord(
            record.topic, record.partition, record.offset, record.timestamp, record.timestamp_type, key, value,
            record.headers, record.leader_epoch, record.delivery_count, key_document, value_document,
        )  # fmt: skip

    def _decode(self, record: Any, data: bytes | None, *, is_key: bool) -> tuple[bytes | None, Any]:
        from barnabas.registry.serde.documents import is_framed

        if data is None or not is_framed(data):
            return data, None
        try:
            document = self._documents.read(record.topic, data, is_key=is_key)
        except _DECODING_ERRORS as error:
            self.failures += 1
            if self.failures == 1:
                where = f"{record.topic}-{record.partition}@{record.offset}"
                note(f"note: the {'key' if is_key else 'value'} of {where} cannot be decoded: {error}")
            return data, None
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(), document


class JsonRecordEncoder:
    """Encodes the JSON of keys and values with the newest schema of their subject."""

    def __init__(self, documents: Documents, topic: str, *, keys: bool, values: bool) -> None:
        """Raises RegistryError if the subject does not exist."""
        self._documents = documents
        self._topic = topic
        self._keys = keys
        self._values = values
        for is_key, wanted in ((True, keys), (False, values)):
            if wanted:
                documents.prepare(topic, is_key=is_key)

    def encode(self, key: bytes | None, value: bytes | None, line: int) -> tuple[bytes | None, bytes | None]:
        """Key and value as they are sent. Raises ValueError that names the line."""
        if self._keys and key is not None:
            key = self._encode(key, line, is_key=True)
        if self._values and value is not None:
            value = self._encode(value, line, is_key=False)
        return key, value

    def _encode(self, data: bytes, line: int, *, is_key: bool) -> bytes:
        try:
            document = json.loads(data)
        except ValueError as error:
            raise ValueError(f"line {line}: the {'key' if is_key else 'value'} is not JSON: {error}") from error
        try:
            return self._documents.write(self._topic, document, is_key=is_key)
        except _DECODING_ERRORS as error:
            raise ValueError(f"line {line}: {error}") from error


def open_encoder(documents: Documents, topic: str, *, keys: bool, values: bool) -> JsonRecordEncoder:
    """A `JsonRecordEncoder`. Without the schemas that it needs, the command ends with an error."""
    from barnabas.registry.errors import Code, RegistryError
    from barnabas.registry.http_client import RegistryUnreachableError

    try:
        return JsonRecordEncoder(documents, topic, keys=keys, values=values)
    except RegistryUnreachableError as error:
        fail(str(error), EXIT_UNREACHABLE)
    except RegistryError as error:
        if error.code != Code.SUBJECT_NOT_FOUND:
            fail(str(error))
        fail(f"{error} `barnabas schemas register SUBJECT FILE` registers a schema.")
