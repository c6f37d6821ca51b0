"""Codec: the paths of the znodes in ZooKeeper, and their contents.

    /cluster/id                       {"version":"1","id":...}: the cluster's id, written once           Kafka's
    /brokers/ids/N                    ephemeral: the broker that uses this id, and its listeners         Kafka's
    /controller                       ephemeral: the active controller                                   Kafka's +
    /controller_epoch                 increases with each election; its znode version fences controllers Kafka's
    /barnabas/metadata/tail           the end offset of the log, and the newest snapshot
    /barnabas/metadata/log/<offset>   an entry: the batches from <offset> on
    /barnabas/metadata/log/<offset>-<epoch>-<part>    the parts of an entry that is too large for one znode
    /barnabas/metadata/snapshots/<offset>-<epoch>-<chunk>

An entry, a part or a chunk belongs to the log only after the transaction that changes `tail` to include it. Names have
20 digits for offsets, 10 for epochs and 6 for parts, so that they sort in numerical order.

Znodes marked "Kafka's" have the path and contents that Kafka with ZooKeeper gives them; "+" marks additional fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.server.metadata.errors import MetadataError

CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
TAIL: Final = "/barnabas/metadata/tail"
LOG: Final = "/barnabas/metadata/log"
SNAPSHOTS: Final = "/barnabas/metadata/snapshots"

_BROKER_VERSION: Final = 5
_CONTROLLER_VERSION: Final = 2
_TAIL_VERSION: Final = 1


class SnapshotInfo(Struct, frozen=True):
    """A complete snapshot: all state before `end_offset`."""

    name: str
    end_offset: int
    epoch: int
    timestamp_ms: int
    chunks: int


class LogTail(Struct, frozen=True):
    """The extent of the log. Entries below `start_offset` may be deleted."""

    epoch: int = 0
    end_offset: int = 0
    start_offset: int = 0
    snapshot: SnapshotInfo | None = None


class ControllerInfo(Struct, frozen=True):
    """The node in /controller, its epoch, and the address of its controller listener."""

    node_id: int
    epoch: int
    host: str
    port: int


def base_znodes() -> tuple[tuple[str, bytes], ...]:
    """The znodes that must exist before the log is used, parents first."""
    return (
        ("/brokers", b""),
        (BROKER_IDS, b""),
        (CONTROLLER_EPOCH, b"0"),
        ("/barnabas", b""),
        ("/barnabas/metadata", b""),
        (LOG, b""),
        (SNAPSHOTS, b""),
        (TAIL, write_tail(LogTail())),
    )


# ---- names


def broker_path(node_id: int) -> str:
    return f"{BROKER_IDS}/{node_id}"


def entry_path(offset: int) -> str:
    return f"{LOG}/{offset:020d}"


def part_path(offset: int, epoch: int, part: int) -> str:
    return f"{LOG}/{offset:020d}-{epoch:010d}-{part:06d}"


def snapshot_name(end_offset: int, epoch: int) -> str:
    """`epoch` is the epoch of the controller that writes the snapshot, so two controllers never use the same name."""
    return f"{end_offset:020d}-{epoch:010d}"


def chunk_path(name: str, chunk: int) -> str:
    return f"{SNAPSHOTS}/{name}-{chunk:06d}"


def entry_offsets(names: Sequence[str]) -> list[int]:
    """The offsets in `names` (the children of `log`) that are names of entries, ascending."""
    return sorted(int(name) for name in names if len(name) == 20 and name.isdigit())


# ---- contents


def write_parts(offset: int, epoch: int, parts: int) -> bytes:
    """Encode, as JSON, the contents of an entry whose batches are in parts. `read_parts` recognises such an entry by
    the brace at its start, because a batch never begins with a brace."""
    return _dump({"parts": [part_path(offset, epoch, part) for part in range(parts)]})


def read_parts(data: bytes) -> tuple[str, ...] | None:
    """The paths of the parts of an entry; None if the entry contains its batches."""
    return tuple(map(str, _load(data, LOG)["parts"])) if data[:1] == b"{" else None


def write_tail(tail: LogTail) -> bytes:
    snapshot = tail.snapshot
    return _dump(
        {
            "version": _TAIL_VERSION,
            "epoch": tail.epoch,
            "end_offset": tail.end_offset,
            "start_offset": tail.start_offset,
            "snapshot": None
            if snapshot is None
            else {
                "name": snapshot.name,
                "end_offset": snapshot.end_offset,
                "epoch": snapshot.epoch,
                "timestamp_ms": snapshot.timestamp_ms,
                "chunks": snapshot.chunks,
            },
        }
    )


def read_tail(data: bytes) -> LogTail:
    """Decode `tail`. Raises MetadataError if `data` is invalid or has an unknown version."""
    fields = _load(data, TAIL)
    if fields.get("version") != _TAIL_VERSION:
        raise MetadataError(
            f"{TAIL} has version {fields.get('version')}, but this version of Barnabas supports only "
            f"{_TAIL_VERSION}. Run the version of the other nodes."
        )
    try:
        kept = fields["snapshot"]
        snapshot = (
            None
            if kept is None
            else SnapshotInfo(kept["name"], kept["end_offset"], kept["epoch"], kept["timestamp_ms"], kept["chunks"])
        )
        return LogTail(fields["epoch"], fields["end_offset"], fields["start_offset"], snapshot)
    except (KeyError, TypeError) as error:
        raise MetadataError(f"{TAIL} cannot be decoded, the field {error} is missing: {data[:200]!r}") from error


def write_controller(info: ControllerInfo, now_ms: int) -> bytes:
    """Encode Kafka's fields, and the epoch and the address of the controller."""
    return _dump(
        {
            "version": _CONTROLLER_VERSION,
            "brokerid": info.node_id,
            "timestamp": str(now_ms),
            "kraftControllerEpoch": -1,
            "epoch": info.epoch,
            "host": info.host,
            "port": info.port,
        }
    )


