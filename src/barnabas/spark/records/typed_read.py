"""Value: what the workers need to read typed records, and the columns that they read for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.core.reprs import repr_without
from barnabas.spark.records.formats import RecordFormats

if TYPE_CHECKING:
    from barnabas.spark.records.inference import Pinned

LETTER_COLUMNS: Final = ("key", "value", "offset", "timestamp", "headers")
"""The columns of a bad record that a dead letter needs."""


@dataclass(frozen=True)
class TypedRead:
    """What the typed rows of a query have: `target` is the Arrow schema that Spark expects."""

    formats: RecordFormats
    pinned: Pinned
    target: Any
    client: Mapping[str, str]

    __repr__ = repr_without("client")

    @property
    def raw_columns(self) -> tuple[str, ...]:
        """The columns to read from the log: those of the result, and those that reports of bad records need."""
        needed = LETTER_COLUMNS if self.formats.dead_letters is not None else ("offset",)
        return tuple(dict.fromkeys((*self.target.names, *needed)))
