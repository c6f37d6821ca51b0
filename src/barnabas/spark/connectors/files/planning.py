"""Machine: which files a micro-batch reads, and the lines of a text file as record batches."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from barnabas.spark.connectors.arrow_fields import record_field
from barnabas.spark.connectors.connect_schemas import ConnectSchema, ConnectType
from barnabas.spark.connectors.converters.runs import json_field
from barnabas.spark.connectors.files.errors import FileReadError
from barnabas.spark.connectors.record_encoder import RecordEncoder
from barnabas.spark.connectors.transforms.records import HEADERS_TYPE

LINES: Final = 10_000
LINE_BYTES_MAX: Final = 128 * 1024 * 1024
"""A longer line is an error, since it must be in memory as a whole."""


class DirectoryFile(msgspec.Struct, frozen=True, order=True):
    """A file of a directory, ordered by its time of modification and its path."""

    time_ns: int
    path: str
    size: int

    @property
    def checksum(self) -> int:
        return zlib.crc32(f"{self.time_ns} {self.size} {self.path}".encode())


class AvroOffset(msgspec.Struct, frozen=True):
    """The files that are read: those before `time_ns`, and of those at that time the ones in `names`."""

    time_ns: int = -1
    names: tuple[str, ...] = ()
    count: int = 0
    sum: int | None = 0
    """Of the checksums of the files that are read; None in an offset of an earlier release."""

    def to_json(self) -> dict[str, Any]:
        return {"time": self.time_ns, "names": list(self.names), "count": self.count, "sum": self.sum}

    @staticmethod
    def from_json(document: dict[str, Any]) -> AvroOffset:
        return AvroOffset(int(document["time"]), tuple(document["names"]), int(document["count"]), document.get("sum"))

    def has(self, file: DirectoryFile) -> bool:
        return file.time_ns < self.time_ns or (file.time_ns == self.time_ns and file.path in self.names)


def next_files(files: Sequence[DirectoryFile], start: AvroOffset, bytes_max: int | None) -> AvroOffset:
    """The offset after the next files, of which there are about `bytes_max` bytes, but at least one. `files` are in
    order. Raises FileReadError if an older file has appeared, or files have taken the places of others.
    """
    passed = [file for file in files if file.time_ns < start.time_ns or start.has(file)]
    if len(passed) > start.count:
        newest = max(passed)
        raise FileReadError(
            f"{len(passed) - start.count} files have appeared with times of modification before those that are read"
            f" already, such as {newest.path} or an older one. They would be missed: touch them, to read"
            " them next, and move files into the directory in the order of their times"
        )
    if start.sum is not None and len(passed) == start.count and sum(file.checksum for file in passed) != start.sum:
        raise FileReadError(
            "files have been replaced by others with times of modification before those that are read already, and"
            " would be missed: touch the new ones, to read them next; or start the query with a new checkpoint, to read"
            " the directory from its beginning"
        )
    offset, size = start, 0
    for file in files:
        if start.has(file):
            continue
        size += file.size
        if bytes_max is not None and size > bytes_max and offset != start:
            break
        names = (*offset.names, file.path) if file.time_ns == offset.time_ns else (file.path,)
        offset = AvroOffset(file.time_ns, names)
    if offset == start:
        return start
    # Files that were removed are no longer counted, so that later files with old times are noticed.
    read = [file for file in files if offset.has(file)]
    return msgspec.structs.replace(offset, count=len(read), sum=sum(file.checksum for file in read))


def files_after(files: Sequence[DirectoryFile], start: AvroOffset, end: AvroOffset) -> list[DirectoryFile]:
    """The files of a micro-batch."""
    return [file for file in files if end.has(file) and not start.has(file)]


def line_batches(chunks: Iterable[bytes], start: int, place: str, topic: str | None, columns: Any) -> Iterator[Any]:
    """Complete lines as record batches with the columns value, topic, file and position. A line ends with a line feed,
    and may have a carriage return before it. Raises FileReadError for a line that is no UTF-8.
    """
    values: list[str] = []
    positions: list[int] = []
    rest = b""
    for chunk in chunks:
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > LINE_BYTES_MAX:
            raise FileReadError(
                f"{place} has a line of more than {LINE_BYTES_MAX} bytes at {start}: it is no text file"
            )
        for line in lines:
            values.append(_text(line, place, start))
            positions.append(start)
            start += len(line) + 1
        if len(values) >= LINES:
            yield _batch(values, positions, place, topic, columns)
            values, positions = [], []
    if values:
        yield _batch(values, positions, place, topic, columns)


def _text(line: bytes, place: str, position: int) -> str:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise FileReadError(f"{place} has a line at {position} that is no UTF-8 ({error}): convert the file") from None


def _batch(values: list[str], positions: list[int], place: str, topic: str | None, columns: Any) -> Any:
    count = len(values)
    arrays = {
        "value": pa.array(values, pa.string()),
        "topic": pa.array([topic] * count, pa.string()),
        "file": pa.array([place] * count, pa.string()),
        "position": pa.array(positions, pa.int64()),
    }
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns.names], schema=columns)


LINE_COLUMNS: Final = pa.schema([("value", pa.string()), ("topic", pa.string())])
_RECORD_NAMES: Final = ("topic", "key", "value", "headers", "timestamp")


def line_records(lines: Iterable[Any], config: Mapping[str, str]) -> Iterator[Any]:
    """Batches of LINE_COLUMNS as records for a topic, with the transforms and converters of `config`. As with Connect's
    FileStreamSource, a value is a required text and there are no keys. Times of records are left to the sink.
    """
    encoder = RecordEncoder(config)
    fields = [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        json_field("key"),
        record_field("value", ConnectSchema(ConnectType.STRING)),
        pa.field("headers", HEADERS_TYPE),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
    ]
    for batch in lines:
        count = batch.num_rows
        given = {"topic": batch.column("topic"), "value": batch.column("value")}
        given["headers"] = pa.array([[]] * count, HEADERS_TYPE)
        arrays = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in fields]
        yield from encoder.encode(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), _RECORD_NAMES)
