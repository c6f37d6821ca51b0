"""Codec: the position of a polling query in Spark's checkpoint.

    {"mode": "incrementing", "number": 3, "poll": "polls/5f..", "files": 2, "read": 1, "tables": {"main.t": {..}},
     "marks": {"main.t": {"oid": "16402", "row": "{..}"}}}

The rows of a poll are staged in files before the position is returned; `read` of the `files` of the poll are before
the position. `tables` has the position of each table behind the poll (`sql.polling.Position`); it is empty for bulk.
`marks` has what tells each table from another one of its name, under `row` digests of the columns of the last row that
was read, and under `lsn` a position in PostgreSQL's log behind the rows that were read.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from barnabas.spark.connectors.capture.errors import CaptureError
from barnabas.spark.connectors.sql.polling import Position


class PollState(Struct, frozen=True):
    """Where a query stands. `number` counts polls that had rows."""

    mode: str
    number: int = 0
    poll: str | None = None
    files: int = 0
    read: int = 0
    tables: dict[str, Position] = field(default_factory=dict)
    marks: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def is_read(self) -> bool:
        """Whether all files of the poll are before the position."""
        return self.read == self.files

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value


class PollTarget(Struct, frozen=True):
    """Up to where a query with AvailableNow reads: the limit of each table (for bulk, none), and one poll of bulk."""

    limits: dict[str, str | int | float]
    number: int

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value


def decode_state(position: dict[str, Any]) -> PollState:
    """Raises CaptureError if the position is not one of a polling query."""
    found: PollState = _decode(position, PollState)
    return found


def decode_target(position: dict[str, Any]) -> PollTarget:
    found: PollTarget = _decode(position, PollTarget)
    return found


def _decode(position: dict[str, Any], kind: Any) -> Any:
    try:
        return msgspec.convert(position, kind)
    except msgspec.ValidationError as error:
        raise CaptureError(
            f"the position {position} in the checkpoint is not that of a polling query ({error}): a query keeps its"
            " mode, so use a new checkpoint and a new stagingLocation"
        ) from None
