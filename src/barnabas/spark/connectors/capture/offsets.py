"""Codec: the offset of a capture query in Spark's checkpoint.

    {"snapshot": null, "position": null}                                          before the first micro-batch
    {"snapshot": {"id": "5f..", "read": 2, "left": 3}, "position": {..}}          while the snapshot is read
    {"snapshot": {"id": "5f..", "read": 5, "left": 0}, "position": {..}}          changes follow

`read` and `left` count staged files. `position` is the source's own (`ports.Position`); while the snapshot is read, it
is that of the snapshot. `heartbeat` is there once a heartbeat was due: its time in ms since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from barnabas.spark.connectors.capture.errors import CaptureError


class SnapshotProgress(Struct, frozen=True):
    """How much of a staged snapshot is read."""

    id: str
    read: int
    left: int


class CaptureOffset(Struct, frozen=True, omit_defaults=True):
    """Where a query stands."""

    snapshot: SnapshotProgress | None = None
    position: dict[str, Any] | None = None
    heartbeat: int = 0

    def to_json(self) -> dict[str, Any]:
        """The JSON object for Spark; equal offsets give equal objects."""
        value: dict[str, Any] = {"snapshot": msgspec.to_builtins(self.snapshot), "position": self.position}
        if self.heartbeat:
            value["heartbeat"] = self.heartbeat
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CaptureOffset:
        """Raises CaptureError if the object is not an offset of a capture query."""
        try:
            offset = msgspec.convert(dict(value), cls)
        except msgspec.ValidationError as error:
            raise CaptureError(
                f"the offset {value} in the checkpoint is not that of a capture query ({error}): use the checkpoint of"
                " this query, or a new one"
            ) from None
        if (offset.snapshot is None) != (offset.position is None):
            raise CaptureError(f"the offset {value} has a snapshot or a position, not both: use a new checkpoint")
        return offset


START = CaptureOffset()
"""The offset of a query that has read nothing."""
