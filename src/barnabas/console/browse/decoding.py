"""Shell: the bytes of keys and values as JSON documents: by the schema registry, as JSON, as text, or as hex digits.

`auto` takes the first that fits. A framed value whose schema the registry does not have is shown as hex with the
problem, never as an error of the page.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, Protocol

from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger

log = get_logger("barnabas.console")

FORMATS: Final = ("auto", "registry", "json", "text", "number", "hex", "base64")
RETRY_S: Final = 15.0
_IDS_MAX: Final = 10_000
_FRAME: Final = struct.Struct(">bi")
_NUMBERS: Final = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}
_JSON_STARTS: Final = tuple(b'{["-0123456789tfn')


@dataclass(frozen=True, slots=True)
class Decoded:
    """A key, value or header. `value` is JSON; `format` says how it was decoded; `size` counts the bytes."""

    format: str
    value: Any
    size: int
    schema_id: int | None = None
    problem: str = ""

    @property
    def is_structure(self) -> bool:
        """Whether the value is JSON, in which paths select fields."""
        return self.format not in ("text", "hex", "base64")


class SchemaDecoder(Protocol):
    """Port: decodes framed values by their schemas."""

    async def decode(self, topic: str, data: bytes, *, is_key: bool) -> tuple[str, Any]:
        """(the schema's type in lower case, the value as JSON). Raises BarnabasError or ValueError."""
        ...


class Decoder:
    """Decodes payloads; with a registry if there is one."""

    def __init__(self, schemas: SchemaDecoder | None) -> None:
        self._schemas = schemas

    async def decode(self, topic: str, data: bytes | None, wanted: str, *, is_key: bool = False) -> Decoded:
        """Never raises for bytes: what cannot be decoded as wanted is hex, with the problem."""
        if data is None:
            return Decoded("null", None, 0)
        if wanted in ("auto", "registry"):
            framed = await self._by_schema(topic, data, is_key, must=wanted == "registry")
            if framed is not None:
                return framed
        return decode_bytes(data, wanted)

    async def _by_schema(self, topic: str, data: bytes, is_key: bool, *, must: bool) -> Decoded | None:
        if len(data) < _FRAME.size or data[0] != 0 or self._schemas is None:
            if not must:
                return None
            why = "there is no --registry" if self._schemas is None else "the bytes have no schema id"
            return _hex(data, f"Not decoded: {why}.")
        schema_id = int(_FRAME.unpack_from(data)[1])
        try:
            kind, value = await self._schemas.decode(topic, data, is_key=is_key)
        except (BarnabasError, ValueError, TypeError, LookupError, EOFError, OSError) as error:
            # The libraries for Avro and Protobuf raise many kinds of exceptions for bytes that do not fit.
            if not must and decode_bytes(data, "auto").format != "hex":
                return None  # for example the number 0 of four bytes and one more
            return _hex(data, f"Schema {schema_id}: {error}")
        return Decoded(kind, value, len(data), schema_id)


def decode_bytes(data: bytes, wanted: str) -> Decoded:
    """Decode without a registry."""
    size = len(data)
    if wanted == "base64":
        return Decoded("base64", base64.b64encode(data).decode(), size)
    if wanted == "hex":
        return _hex(data)
    if wanted == "number":
        if size not in _NUMBERS:
            return _hex(data, f"Not decoded: {size} bytes are not a number of 1, 2, 4 or 8 bytes.")
        return Decoded("number", struct.unpack(_NUMBERS[size], data)[0], size)
    if wanted in ("auto", "json") and data[:1] and data.lstrip()[:1] and data.lstrip()[0] in _JSON_STARTS:
        try:
            return Decoded("json", _parsed(data), size)
        except (ValueError, RecursionError):
            pass
    if wanted == "json":
        return _hex(data, "Not decoded: the bytes are not JSON.")
    try:
        text = data.decode(errors="strict" if wanted == "auto" else "replace")
    except UnicodeDecodeError:
        return _hex(data)
    if wanted == "auto" and any(c < " " and c not in "\t\r\n" for c in text):
        return _hex(data)
    return Decoded("text", text, size)


def _hex(data: bytes, problem: str = "") -> Decoded:
    return Decoded("hex", data.hex(" "), len(data), problem=problem)


def _parsed(data: bytes) -> Any:
    """The JSON in the bytes. Raises ValueError also for JSON that pages and documents cannot have: numbers beyond a
    double (`1e999`), and halves of surrogate pairs (`"\\ud800"`), which UTF-8 cannot encode.
    """
    value = json.loads(data, parse_constant=_no_constant, parse_float=_finite)
    if not data.isascii() or b"\\ud" in data or b"\\uD" in data:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is beyond a double")
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


class RegistryDecoder:
    """Implements `SchemaDecoder` with the deserializers of `barnabas.registry`. Imported with the extra `registry`."""

    def __init__(self, url: str) -> None:
        from barnabas.registry.client import RegistryClient

        self._client = RegistryClient(url)
        self._readers: dict[tuple[str, bool], Any] = {}
        self._kinds: dict[int, str] = {}
        self._failed: dict[int, tuple[float, str]] = {}

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)

    async def decode(self, topic: str, data: bytes, *, is_key: bool) -> tuple[str, Any]:
        from barnabas.client.serialization import NotReadyError

        schema_id = int(_FRAME.unpack_from(data)[1])
        subject = f"{topic}-{'key' if is_key else 'value'}"
        kind = await self._kind(schema_id, subject)
        reader = self._reader(kind, is_key)
        try:
            value = reader.deserialize_now(topic, (), data)
        except NotReadyError as missing:
            await missing.learn()
            value = reader.deserialize_now(topic, (), data)
        return kind, as_json(kind, value)

    async def _kind(self, schema_id: int, subject: str) -> str:
        """The type of a schema. An id that failed is requested again after RETRY_S, not for each record of a page."""
        now = asyncio.get_running_loop().time()
        since, problem = self._failed.get(schema_id, (-RETRY_S, ""))
        if now - since < RETRY_S:
            raise ValueError(problem)
        if schema_id not in self._kinds:
            if len(self._kinds) + len(self._failed) > _IDS_MAX:
                self._kinds.clear()
                self._failed.clear()
            try:
                schema = await asyncio.to_thread(self._schema, schema_id, subject)
            except BarnabasError as error:
                self._failed[schema_id] = (now, str(error))
                raise
            self._kinds[schema_id] = str(schema.type.value).lower()
        return self._kinds[schema_id]

    def _schema(self, schema_id: int, subject: str) -> Any:
        from barnabas.registry.errors import RegistryError

        try:
            return self._client.schema(schema_id)
        except RegistryError:  # ids belong to a context, which is known from the subject only
            return self._client.schema(schema_id, subject=subject)

    def _reader(self, kind: str, is_key: bool) -> Any:
        if (kind, is_key) not in self._readers:
            self._readers[kind, is_key] = _reader_class(kind)(self._client, is_key=is_key)
        return self._readers[kind, is_key]


def _reader_class(kind: str) -> Any:
    """The deserializer of a schema type; imported when the first value of this type is decoded."""
    if kind == "avro":
        from barnabas.registry.serde.avro import AvroDeserializer

        return AvroDeserializer
    if kind == "protobuf":
        from barnabas.registry.serde.protobuf import ProtobufDeserializer

        return ProtobufDeserializer
    from barnabas.registry.serde.json import JsonDeserializer

    return JsonDeserializer


def as_json(kind: str, value: Any) -> Any:
    """Values of Avro's logical types, NaN and the infinities become text; bytes become base64. Raises ValueError for a
    text that UTF-8 cannot encode.
    """
    if kind == "protobuf":
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value, preserving_proto_field_name=True)
    text = json.dumps(value, default=_scalar, ensure_ascii=False)
    return json.loads(text.encode(), parse_constant=str)


def _scalar(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes | bytearray) else str(value)
