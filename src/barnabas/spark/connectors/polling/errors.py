"""Value: the errors of polling sources. Each message says what happened and what to do next.

SparkSourceError
└─ PollingError
   ├─ PolledTableError     a table, a column or its type does not fit the mode of the query
   ├─ PolledValueError     a value cannot be read in the type of its column
   └─ DatabaseLockedError  another process has locked the file of the database
"""

from __future__ import annotations

from barnabas.spark.errors import SparkSourceError


class PollingError(SparkSourceError):
    """The base class of the errors of polling sources."""


class PolledTableError(PollingError):
    """There is no such table or column, or it cannot be polled in this mode."""


class PolledValueError(PollingError):
    """A value of a row cannot be read in the type that its column has."""


class DatabaseLockedError(PollingError):
    """The file of a database is locked. The source tries again a few times."""
