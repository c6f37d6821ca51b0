"""Port: the events of a log, for the log's directory, the partition that uses the log, and the directory mover."""

from __future__ import annotations

from barnabas.server.storage.errors import StorageError


class LogListener:
    """Receives the events of one log, on the event loop. Every method does nothing unless a subclass overrides it.

    Listeners are called in the order of their registration (`Log.add_listener`), during the operation on the log that
    causes the event.
    """

    def on_failed(self, error: StorageError) -> None:
        """The log has failed and is offline from now on. Called once."""

    def on_durable(self) -> None:
        """A flush has raised `durable_offset`."""

    def on_log_start_advanced(self) -> None:
        """`log_start_offset` has been raised."""

    def on_truncated(self) -> None:
        """Records have been removed from the end of the log; `log_end_offset` is the new end."""

    def on_recovery_point_lowered(self) -> None:
        """`recovery_point` has been lowered because synced records are about to be truncated.

        A recovery point that was stored before must not be used any more: with it, a restart after a crash would
        accept the truncated records without checking them.
        """

    def on_cleaned_offset_lowered(self) -> None:
        """`cleaned_offset` has been lowered because of a truncation."""
