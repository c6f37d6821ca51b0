"""Port: what a database supplies to be captured, and what it gets for its snapshot.

    Connector     a database by its format's name: its options, and how its source is opened
    ChangeSource  one open source: setup, snapshot, positions, changes
    SnapshotStage where a source puts the rows of its snapshot

The driver may call all methods of a source; a worker calls only `read`, `snapshot_positions`, `snapshot_place` and
`close`. Each process opens a source of its own. No method may be called by two threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.events.changes import (
    ChangeBatch,
    ChangedTransaction,
    MySqlPositions,
    NoPositions,
    PostgresPositions,
    TableSchema,
)
from barnabas.spark.connectors.option_rows import ConnectorOption

if TYPE_CHECKING:
    from barnabas.spark.connectors.capture.output import CaptureOutput

Position = dict[str, Any]
"""Where changes are read from, as a JSON object that only the source understands. It is stored in Spark's checkpoint.

Equal places have equal positions: the reader compares a position with another one only for equality.
"""

LookedUp = Mapping[tuple[Any, ...], tuple[Any, ...]]
"""Key of a row -> its values, or GONE where its column is not there any more."""


class Gone(Enum):
    """Stands for the value of a column that a table does not have any more."""

    COLUMN = "column"


GONE: Final = Gone.COLUMN

RowPositions = PostgresPositions | MySqlPositions | NoPositions


class TableChange(Struct, frozen=True):
    """Changes of one table, and the place of each one in the history of the database.

    `places` are Arrow strings. As text, the place of a later change of the same row is greater than, or equal to, that
    of an earlier one. A place does not depend on how the history is divided into reads.
    """

    changes: ChangeBatch
    places: Any


class CapturedChanges(Struct, frozen=True):
    """What a source gives at once: whole transactions in commit order, at most some tens of megabytes unless one
    transaction is larger. `tables` has an element for each table and schema; `ordinal` in their changes puts the rows
    of all of them into one order. `transactions` is filled if the query wants transaction metadata.
    """

    tables: tuple[TableChange, ...]
    transactions: tuple[ChangedTransaction, ...] = ()


class SnapshotStage(Protocol):
    """Where a source puts the rows of its snapshot. Nothing of it is read before the snapshot is complete."""

    def write(self, table: TableSchema, batches: Iterable[Any]) -> None:
        """Store all rows of one table, as Arrow record batches with the table's columns; once for each table, also an
        empty one. Threads may call this at once, each with a table of its own.
        """


class ChangeSource(Protocol):
    """An open source of changes. Errors are SparkSourceErrors whose messages say what to do, with the statement to run.

    One start of a query calls, on the driver: `check`; then `take_snapshot`, if the query has no position and no
    complete snapshot is staged; then for each micro-batch `confirm`, `find_end`, and in a worker `read`.
    """

    @property
    def identity(self) -> str:
        """What tells this source from others, such as its database and slot. Known without a connection."""

    def check(self, position: Position | None, *, begun: bool, lost: Position | None = None) -> None:
        """Check the setup, and create what the source may create by itself. Raises if the query cannot run.

        `position` is where the changes continue; None if the query has none yet. A position that belongs to something
        else, or from which changes are lost, is refused with a LostPositionError. `lost` is such a position, if the
        query starts anew because of it: what it needed, such as a replication slot, may be removed, the position of
        the next snapshot is another one, and the places of all later rows follow those of the rows before. `begun`
        says that an earlier start of this same query called `take_snapshot`, which did not return: what it left behind
        may be removed. Called for each start of the query, for the end of the micro-batch that is repeated then, and
        for each new start, before the methods below.
        """

    def take_snapshot(self, stage: SnapshotStage, *, rows: bool, follow: bool) -> Position:
        """Write the rows of all tables, as they are at one moment, and return the position of that moment.

        `rows` is false if only the position is wanted. `follow` is false if no changes will be read from the position,
        so that the database need not keep them, and then `check` is not called. The position is valid even if the
        process dies right after the return.
        """

    def find_end(self, start: Position, bytes_max: int | None, until: Position | None) -> Position:
        """Where a micro-batch from `start` on may end now: behind changes that the database cannot lose any more.

        Equal to `start` if there is nothing to read and no need to move on. `bytes_max` limits the log of the database
        that is read, about. The result is not after `until`, which `find_target` returned, if that is given. Raises
        if changes from `start` on are gone.
        """

    def find_target(self, start: Position) -> Position:
        """The position at which a query with Trigger.AvailableNow that starts at `start` ends.

        `find_end` gets this position as `until`. It need not be a position from which changes can be read.
        """

    def read(self, start: Position, end: Position) -> Iterator[CapturedChanges]:
        """The changes of the transactions from `start` to `end`. The same two positions always give the same changes,
        in the same order and division, until `confirm` is called with a later position.
        """

    def confirm(self, position: Position) -> None:
        """Changes before `position` will not be read again: the database may remove them. Also called repeatedly."""

    def snapshot_positions(self, position: Position, rows: int) -> RowPositions:
        """The positions that the events of `rows` rows of a snapshot have, which was taken at `position`."""

    def snapshot_place(self, position: Position) -> str:
        """The place of all rows of a snapshot that was taken at `position`, not after that of any later change."""

    def read_tables(self) -> list[TableSchema]:
        """The captured tables with their current columns. Called before `check`, for the columns of output=rows."""

    def beat(self) -> None:
        """Run the statement of heartbeat.action.query, if the query has one."""

    def close(self) -> None:
        """Close the connections. The source cannot be used after that."""


class Connector(Struct, frozen=True):
    """A database that can be captured.

    `format` is the name for Spark, such as barnabas.postgres. `name` and `version` are what the source block of events
    says. `options` are those that other databases do not have, and `refused` names options that have no meaning here,
    with what to do instead. The functions are those of a module, since the connector is pickled.
    """

    format: str
    name: str
    version: str
    options: tuple[ConnectorOption, ...]
    refused: dict[str, str]
    open: Callable[[CaptureOptions], ChangeSource]
    is_alive: Callable[[ChangeSource], bool] | None = None
    """Whether the connections of an open source still work, so that the next task of a process can use it; None if each
    task opens a source of its own."""
    parse: Callable[[Mapping[str, str]], CaptureOptions] | None = None
    """Parses the options, if they are not those of CAPTURE_OPTIONS and `options`."""
    columns: Callable[[CaptureOptions, TableSchema | None], str] | None = None
    """The columns for Spark, as DDL, if they are not those of `output.output_ddl`."""
    look_up: Callable[[ChangeSource, ChangeBatch, tuple[int, ...], Sequence[tuple[Any, ...]]], LookedUp] | None = None
    """Reads values that the changes do not have from the table, by the keys of rows (`completing.LookUp`); None if the
    source cannot."""
    output: Callable[[CaptureOptions, Any], CaptureOutput] | None = None
    """Makes the output from the options and the Arrow schema, if it is not `CaptureOutput` itself."""
