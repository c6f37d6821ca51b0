"""Value: the errors of the PostgreSQL source. Each message says where, what happened, and what to do next.

SparkSourceError
└─ PostgresError
   ├─ PgoutputError     a message of logical decoding is malformed or unknown
   ├─ ChangeOrderError  messages are in an order that logical decoding never gives
   ├─ PostgresValueError  a value cannot be read in the type of its column
   └─ SlotError         the slot, the publication or the server is not usable; `sql` is the statement to run
      ├─ SlotLostError  the position belongs to another server or history, or the slot has lost changes after it
      ├─ NoTableError   there is no such table
      ├─ SlotInUseError  another session reads the slot
      └─ ServerNotReadyError  the server or its tables cannot be read at this moment
"""

from __future__ import annotations

from barnabas.spark.connectors.capture.errors import LostPositionError
from barnabas.spark.errors import SparkSourceError


class PostgresError(SparkSourceError):
    """The base class of the errors of the PostgreSQL source."""


class PgoutputError(PostgresError):
    """A message of the output plugin pgoutput is malformed or unknown."""


class ChangeOrderError(PostgresError):
    """The messages of a slot are in an order that logical decoding never gives."""


class PostgresValueError(PostgresError):
    """A value in text form cannot be read in the type of its column."""


class SlotError(PostgresError):
    """The slot, the publication or the server cannot be used as it is.

    `sql` holds the statements that change that, each for a role with the privileges that the message names; it is
    empty if no statement can.
    """

    def __init__(self, message: str, sql: tuple[str, ...] = ()) -> None:
        run = "" if not sql else " Run: " + " ".join(f"{statement};" for statement in sql)
        super().__init__(message + run)
        self.sql = sql


class SlotLostError(SlotError, LostPositionError):
    """The query cannot go on from its position in the server's log."""


class NoTableError(SlotError):
    """The database has no table of that name."""


class SlotInUseError(SlotError):
    """Another session of the server reads the slot at this moment."""


class ServerNotReadyError(SlotError):
    """The server or its tables cannot be read at this moment: a standby before its promotion, DDL that is under way."""
