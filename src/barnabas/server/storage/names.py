"""Table: the names of files in a log directory (Kafka's `LogFileUtils` and `LocalLog`).

A partition's directory holds, per segment, files named by the segment's base offset in 20 digits:

    .log .index .timeindex .txnindex     records and their indexes
    .snapshot                            producer state as of that offset (this one may lie between segments)

Each of these names may have a second suffix: `.deleted` (the file is unlinked after file.delete.delay.ms), `.cleaned`
(compaction is writing the file; recovery deletes it), `.swap` (compaction has completed the file; recovery finishes the
replacement).
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from barnabas.core.ids import TopicPartition
from barnabas.server.storage.errors import LogDirError

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TEMPORARY: Final = ".tmp"

SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
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

_OFFSET_NAME: Final = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)((?:\.[a-z]+)?)\Z")
_PLAIN_DIR: Final = re.compile(r"(\S+)-(\d+)\Z")
_MARKED_DIR: Final = re.compile(r"(\S+)-(\d+)\.([0-9a-f]{32})(-delete|-future|-stray)\Z")
_DIR_NAME_MAX: Final = 255


def offset_file(base_offset: int, suffix: str) -> str:
    """`00000000000000000042.log` for (42, ".log")."""
    return f"{base_offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[int, str, str] | None:
    """(base offset, kind, second suffix or ""), or None if the name is not that of a segment's file."""
    found = _OFFSET_NAME.match(name)
    return (int(found[1]), found[2], found[3]) if found else None


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
