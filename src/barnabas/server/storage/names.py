"""Table: the names of files in a log directory (Kafka's `LogFileUtils` and `LocalLog`).

`protocol/records/log_files.py` has the names of a segment's files, and the formats that other programs read, too.
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.log_files import (
    CLEANED,
    DELETED,
    LOG,
    META_PROPERTIES,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    offset_file,
    parse_offset_file,
)
from barnabas.server.storage.errors import LogDirError

__all__ = [
    "CLEANED",
    "CLEANER_CHECKPOINT",
    "CLEAN_SHUTDOWN",
    "DELETED",
    "DIR_DELETE",
    "DIR_FUTURE",
    "DIR_STRAY",
    "HIGH_WATERMARK_CHECKPOINT",
    "LEADER_EPOCH_CHECKPOINT",
    "LOCK",
    "LOG",
    "LOG_START_CHECKPOINT",
    "META_PROPERTIES",
    "OFFSET_INDEX",
    "PARTITION_METADATA",
    "RECOVERY_POINT_CHECKPOINT",
    "SEGMENT_SIZES",
    "SEGMENT_SUFFIXES",
    "SNAPSHOT",
    "SWAP",
    "TEMPORARY",
    "TIME_INDEX",
    "TXN_INDEX",
    "marked_dir",
    "offset_file",
    "parse_offset_file",
    "parse_partition_dir",
]

TEMPORARY: Final = ".tmp"

SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
LOCK: Final = ".lock"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
SEGMENT_SIZES: Final = "barnabas-segment-sizes"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"

DIR_DELETE: Final = "-delete"
DIR_FUTURE: Final = "-future"
DIR_STRAY: Final = "-stray"

_PLAIN_DIR: Final = re.compile(r"(\S+)-(\d+)\Z")
_MARKED_DIR: Final = re.compile(r"(\S+)-(\d+)\.([0-9a-f]{32})(-delete|-future|-stray)\Z")
_DIR_NAME_MAX: Final = 255


def parse_partition_dir(name: str) -> tuple[TopicPartition, str] | None:
    """The partition that a directory belongs to, and the name's mark ("", "-delete", "-future" or "-stray")."""
    found = _MARKED_DIR.match(name)
    if found:
        return TopicPartition(found[1], int(found[2])), found[4]
    found = _PLAIN_DIR.match(name)
    return (TopicPartition(found[1], int(found[2])), "") if found else None


def marked_dir(partition: TopicPartition, unique: UUID, mark: str) -> str:
    """A name such as `topic-3.0af…-delete`. As in Kafka, a long topic name is shortened for -delete, since the name is
    not parsed again."""
    suffix = f"-{partition.partition}.{unique.hex}{mark}"
    topic = partition.topic
    if len(topic) + len(suffix) > _DIR_NAME_MAX:
        if mark == DIR_FUTURE:
            raise LogDirError(f"the name of a future directory for {partition} would exceed {_DIR_NAME_MAX} characters")
        topic = topic[: _DIR_NAME_MAX - len(suffix)]
    return topic + suffix
