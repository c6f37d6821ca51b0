"""Value: the errors that all capture sources share. Each message says what happened and what to do next.

SparkSourceError
└─ CaptureError
   ├─ LostPositionError   the position belongs to something else now, or changes after it are gone
   ├─ NewStartError       a task has found such a loss, and the next start of the query starts anew
   ├─ StagingError        a staged snapshot is missing, incomplete, or belongs to another source
   └─ TableChangedError   a table has changed so that the query cannot go on with its columns (output=rows)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.spark.errors import SparkSourceError


class CaptureError(SparkSourceError):
    """The base class of the errors of the shared part of capture sources."""


class LostPositionError(CaptureError):
    """The query cannot go on from its position: the database that has the name now is another one, or it has lost
    changes after the position. Only a new snapshot goes on. The sources derive their own errors from this class.
    """


class NewStartError(CaptureError):
    """A task has found that changes of its micro-batch are lost, and has noted that in stagingLocation. With
    failOnDataLoss=false, the query starts anew when it is started again.
    """


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
        " after the same for each partition; MySQL: binlog_row_image=FULL in every session), and read the changes until"
        " then with unavailable.value.handling.mode=reselect, which reads such values from the table, or with null,"
        f" which sends null{otherwise}"
    )


def row_is_gone(table: str, column: str, key: Mapping[str, object]) -> CaptureError:
    """The error for a row whose key was changed, and whose unchanged value cannot be read from the table any more."""
    shown = ", ".join(f"{name}={value!r}" for name, value in key.items()) or "without a key"
    return CaptureError(
        f"a row of {table} has the new key {shown}. Its large value of {column} did not change, so that the database"
        " did not send it, and the table does not have the row any more, or has no such column any more. Make the"
        f" database send whole old rows from now on (PostgreSQL: ALTER TABLE {table} REPLICA IDENTITY FULL, after the"
        " same for each partition), and read the changes until then with unavailable.value.handling.mode=reselect,"
        " which sends null for it: a later change removes the row, or the column"
    )
