"""Machine: what is fuzzed. A target takes bytes and may raise only its room's own refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.core.errors import KafkaError
from barnabas.protocol.records.batch import check_crc, iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.protocol.wire.apis import APIS
from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.server_conn import ServerConnection

MEMORY_FACTOR = 10
MEMORY_FLOOR = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """A name, a function over hostile bytes, and valid inputs to start mutating from."""

    name: str
    run: Callable[[bytes], None]
    corpus: tuple[bytes, ...]


_APIS = list(APIS.values())


def _message(kind: str, data: bytes) -> None:
    """The first byte picks the API, the second the version, the rest is the message."""
    if len(data) < 2:
        return
    api = _APIS[data[0] % len(_APIS)]
    version = api.min_version + data[1] % (api.max_version - api.min_version + 1)
    message = api.request if kind == "request" else api.response
    try:
        decoded = decode(message, version, data[2:])
    except WireError:
        return
    assert decode(message, version, encode(decoded, version)) == decoded  # what was read can be written and read again


def _message_corpus(kind: str) -> tuple[bytes, ...]:
    corpus: list[bytes] = []
    for position, api in enumerate(_APIS):
        message = api.request if kind == "request" else api.response
        corpus += [
            bytes([position, version - api.min_version]) + encode(message(), version)
            for version in range(api.min_version, api.max_version + 1)
        ]
    return tuple(corpus)


def _frames(data: bytes) -> None:
    connection = ServerConnection(max_request_bytes=1 << 20)
    try:
        for start in range(0, len(data), 7):
            connection.feed(data[start : start + 7])
    except WireError:
        return


def _batches(data: bytes) -> None:
    try:
        for position, header in iter_batches(data):
            for _ in iter_records(data, position, header, limit_bytes=len(data) * MEMORY_FACTOR + MEMORY_FLOOR):
                pass
            check_crc(data, position, header)
    except (CorruptBatchError, KafkaError):
        return


def targets() -> dict[str, Target]:
    """Every request decoder and response decoder in every version, the frames, and the record batches."""
    records = [SimpleRecord(b"key", b"value" * 9, 1_700_000_000_000, (("h", b"1"), ("n", None)))] * 3
    every = [
        Target("requests", lambda data: _message("request", data), _message_corpus("request")),
        Target("responses", lambda data: _message("response", data), _message_corpus("response")),
        Target("frames", _frames, (bytes.fromhex("0000000a00120000000000010000"),)),
        Target("batches", _batches, tuple(build_batch(records, codec=codec) for codec in CompressionType)),
    ]
    return {target.name: target for target in every}
