"""Value: the errors that all capture sources share. Each message says what happened and what to do next.

SparkSourceError
└─ CaptureError
   ├─ StagingError        a staged snapshot is missing, incomplete, or belongs to another source
   └─ TableChangedError   a table has changed so that the query cannot go on with its columns (output=rows)
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.spark.errors import SparkSourceError


class CaptureError(SparkSourceError):
    """The base class of the errors of the shared part of capture sources."""


class StagingError(CaptureError):
    """The directory of staged snapshots cannot be used as it is."""


class TableChangedError(CaptureError):
    """The captured table has other columns than the query, whose columns Spark has fixed at its start."""


def not_sent(table: str, columns: Sequence[str], otherwise: str) -> CaptureError:
    """The error for columns of a table whose values the database did not send. `otherwise` ends the message: what to do
    about changes that are written already.
    """
    return CaptureError(
        f"an update of {table} did not change the large values of {', '.join(columns)}, and the database did not send"
        f" them. Make it send whole old rows from now on (PostgreSQL: ALTER TABLE {table} REPLICA IDENTITY FULL,"
        " after the same for each partition), and read the changes until then with"
        f" unavailable.value.handling.mode=null, which sends null for such values{otherwise}"
    )
