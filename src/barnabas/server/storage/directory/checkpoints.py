"""Codec: the checkpoint files of a data directory and of a log, which contain offsets (Kafka's CheckpointFile).

    recovery-point-offset-checkpoint,          leader-epoch-checkpoint
    log-start-offset-checkpoint,
    replication-offset-checkpoint

    0                      version             0                version
    2                      number of lines     1                number of lines
    topic partition offset                     epoch startOffset
    ...                                        ...

Lines end in "\\n". A file is replaced atomically: a temporary file is written, synced and renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.core.ids import TopicPartition
from barnabas.server.storage.errors import CorruptFileError, FileMissingError
from barnabas.server.storage.fs import FileSystem, read_file, replace_file

_VERSION: Final = 0


def encode_lines(lines: Iterable[str]) -> bytes:
    held = list(lines)
    return "\n".join([str(_VERSION), str(len(held)), *held, ""]).encode()


def decode_lines(data: bytes, what: str) -> list[str]:
    """The lines after the header. Raises CorruptFileError if their number is not the one in the header, or if the last
    line has no line end: its last number could be incomplete."""
    try:
        version, count, *lines = data.decode().split("\n")
        expected = int(count)
    except (UnicodeDecodeError, ValueError):
        raise CorruptFileError(
            f"{what} is not a checkpoint file: expected a version, a count and that many lines"
        ) from None
    if version.strip() != str(_VERSION):
        raise CorruptFileError(f"{what} has version {version!r}; only version {_VERSION} is known")
    if lines and lines.pop():
        raise CorruptFileError(f"{what} has an incomplete last line")
    if len(lines) != expected:
        raise CorruptFileError(f"{what} should have {expected} lines and has {len(lines)}")
    return lines


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_lines(f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))


def decode_offsets(data: bytes, what: str) -> dict[TopicPartition, int]:
    offsets = {}
    for line in decode_lines(data, what):
        try:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise CorruptFileError(f"{what} holds {line!r} where 'topic partition offset' was expected") from None
    return offsets


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Read a file. The result is empty if the file does not exist, or has no bytes: Apache Kafka creates its checkpoint
    files empty, and writes some of them much later. Raises CorruptFileError."""
    try:
        data = read_file(fs, path)
    except FileMissingError:
        return {}
    return decode_offsets(data, path) if data else {}


def write_offsets(fs: FileSystem, path: str, offsets: Mapping[TopicPartition, int], *, durable: bool = True) -> None:
    """Replace a file atomically. `durable=False` omits the sync, for offsets of which an older version is valid too."""
    replace_file(fs, path, encode_offsets(offsets), durable=durable)
