"""Value: the result of a decision of a state machine about replicated state.

`decide` reads and returns a Decision; the driver applies the records, appends them to the log and releases the response
once they are committed. docs/ARCHITECTURE.md explains this pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct, field

RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")


class Decision(Struct, Generic[RecordT, ResponseT], frozen=True):
    """The records to append (all or none), and the response to send after they are committed."""

    response: ResponseT
    records: Sequence[RecordT] = field(default_factory=tuple)
