"""Value: the errors of files. Each message says what to do next."""

from __future__ import annotations

from barnabas.spark.errors import SinkError, SparkSourceError


class FileReadError(SparkSourceError):
    """A file that the query has read is shorter now, is gone, or has another form than the query reads."""


class FileWriteError(SinkError):
    """Rows cannot be written in the format of the files."""
