"""Value: the errors that all capture sources share. Each message says what happened and what to do next.

SparkSourceError
└─ CaptureError
   ├─ StagingError        a staged snapshot is missing, incomplete, or belongs to another source
   └─ TableChangedError   a table has changed so that the query cannot go on with its columns (output=rows)
"""

from __future__ import annotations

from barnabas.spark.errors import SparkSourceError


class CaptureError(SparkSourceError):
    """The base class of the errors of the shared part of capture sources."""


class StagingError(CaptureError):
    """The directory of staged snapshots cannot be used as it is."""


class TableChangedError(CaptureError):
    """The captured table has other columns than the query, whose columns Spark has fixed at its start."""
