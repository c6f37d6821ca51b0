"""Value: the errors of the sinks of databases. Each message says what happened and what to do next.

SinkError
└─ DatabaseSinkError         a statement failed; the message has the statement to run, if one helps
   ├─ DatabaseUnreachableError  the database cannot be reached, or the connection was lost: trying again may help
   ├─ DatabaseConflictError  another transaction was in the way (deadlock, lock time-out): trying again may help
   └─ RefusedRowsError       the database does not accept a value of a row
"""

from __future__ import annotations

from barnabas.spark.errors import SinkError


class DatabaseSinkError(SinkError):
    """A statement of the sink failed."""


class DatabaseUnreachableError(DatabaseSinkError):
    """The database cannot be reached, or the connection was lost. It is unknown whether a commit took place."""


class DatabaseConflictError(DatabaseSinkError):
    """Another transaction was in the way, and this one was rolled back."""


class RefusedRowsError(DatabaseSinkError):
    """The database does not accept a value, or a row breaks a constraint."""
