"""Shell: the schema registry of a query, and the schema with which the query reads.

Each process has one client for each registry, kept across micro-batches, as `connection.py` does for clusters. With a
schema given as text and no registry, the records do not begin with schema ids; `OneSchema` then stands in for the
registry, and `frame` puts the id 0 in front of each of them.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.registry.client import RegistryClient
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.http_client import RegistryUnreachableError
from barnabas.registry.values import RegisteredSchema, Schema, SchemaType
from barnabas.spark.errors import OptionError, SparkSourceError
from barnabas.spark.identities import replaced
from barnabas.spark.records.formats import PartFormat, RecordFormat, RegistryAccess

INLINE_ID = 0
_FRAME = bytes(5)
_FIRST_MESSAGE = bytes(6)  # Protobuf's message indexes [0] are one zero byte

SCHEMA_TYPES = {
    RecordFormat.AVRO: SchemaType.AVRO,
    RecordFormat.JSON_SCHEMA: SchemaType.JSON,
    RecordFormat.JSON: SchemaType.JSON,
    RecordFormat.PROTOBUF: SchemaType.PROTOBUF,
}

_clients: dict[RegistryAccess, RegistryClient] = {}
_owner = os.getpid()
_lock = threading.Lock()


class OneSchema:
    """Stands in for the client of a registry, where the schema is known: one that is given as text, with the id 0, or
    one that has been requested.
    """

    def __init__(self, registered: RegisteredSchema, dependencies: Mapping[str, Schema] | None = None) -> None:
        self._registered = registered
        self._dependencies = dict(dependencies or {})

    def schema(self, schema_id: int, *, subject: str = "") -> Schema:
        return self._registered.schema

    def latest(self, subject: str) -> RegisteredSchema:
        return self._registered

    def dependencies(self, schema: Schema) -> dict[str, Schema]:
        return self._dependencies


def registry_client(access: RegistryAccess) -> RegistryClient:
    """This process's client of a registry; created at the first call, and kept."""
    global _owner
    with _lock:
        if _owner != os.getpid():  # this process was forked: the parent's thread and sockets cannot be used
            _clients.clear()
            _owner = os.getpid()
        client = _clients.get(access)
        if client is None:
            login = access.login
            client = _clients[access] = RegistryClient(access.url, basic_auth=login.basic_auth, tls=login.tls_context())
        return client


def given_schema(part: PartFormat) -> Schema:
    """The schema in the options `valueSchema` or `keySchema`."""
    assert part.schema is not None
    return Schema(part.schema, SCHEMA_TYPES[part.format])


def find_schema(part: PartFormat, access: RegistryAccess | None, topics: tuple[str, ...]) -> RegisteredSchema:
    """The schema with which a query reads: the one in the options, else a version of the subject. Raises OptionError
    and SparkSourceError.
    """
    if part.schema is not None:
        return RegisteredSchema("", 0, INLINE_ID, given_schema(part))
    assert access is not None, "parse_formats has checked this"
    if part.subject is None and len(topics) != 1:
        raise OptionError(
            f"{part.part}Format={part.format.value} needs the option {part.part}Subject: the query may read several"
            " topics, and its column has one type"
        )
    subject = part.subject_of(topics[0] if topics else "")
    client = registry_client(access)
    try:
        found = client.latest(subject) if part.version is None else client.version(subject, part.version)
    except RegistryError as error:
        if error.code in (Code.SUBJECT_NOT_FOUND, Code.VERSION_NOT_FOUND):
            which = "" if part.version is None else f" version {part.version} of"
            raise OptionError(
                f"the registry at {access.url} has no{which} subject {subject}: register the schema, or name it with"
                f" {part.part}Subject, {part.part}SchemaVersion or {part.part}Schema"
            ) from None
        raise SparkSourceError(f"the schema registry at {access.url} rejects the request for {subject}: {error}") from (
            error
        )
    except RegistryUnreachableError as error:
        raise SparkSourceError(f"the schema of {subject} cannot be read: {error}") from error
    if found.schema.type is not SCHEMA_TYPES[part.format]:
        raise OptionError(
            f"the subject {subject} has schemas of type {found.schema.type.value}, but {part.part}Format is"
            f" {part.format.value}"
        )
    return found


def schema_marks(registered: RegisteredSchema) -> str:
    """What a position stores of a schema: its id, and a digest of its text. Empty for one that is given as text."""
    if registered.id == INLINE_ID:
        return ""
    return f"{registered.id}:{_digest(registered.schema)}"


def check_schema(part: str, access: RegistryAccess, stored: str, subject: str = "") -> str | None:
    """What is wrong if the registry has another schema under the id that a position has stored, or none. None if it is
    the same. Ids belong to the context of `subject`. Raises SparkSourceError if the registry does not answer."""
    number, _, digest = stored.partition(":")
    try:
        found = _digest(registry_client(access).schema(int(number), subject=subject))
    except RegistryError as error:
        if error.code is not Code.SCHEMA_NOT_FOUND:
            raise SparkSourceError(f"the schema registry at {access.url} rejects a request: {error}") from error
        found = "none"
    except RegistryUnreachableError as error:
        raise SparkSourceError(f"the schema {number} of the {part}s cannot be read: {error}") from error
    if found == digest:
        return None
    what = f"the schema {number} of the registry at {access.url}"
    return replaced(what, {"SHA-256": digest}, {"SHA-256": found})


def _digest(schema: Schema) -> str:
    return hashlib.sha256(schema.text.encode()).hexdigest()[:12]


def frame(column: Any, part: PartFormat) -> Any:
    """The column with the schema id 0 in front of each value; null stays null."""
    prefix = _FIRST_MESSAGE if part.format is RecordFormat.PROTOBUF else _FRAME
    return pc.binary_join_element_wise(pa.scalar(prefix, pa.binary()), column, pa.scalar(b"", pa.binary()))


def connect_registry(part: PartFormat, access: RegistryAccess | None) -> Any:
    """The registry's client, or its stand-in for a schema that is given as text."""
    if access is not None and part.format is not RecordFormat.JSON:
        return registry_client(access)
    schema = given_schema(part) if part.schema is not None else Schema("{}", SchemaType.JSON)
    return OneSchema(RegisteredSchema("", 0, INLINE_ID, schema))
