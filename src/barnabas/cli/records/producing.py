"""Shell: sends the lines of a file as records, for `barnabas produce` and `kafka-console-producer`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress

    from barnabas.cli.records.registries import JsonRecordEncoder
    from barnabas.client.values import Headers, RecordMetadata

_CHUNK = 1 << 16


class RecordLineReader(Protocol):
    """Port: a line as a record."""

    def parse(self, line: bytes, number: int) -> tuple[bytes | None, bytes | None, Headers]:
        """Key, value and headers of the line with this number. Raises ValueError."""
        ...


class EncodingReader:
    """Reads lines as `reader` does, and encodes keys and values by their schemas."""

    def __init__(self, reader: RecordLineReader, encoder: JsonRecordEncoder) -> None:
        self._reader = reader
        self._encoder = encoder

    def parse(self, line: bytes, number: int) -> tuple[bytes | None, bytes | None, Headers]:
        key, value, headers = self._reader.parse(line, number)
        return (*self._encoder.encode(key, value, number), headers)


@dataclass
class WrittenLines:
    """What was sent, and where the brokers have put it."""

    count: int = 0
    size_bytes: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The smallest and the largest offset of the records in each partition. With `acks=0` the offsets are unknown."""

    def add(self, metadata: RecordMetadata) -> None:
        """Note the offset of one record."""
        if metadata.offset >= 0:
            first, last = self.offsets.get(metadata.partition, (metadata.offset, metadata.offset))
            self.offsets[metadata.partition] = (min(first, metadata.offset), max(last, metadata.offset))


async def read_lines(source: BinaryIO) -> AsyncIterator[list[bytes]]:
    """Whole lines as they arrive: many at a time from a file, one at a time from a terminal."""
    rest = b""
    read = getattr(source, "read1", source.read)
    while chunk := await asyncio.to_thread(read, _CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


async def produce_lines(
    settings: Mapping[str, object],
    topic: str,
    source: BinaryIO,
    reader: RecordLineReader,
    *,
    progress: Progress | None = None,
) -> WrittenLines:
    """Send every line and wait for the acknowledgements.

    Raises the KafkaError of the first record that the broker rejected; the lines after that record may or may not have
    been written.
    """
    from barnabas.client.producer.producer import AsyncProducer

    failures: list[BaseException] = []

    def on_delivery(metadata: RecordMetadata | None, error: BaseException | None) -> None:
        if error is not None:
            failures.append(error)
        elif metadata is not None:
            written.add(metadata)

    written = WrittenLines()
    task = progress.add_task(f"to {topic}", total=None) if progress else None
    async with AsyncProducer(settings) as producer:
        await producer.cluster.reach()
        async for lines in read_lines(source):
            for line in lines:
                written.count += 1
                written.size_bytes += len(line) + 1
                key, value, headers = reader.parse(line, written.count)
                await producer.send(topic, value, key=key, headers=headers, on_delivery=on_delivery)
            if failures:
                break
            if progress and task is not None:
                progress.update(task, completed=written.count, description=f"to {topic}: {written.count:,} records")
        await producer.flush()
    if failures:
        raise failures[0]
    return written


def stdin() -> BinaryIO:
    return sys.stdin.buffer
