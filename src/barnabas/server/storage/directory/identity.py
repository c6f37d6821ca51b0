"""Codec: the files that identify a data directory and the topic of a log.

A data directory has `meta.properties` (KIP-858): version=1, cluster.id, node.id, directory.id. Between a clean stop and
the next start it also has `.kafka_cleanshutdown`: {"version":0,"brokerEpoch":7}. A partition's directory has
`partition.metadata` (KIP-516): version: 0, topic_id: <22 characters>.
"""

from __future__ import annotations

import json
from uuid import UUID

from barnabas.protocol.records.errors import LogFileError
from barnabas.protocol.records.log_files import MetaProperties, decode_topic_id, encode_topic_id
from barnabas.server.storage import names
from barnabas.server.storage.errors import CorruptFileError, FileMissingError
from barnabas.server.storage.fs import Access, FileSystem, read_file, replace_file


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
    """Read the topic id from partition.metadata. None if the file is missing or invalid; a crash can leave it empty."""
    try:
        return decode_topic_id(read_file(fs, f"{directory}/{names.PARTITION_METADATA}"))
    except FileMissingError:
        return None


def write_topic_id(fs: FileSystem, directory: str, topic_id: UUID) -> None:
    """Write the topic id into a new directory, without a sync.

    A file that a crash leaves incomplete counts as missing.
    """
    data = encode_topic_id(topic_id)
    path = f"{directory}/{names.PARTITION_METADATA}"
    if fs.exists(path):
        replace_file(fs, path, data, durable=False)
        return
    file = fs.open(path, Access.REPLACE)
    try:
        file.write_at(0, (data,))
    finally:
        file.close()


def take_clean_shutdown(fs: FileSystem, directory: str) -> tuple[bool, int]:
    """Whether the previous process shut down cleanly, and its broker epoch (-1 if unknown). Deletes the marker file
    durably."""
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
