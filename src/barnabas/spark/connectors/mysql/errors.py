"""Value: the errors of the MySQL and MariaDB source. Each message says what happened and what to do next.

SparkSourceError
└─ MysqlSourceError
   ├─ BinlogError             the bytes of an event do not have the documented layout, or its checksum is wrong
   │  └─ BinlogLimitError     an event or a transaction is larger than the source's limit
   ├─ UnsupportedBinlogError  the event or the column is well-formed, and this source cannot read it
   ├─ BinlogPurgedError       the server has deleted binlogs that the source has not read, or reports an incident
   ├─ PositionError           a position is invalid, or the server does not have the history that it belongs to
   │  ├─ HistoryLostError     the server has another history than the one that the position belongs to
   │  └─ ServerBehindError    the server does not have the transactions yet: a replica that lags
   ├─ ServerSetupError        a setting or a privilege of the server does not allow row-based capture
   ├─ ServerConnectionError  the server cannot be reached, or the connection was lost again and again
   └─ SnapshotError        the snapshot cannot be taken, or a row of it cannot be read
"""

from __future__ import annotations

from typing import Final

from barnabas.spark.connectors.capture.errors import LostPositionError
from barnabas.spark.errors import SparkSourceError

START_OVER: Final = (
    "start the query over with a new checkpoint and an empty stagingLocation, or set failOnDataLoss=false: it reads a"
    " new snapshot then"
)
"""What helps if the server does not have the history of a position: the end of a message."""


class MysqlSourceError(SparkSourceError):
    """The base class of the errors of this package."""


class BinlogError(MysqlSourceError):
    """The bytes of a binlog event are damaged or truncated. The message names the position."""


class BinlogLimitError(BinlogError):
    """An event or a transaction needs more memory than the source may use."""


class UnsupportedBinlogError(MysqlSourceError):
    """The source cannot read a well-formed event or column. The message has the statement to run."""


class BinlogPurgedError(MysqlSourceError, LostPositionError):
    """Changes after the source's position are lost. A new snapshot is needed."""


class PositionError(MysqlSourceError, ValueError):
    """A GTID set or a binlog position cannot be parsed, or the server's binlogs are not those of the position."""


class HistoryLostError(PositionError, LostPositionError):
    """The server's binlogs are not those that the query has read, and never will be."""


class ServerBehindError(PositionError):
    """The server lacks transactions that the query has read. A replica that lags will have them."""


class ServerSetupError(MysqlSourceError):
    """The server cannot be captured as it is set up. The message lists the statements to run."""


class ServerConnectionError(MysqlSourceError):
    """The server cannot be reached, refuses the login, or the connection was lost again and again."""


class SnapshotError(MysqlSourceError):
    """The snapshot cannot be taken at one moment, or a row of it cannot be read."""
