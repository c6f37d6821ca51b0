"""Codec and Shell: the sizes of all segments at a clean shutdown, with which the next start notices missing bytes.

    barnabas-segment-sizes     0                               version
                               3                               number of lines
                               17                              broker epoch, as in .kafka_cleanshutdown
                               orders 0 0:104857600 5120:880   topic, partition, base offset:bytes of each segment

After a clean shutdown the logs are not read, so a segment that was deleted or shortened meanwhile would not be noticed.
The file counts only together with the marker of the same clean shutdown, which the broker epoch identifies: Apache
Kafka may have used the directory since, and does not know the file.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.server.storage import names
from barnabas.server.storage.directory.checkpoints import decode_lines, encode_lines
from barnabas.server.storage.errors import CorruptFileError, DamagedLogError, FileMissingError
from barnabas.server.storage.fs import FileSystem, read_file, replace_file
from barnabas.server.storage.log import Log

log = get_logger("barnabas.server.storage")

Sizes = dict[TopicPartition, dict[int, int]]
"""The bytes of each segment of each log, by base offset."""


def read_sizes(fs: FileSystem, directory: str, broker_epoch: int) -> Sizes:
    """The sizes at the clean shutdown in `broker_epoch`; empty if they are unknown."""
    path = f"{directory}/{names.SEGMENT_SIZES}"
    sizes: Sizes = {}
    try:
        epoch, *lines = decode_lines(read_file(fs, path), path)
        if int(epoch) != broker_epoch:
            return {}
        for line in lines:
            topic, partition, *segments = line.split(" ")
            pairs = [one.split(":") for one in segments]
            sizes[TopicPartition(topic, int(partition))] = {int(base): int(size) for base, size in pairs}
    except FileMissingError:
        return {}
    except (CorruptFileError, ValueError) as error:
        log.warning("the sizes of the segments at the last shutdown are unknown", file=path, reason=str(error))
        return {}
    return sizes


def read_broker_epoch(fs: FileSystem, directory: str) -> int:
    """The broker epoch of the last clean shutdown, for a damaged `.kafka_cleanshutdown`; -1 if it is unknown."""
    path = f"{directory}/{names.SEGMENT_SIZES}"
    try:
        return int(decode_lines(read_file(fs, path), path)[0])
    except (CorruptFileError, FileMissingError, ValueError, IndexError):
        return -1


def write_sizes(fs: FileSystem, directory: str, broker_epoch: int, logs: Iterable[Log], others: Sizes) -> None:
    """Store the sizes of `logs`, and of logs that this process has not opened. Raises StorageError."""
    sizes = {**others, **{one.topic_partition: {s.base_offset: s.size for s in one.segments} for one in logs}}
    lines = (
        " ".join((tp.topic, str(tp.partition), *(f"{base}:{size}" for base, size in sizes[tp].items())))
        for tp in sorted(sizes)
    )
    replace_file(fs, f"{directory}/{names.SEGMENT_SIZES}", encode_lines([str(broker_epoch), *lines]))


def check_sizes(fs: FileSystem, path: str, expected: dict[int, int]) -> None:
    """Raises DamagedLogError if a segment of the log in `path` is missing or has another size."""
    for base, size in expected.items():
        file = f"{path}/{names.offset_file(base, names.LOG)}"
        try:
            found = fs.stat(file).size
        except FileMissingError:
            raise DamagedLogError(
                f"{file} was deleted: it had {size} bytes when the broker was stopped. Put it back, or see "
                "docs/OPERATIONS.md."
            ) from None
        if found != size:
            raise DamagedLogError(
                f"{file} was shortened or changed: it had {size} bytes when the broker was stopped, and has "
                f"{found} bytes. Put it back, or see docs/OPERATIONS.md."
            )
