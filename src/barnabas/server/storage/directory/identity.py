"""Shell: the files that identify a data directory and the topic of a log.

A data directory has `meta.properties` (KIP-858): version=1, cluster.id, node.id, directory.id. Between a clean stop and
the next start it also has `.kafka_cleanshutdown`: {"version":0,"brokerEpoch":7}. A partition's directory has
`partition.metadata` (KIP-516): version: 0, topic_id: <22 characters>. Without it nothing tells whose records a log has:
the topic may have been deleted and created again while the broker was down. So a log is not used whose file cannot be
read, unless the log has never had a record.
"""

from __future__ import annotations

import json
from uuid import UUID

from barnabas.core.ids import NO_TOPIC_ID
from barnabas.protocol.records.errors import LogFileError
from barnabas.protocol.records.log_files import MetaProperties, decode_topic_id, encode_topic_id
from barnabas.server.storage import names
from barnabas.server.storage.errors import CorruptFileError, FileMissingError
from barnabas.server.storage.fs import FileSystem, read_file, replace_file


def read_meta_properties(fs: FileSystem, directory: str) -> MetaProperties | None:
    """Read meta.properties. None if the file does not exist. Raises CorruptFileError."""
    path = f"{directory}/{names.META_PROPERTIES}"
    try:
        data = read_file(fs, path)
    except FileMissingError:
        return None
    try:
        return MetaProperties.decode(data, path)
    except LogFileError as error:
        raise CorruptFileError(str(error)) from None


def read_topic_id(fs: FileSystem, directory: str) -> UUID | None:
    """Read the topic id from partition.metadata. None if the file does not exist. Raises CorruptFileError."""
    path = f"{directory}/{names.PARTITION_METADATA}"
    try:
        data = read_file(fs, path)
    except FileMissingError:
        return None
    topic_id = decode_topic_id(data)
    if topic_id is None or topic_id == NO_TOPIC_ID:
        raise CorruptFileError(f"{path} is {'damaged' if data.strip(bytes(1)) else 'empty'}: it should have a topic id")
    return topic_id


def write_topic_id(fs: FileSystem, directory: str, topic_id: UUID, *, durable: bool) -> None:
    """Write or replace partition.metadata. Without `durable`, the caller has to call `LogDir.sync_created`."""
    replace_file(fs, f"{directory}/{names.PARTITION_METADATA}", encode_topic_id(topic_id), durable=durable)


def take_clean_shutdown(fs: FileSystem, directory: str) -> tuple[bool, int]:
    """Whether the previous process shut down cleanly, and its broker epoch (-1 if unknown, because it had none or the
    marker is damaged). Deletes the marker file durably."""
    path = f"{directory}/{names.CLEAN_SHUTDOWN}"
    try:
        data = read_file(fs, path)
    except FileMissingError:
        return False, -1
    fs.unlink(path)
    fs.sync_dir(directory)  # if the marker reappeared after a power failure, logs would not be recovered
    try:
        return True, int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return True, -1


def leave_clean_shutdown(fs: FileSystem, directory: str, broker_epoch: int) -> None:
    mark = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
    replace_file(fs, f"{directory}/{names.CLEAN_SHUTDOWN}", mark)