def read_controller(data: bytes) -> ControllerInfo:
    """Decode /controller. Raises MetadataError if Barnabas did not write it."""
    fields = _load(data, CONTROLLER)
    try:
        return ControllerInfo(int(fields["brokerid"]), int(fields["epoch"]), str(fields["host"]), int(fields["port"]))
    except (KeyError, ValueError, TypeError) as error:
        raise MetadataError(
            f"{CONTROLLER} was not written by Barnabas ({data[:200]!r}): another cluster uses this path in ZooKeeper. "
            "Use a path of its own for this cluster: zookeeper.connect=host:port/name"
        ) from error


def read_controller_epoch(data: bytes) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise MetadataError(f"{CONTROLLER_EPOCH} is not a number: {data[:80]!r}") from error


def write_broker(endpoints: Sequence[ListenerEndpoint], rack: str | None, now_ms: int) -> bytes:
    """Encode the contents of /brokers/ids/N as version 5 of Kafka's BrokerIdZNode. Its fields `host` and `port`, for
    readers of older versions, have the address of the first PLAINTEXT listener."""
    plain = next((endpoint for endpoint in endpoints if endpoint.security_protocol == "PLAINTEXT"), None)
    fields: dict[str, Any] = {
        "version": _BROKER_VERSION,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "endpoints": [str(endpoint) for endpoint in endpoints],
        "listener_security_protocol_map": {endpoint.name: endpoint.security_protocol for endpoint in endpoints},
        "features": {},
    }
    if rack is not None:
        fields["rack"] = rack
    return _dump(fields)


def write_cluster_id(cluster_id: str) -> bytes:
    return _dump({"version": "1", "id": cluster_id})


def read_cluster_id(data: bytes) -> str:
    found = _load(data, CLUSTER_ID).get("id")
    if not isinstance(found, str) or not found:
        raise MetadataError(f"{CLUSTER_ID} has no id: {data[:200]!r}")
    return found


def _dump(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _load(data: bytes, path: str) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise MetadataError(f"{path} is not valid JSON: {data[:200]!r}") from error
    if not isinstance(fields, dict):
        raise MetadataError(f"{path} is not a JSON object: {data[:200]!r}")
    return fields
