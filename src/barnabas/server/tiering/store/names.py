"""Table: the names of the objects of a remote segment.

    <prefix><topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id><suffix>

The suffixes are those of the files of a log directory, and the objects have the bytes of these files.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.ids import uuid_to_text
from barnabas.protocol.records.log_files import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX
from barnabas.server.storage.names import LEADER_EPOCH_CHECKPOINT
from barnabas.server.tiering.values import RemoteSegment

LEADER_EPOCHS: Final = f".{LEADER_EPOCH_CHECKPOINT}"
SUFFIXES: Final = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT, LEADER_EPOCHS, LOG)
"""In the order in which a segment is copied: the largest object is the last."""


def object_name(segment: RemoteSegment, suffix: str, prefix: str = "") -> str:
    """The name of one object of `segment`."""
    partition = segment.id.partition
    directory = f"{prefix}{partition.topic}-{uuid_to_text(partition.topic_id)}/{partition.partition}"
    return f"{directory}/{segment.start_offset:020d}-{uuid_to_text(segment.id.id)}{suffix}"
