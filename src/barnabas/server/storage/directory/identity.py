"""Codec: the files that identify a data directory and the topic of a log.

A data directory has `meta.properties` (KIP-858): version=1, cluster.id, node.id, directory.id. Between a clean stop and
the next start it also has `.kafka_cleanshutdown`: {"version":0,"brokerEpoch":7}. A partition's directory has
`partition.metadata` (KIP-516): version: 0, topic_id: <22 characters>.
"""

from __future__ import annotations

import json
import re
from typing import Final
from uuid import UUID

from msgspec import Struct

from barnabas.core.ids import uuid_from_text, uuid_to_text
from barnabas.core.properties import parse_properties, render_properties
from barnabas.server.storage import names
from barnabas.server.storage.errors import CorruptFileError, FileMissingError
from barnabas.server.storage.fs import Access, FileSystem, read_file, replace_file

_TOPIC_ID: Final = re.compile(r"version: 0\s+topic_id: (\S{22})\s*\Z")


class MetaProperties(Struct, frozen=True):
    """The cluster and node of a data directory, and the id of the directory (KIP-858)."""

    cluster_id: str
    node_id: int
    directory_id: UUID | None

    def encode(self) -> bytes:
        values = {"version": "1", "cluster.id": self.cluster_id, "node.id": str(self.node_id)}
        if self.directory_id is not None:
            values["directory.id"] = uuid_to_text(self.directory_id)
        return render_properties(values).encode()

    @classmethod
    def decode(cls, data: bytes, what: str) -> MetaProperties:
        """Version 1, or 0 with `broker.id` (written by ZooKeeper-based brokers). Raises CorruptFileError."""
        try:
            values = parse_properties(data.decode())
            version = values.get("version", "0")
            if version not in ("0", "1"):
                raise CorruptFileError(f"{what} has version {version}; versions 0 and 1 are known")
            node_id = int(values["node.id"] if version == "1" else values["broker.id"])
            directory = values.get("directory.id")
            return cls(values["cluster.id"], node_id, uuid_from_text(directory) if directory else None)
        except KeyError as e:
            raise CorruptFileError(f"{what} lacks {e.args[0]}") from None
        except ValueError as e:
            raise CorruptFileError(f"{what} cannot be read: {e}") from None


def read_meta_properties(fs: FileSystem, directory: str) -> MetaProperties | None:
    """Read meta.properties. None if the file does not exist. Raises CorruptFileError."""
    path = f"{directory}/{names.META_PROPERTIES}"
    try:
        return MetaProperties.decode(read_file(fs, path), path)
    except FileMissingError:
        return None


def read_topic_id(fs: FileSystem, directory: str) -> UUID | None:
    """Read the topic id from partition.metadata. None if the file is missing or invalid; a crash can leave it empty."""
    try:
        found = _TOPIC_ID.match(read_file(fs, f"{directory}/{names.PARTITION_METADATA}").decode("latin-1"))
        return uuid_from_text(found[1]) if found else None
    except (FileMissingError, ValueError):
        return None


def write_topic_id(fs: FileSystem, directory: str, topic_id: UUID) -> None:
    """Write the topic id into a new directory, without a sync.

    A file that a crash leaves incomplete counts as missing.
    """
    data = f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()
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
