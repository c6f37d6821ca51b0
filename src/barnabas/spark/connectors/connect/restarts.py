"""Machine: when a query that has failed is started again."""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_MS: Final = 1_000
PAUSE_MAX_MS: Final = 60_000


class QueryRestarts:
    """Counts the consecutive failures of one query. A finished micro-batch sets the count to 0."""

    def __init__(self) -> None:
        self.failure: str | None = None
        """The last failure; None while the query runs."""
        self.is_final = False
        self._count = 0
        self._due_ms = 0
        self._batch_id: int | None = None

    def on_failed(self, failure: str, now_ms: int, *, is_final: bool) -> None:
        """The query has ended, or could not be started. `is_final`: another attempt would be no better."""
        self.failure, self.is_final = failure, is_final
        self._due_ms = now_ms + min(FIRST_PAUSE_MS << min(self._count, 16), PAUSE_MAX_MS)
        self._count += 1

    def is_due(self, now_ms: int) -> bool:
        """Whether the query is to be started again now."""
        return self.failure is not None and not self.is_final and now_ms >= self._due_ms

    def on_restarted(self) -> None:
        self.failure = None
        self._batch_id = None

    def on_progress(self, batch_id: int) -> None:
        """The query runs, and this is the last micro-batch that it has finished (-1: none)."""
        if batch_id >= 0 and self._batch_id != batch_id:
            self._batch_id = batch_id
            self._count = 0
