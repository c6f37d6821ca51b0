"""Value: the errors of lake tables. Each message says what to do next."""

from __future__ import annotations

from barnabas.spark.errors import SinkError, SparkSourceError


class LakeError(SinkError):
    """Rows cannot be written to a lake table, or the table cannot be created or changed as they need it."""


class LakeConflictError(LakeError):
    """Other writers have committed again and again before this one. Nothing is lost, and a new start tries it again."""


class LakeUnavailableError(LakeError):
    """The storage of a lake table does not answer, or its options are wrong."""


class LakeReadError(SparkSourceError):
    """A lake table cannot be read."""
