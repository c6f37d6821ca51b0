"""Value: what a machine answers when it is asked to change replicated state.

`decide` reads and returns a Decision; the driver applies the records, appends them to the log and releases the response
once they are committed. See the second of the four ideas in docs/ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct, field

RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")


class Decision(Struct, Generic[RecordT, ResponseT], frozen=True):
    """Records to append (all or none), and the response to give when they have been committed."""

    response: ResponseT
    records: Sequence[RecordT] = field(default_factory=tuple)
