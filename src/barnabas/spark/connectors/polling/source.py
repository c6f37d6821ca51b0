"""Shell: a ChangeSource (`capture/ports.py`) that polls tables or a query.

Databases do not keep what a poll has read, so the rows of a poll are staged in files before its end becomes a position:
a micro-batch that Spark repeats reads the same files. The files are deleted once the micro-batch is committed.

    driver    find_end    polls, stages the rows, and returns the position behind them
    workers   read        reads staged files

A poll has up to batch.max.rows of each table, but all rows for mode=bulk. Micro-batches divide a poll by its files.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import pyarrow as pa
from msgspec import structs

from barnabas.spark.connectors.capture.ports import CapturedChanges, Position, RowPositions, SnapshotStage
from barnabas.spark.connectors.capture.snapshot_rows import snapshot_change
from barnabas.spark.connectors.capture.staging import Staging, open_staging
from barnabas.spark.connectors.events.changes import NoPositions, TableSchema
from barnabas.spark.connectors.polling.columns import (
    check_columns,
    has_local_time,
    in_zone,
    initial_position,
    like_sample,
    mapped_batch,
    mapped_schema,
    table_name,
    time_digits,
    time_form,
    truncated,
)
from barnabas.spark.connectors.polling.errors import PolledTableError
from barnabas.spark.connectors.polling.options import NOW, PollingOptions
from barnabas.spark.connectors.polling.ports import PolledColumns, PolledDatabase
from barnabas.spark.connectors.polling.positions import PollState, PollTarget, decode_state, decode_target
from barnabas.spark.connectors.sql import polling
from barnabas.spark.connectors.sql.polling import IncrementingLimit, Observation, PolledTable, PollingMode
from barnabas.spark.errors import DataLossError, OptionError
from barnabas.spark.identities import Belonging, belonging, replaced

log = logging.getLogger("barnabas.spark")

SETTLE_SECONDS: Final = 10.0
"""How long AvailableNow waits, on top of the delay, for transactions to end that hold new numbers back."""
ROW: Final = "row"
"""The mark of the last row that was read: a digest of each of its first columns."""
_DIGESTS_MAX: Final = 16
_PAUSE_SECONDS: Final = 0.05
_SHOWN: Final = 20

Limit = str | int | float
T = TypeVar("T")


class PollingSource:
    """The rows of polled tables. `database` connects when it is used."""

    def __init__(self, options: PollingOptions, database: PolledDatabase) -> None:
        self._options = options
        self._database = database
        self._tables: list[PolledTable] = []
        self._listed_at: float | None = None
        self._next_poll = 0.0
        self._limits: dict[str, IncrementingLimit] = {}
        self._mode = options.template.mode
        self._staging: Staging | None = None

    @property
    def identity(self) -> str:
        what = "query" if self._options.template.query is not None else "tables"
        return f"poll of {what} of {self._options.address}"

    # -- setup

    def check(self, position: Position | None, *, begun: bool, lost: Position | None = None) -> None:
        if position is not None and decode_state(position).mode != self._mode:
            raise OptionError(
                f"the query was started with mode={decode_state(position).mode}, and has mode={self._mode} now: keep"
                " the mode, or start with a new checkpoint and a new stagingLocation"
            )
        self._patiently(self._check_tables)

    def _check_tables(self) -> None:
        for table in self._selected():
            self._columns(table)
        self._database.end_poll()

    def read_tables(self) -> list[TableSchema]:
        def read() -> list[TableSchema]:
            found = [mapped_schema(self._columns(table)[1].schema, self._options) for table in self._selected()]
            self._database.end_poll()
            return found

        return self._patiently(read)

    def _selected(self) -> list[PolledTable]:
        """The tables that are polled. They are searched for again after table.poll.interval.ms."""
        template = self._options.template
        if template.query is not None:
            return [template]
        now = time.monotonic()
        if self._listed_at is not None and now < self._listed_at + self._options.tables_ms / 1000:
            return self._tables
        found = sorted(self._database.list_tables(self._options.kinds))
        for name in self._options.given.get("table.whitelist"):
            if not any(name in (path[-1], ".".join(path)) for path in found):
                raise PolledTableError(f"there is no table {name}, which table.whitelist names: {_known(found)}")
        wanted = [path for path in found if self._options.wants_table(path)]
        if not wanted and self._listed_at is None:
            raise PolledTableError(
                f"no table is selected: {_known(found)}. Correct table.whitelist or table.include.list; views need"
                " table.types=VIEW"
            )
        self._tables = [structs.replace(template, path=path) for path in wanted]
        self._listed_at = now
        return self._tables

    def _columns(self, table: PolledTable) -> tuple[PolledTable, PolledColumns]:
        """The table with the form of its times, and its columns, checked."""
        columns = self._database.describe(table)
        check_columns(table, columns, checks_nulls=self._options.checks_nulls)
        if table.uses_time:
            table = structs.replace(table, time_form=time_form(table, columns))
            polling.check_table(table)
        return table, columns

    # -- the rows of a batch query

    def take_snapshot(self, stage: SnapshotStage, *, rows: bool, follow: bool) -> Position:
        if rows and not follow:
            self._patiently(lambda: self._copy(stage))
        return PollState(str(self._mode)).to_json()

    def _copy(self, stage: SnapshotStage) -> None:
        for table in self._selected():
            _, columns = self._columns(table)
            self._stage(stage, table, columns, polling.read_all(table, columns.selected))
        self._database.end_poll()

    # -- polls

    def find_target(self, start: Position) -> Position:
        state = decode_state(start)
        if self._mode is PollingMode.BULK:
            return PollTarget({}, state.number + 1).to_json()
        deadline = time.monotonic() + SETTLE_SECONDS + self._options.template.delay_ms / 1000

        def find() -> Position:
            limits = {}
            for each in self._selected():
                table, _ = self._columns(each)
                limit = self._settled_limit(table, deadline)
                if limit is not None:
                    limits[table_name(table)] = limit
            self._database.end_poll()
            return PollTarget(limits, 0).to_json()

        return self._patiently(find)

    def _settled_limit(self, table: PolledTable, deadline: float) -> Limit | None:
        """The limit below which everything is that was committed before the call, if transactions end in time."""
        limit = self._limit(table)
        if table.uses_time:
            return limit
        largest = self._largest(table)
        while largest is not None and (limit is None or int(limit) < largest):
            if time.monotonic() > deadline:
                log.warning("%s: numbers above %s are not final, and are left out", table_name(table), limit)
                break
            time.sleep(_PAUSE_SECONDS)
            limit = self._limit(table)
        return limit

    def find_end(self, start: Position, bytes_max: int | None, until: Position | None) -> Position:
        state = decode_state(start)
        if not state.is_read:
            return self._next_files(state, bytes_max).to_json()
        target = None if until is None else decode_target(until)
        if target is None and time.monotonic() < self._next_poll:
            return start
        if target is not None and self._mode is PollingMode.BULK and state.number >= target.number:
            return start
        polled = self._patiently(lambda: self._poll(state, target, bytes_max is None))
        return start if polled is None else self._next_files(polled, bytes_max).to_json()

    def _next_files(self, state: PollState, bytes_max: int | None) -> PollState:
        if not state.files:
            return state
        assert state.poll is not None
        files = self._open_staging().read_poll(state.poll).files
        read, size = state.read, 0
        while read < len(files) and (bytes_max is None or not size or size + files[read].bytes <= bytes_max):
            size += max(1, files[read].bytes)
            read += 1
        return structs.replace(state, read=read)

    def _poll(self, state: PollState, target: PollTarget | None, has_no_limit: bool) -> PollState | None:
        """Stage the rows that follow a position. None if there are none."""
        staging = self._open_staging()
        writer = staging.begin_poll(self.identity)
        taken_us = time.time_ns() // 1000
        tables, marks = dict(state.tables), dict(state.marks)
        is_full = False
        for each in self._selected():
            table, columns = self._columns(each)
            name = table_name(table)
            if self._mode is PollingMode.BULK:
                self._stage(writer, table, columns, polling.read_all(table, columns.selected))
                continue
            if columns.unknown.intersection(table.timestamp_columns):
                continue  # no row has a time
            limit = target.limits.get(name) if target is not None else self._limit(table)
            if limit is None:
                continue
            begin, marks[name] = self._checked(table, columns, tables.get(name), marks.get(name, {}))
            rows_max = self._options.rows_max if not has_no_limit else 1 << 62
            found = self._database.rows(
                polling.read_end(table, begin, limit, rows_max), f"looking for new rows of {name}"
            )
            end = polling.end_position(table, begin, found[0] if found else None)
            if end == begin:
                if self._options.initial_ms is not None:
                    tables[name] = begin  # "now" is the time of the first poll
                continue
            rows = self._stage(writer, table, columns, polling.read_rows(table, begin, end, columns.selected))
            is_full = is_full or rows >= rows_max
            tables[name] = end
            marks[name] = self._with_row(table, columns, end, marks[name])
            if belonging(marks[name], self._database.marks(table)) is Belonging.REPLACED:
                raise PolledTableError(f"the table {name} was replaced while it was read: start the query again")
        self._database.end_poll()
        self._next_poll = 0.0 if is_full else time.monotonic() + self._options.poll_ms / 1000
        manifest = writer.manifest({}, taken_us)
        if not manifest.files and (tables, marks) == (state.tables, state.marks):
            return None
        staging.complete_poll(manifest)
        return PollState(state.mode, state.number + 1, manifest.id, len(manifest.files), 0, tables, marks)

    # -- what the positions belong to

    def _checked(
        self, table: PolledTable, columns: PolledColumns, begin: polling.Position | None, stored: dict[str, str]
    ) -> tuple[polling.Position, dict[str, str]]:
        """Where to go on in a table, and its marks. Raises DataLossError if the position belongs to another table of
        that name, unless failOnDataLoss is false: then the new table is read from its beginning.
        """
        found = dict(self._database.marks(table))
        if begin is None:
            return self._first_position(table), found
        name, how = table_name(table), belonging(stored, found)
        gap = self._database.gap(stored, found)
        if gap is None and how is Belonging.SAME:
            return begin, stored
        known = {**stored, **found}
        if gap is None:
            log.info("the query knows the table %s from now on by %s", name, found)
            return begin, self._with_row(table, columns, begin, known)
        if self._goes_on(table, columns, begin, stored):
            log.warning("the table %s was rewritten or replaced: it is read on from its position (%s)", name, found)
            return begin, self._with_row(table, columns, begin, known)
        if how is Belonging.REPLACED:
            problem = replaced(f"the table {name}", stored, found)
        else:
            problem = f"the table {name} was replaced by an older copy"
        if self._options.fails_on_data_loss:
            raise DataLossError(
                f"{problem}.{gap} The rows of the new table up to the position {begin.incrementing} were never read."
                " Start the query with a new checkpoint and a new stagingLocation; or set failOnDataLoss=false, to read"
                " the new table from its beginning"
            )
        log.warning("%s.%s It is read from its beginning", problem, gap)
        return self._first_position(table), found

    def _with_row(
        self, table: PolledTable, columns: PolledColumns, position: polling.Position, marks: dict[str, str]
    ) -> dict[str, str]:
        """The marks with a digest of the row at a position, and the moment up to which the database was read."""
        if not table.uses_number or position == polling.START:
            return marks
        digests = self._digests(table, columns, position)
        kept = {name: one for name, one in marks.items() if name != ROW}
        return {**kept, **({ROW: json.dumps(digests)} if digests else {}), **self._database.moment(table)}

    def _goes_on(
        self, table: PolledTable, columns: PolledColumns, position: polling.Position, marks: dict[str, str]
    ) -> bool:
        """Whether no row is passed over from the position on, although marks have changed: the table has the row that
        was read last, and so was only rewritten or moved; or it has no row before the position; or times decide, which
        later rows of another table have, too.
        """
        if not table.uses_number or position == polling.START:
            return True
        digests = self._digests(table, columns, position)
        if digests:
            before = json.loads(marks.get(ROW, "{}"))
            common = before.keys() & digests.keys()  # columns may have been added or dropped
            return bool(common) and all(before[column] == digests[column] for column in common)
        doing = f"looking for rows of {table_name(table)} before the position"
        return table.uses_time or not self._database.rows(polling.read_below(table, position), doing)

    def _digests(self, table: PolledTable, columns: PolledColumns, position: polling.Position) -> dict[str, str]:
        """A digest of each of the first columns of the row at a position; empty if there is no such row."""
        statement = polling.read_row(table, position, columns.selected)
        doing = f"reading the last row of {table_name(table)}"
        for batch in self._database.batches(statement, columns, doing):
            for row in batch.to_pylist():
                values = list(row.items())[:_DIGESTS_MAX]
                return {name: hashlib.sha256(repr(value).encode()).hexdigest()[:8] for name, value in values}
        return {}

    def _first_position(self, table: PolledTable) -> polling.Position:
        initial = self._options.initial_ms
        if initial is None:
            return polling.START
        moment = time.time_ns() // 1_000_000 if initial == NOW else initial
        zone = self._options.zone if self._is_local(table) else "UTC"
        return initial_position(table, moment, zone, self._sample(table))

    def _stage(self, stage: SnapshotStage, table: PolledTable, columns: PolledColumns, statement: Any) -> int:
        """Write the rows of a statement. Returns their number."""
        schema = mapped_schema(columns.schema, self._options)
        count = 0

        def batches() -> Iterator[Any]:
            nonlocal count
            for batch in self._database.batches(statement, columns, f"reading {table_name(table)}"):
                count += batch.num_rows
                yield mapped_batch(batch, schema)

        stage.write(schema, batches())
        return count

    # -- limits

    def _limit(self, table: PolledTable) -> Limit | None:
        """Up to where the rows of a table are final; None as long as that is not known."""
        name = table_name(table)
        if table.uses_time:
            ((limit,),) = self._database.rows(polling.read_limit(table), f"looking for the time limit of {name}")
            columns = self._database.describe(table)
            if self._options.zone != "UTC" and has_local_time(table, columns):
                limit = in_zone(limit, self._options.zone)
            found: Limit = like_sample(truncated(limit, time_digits(table, columns)), self._sample(table))
            return found
        incrementing = self._limits.setdefault(name, IncrementingLimit(table.delay_ms))
        reached = None
        for _ in range(2):  # without running transactions, the second observation makes the first one final
            doing = f"looking for the largest number of {name}"
            ((largest, xid_min, xid_next),) = self._database.rows(polling.read_largest(table), doing)
            now_ms = time.time_ns() // 1_000_000
            reached = incrementing.observe(
                Observation(now_ms, None if largest is None else int(largest), xid_min, xid_next)
            )
        return reached

    def _largest(self, table: PolledTable) -> int | None:
        doing = f"looking for the largest number of {table_name(table)}"
        largest = self._database.rows(polling.read_largest(table), doing)[0][0]
        return None if largest is None else int(largest)

    def _is_local(self, table: PolledTable) -> bool:
        return self._options.zone != "UTC" and has_local_time(table, self._database.describe(table))

    def _sample(self, table: PolledTable) -> Any:
        """One time of the table, if its form may differ from that of the limit."""
        if table.time_form is not polling.TimeForm.ISO_TEXT:
            return None
        rows = self._database.rows(polling.read_sample(table), f"reading a time of {table_name(table)}")
        return rows[0][0] if rows else None

    # -- reading

    def read(self, start: Position, end: Position) -> Iterator[CapturedChanges]:
        begin, stop = decode_state(start), decode_state(end)
        first = begin.read if begin.poll == stop.poll else 0
        if first == stop.read:
            return
        assert stop.poll is not None
        staging = self._open_staging()
        manifest = staging.read_poll(stop.poll)
        for file in manifest.files[first : stop.read]:
            table, batches = staging.read_file(file)
            for batch in batches:
                words = pa.nulls(batch.num_rows, pa.string())
                change = snapshot_change(table, batch, words, manifest.taken_us, NoPositions(), "")
                yield CapturedChanges((change,))

    def confirm(self, position: Position) -> None:
        state = decode_state(position)
        self._open_staging().keep_poll(None if state.is_read else state.poll)

    def snapshot_positions(self, position: Position, rows: int) -> RowPositions:
        return NoPositions()

    def snapshot_place(self, position: Position) -> str:
        return ""

    def beat(self) -> None:
        """Does nothing: a polling query has no heartbeats."""

    def close(self) -> None:
        self._database.close()

    # -- internal

    def _open_staging(self) -> Staging:
        if self._staging is None:
            self._staging = open_staging(self._options.capture.staging_location)
        return self._staging

    def _patiently(self, action: Callable[[], T]) -> T:
        """Run an action again, on a new connection, if the connection was lost or the database is locked."""
        for attempt in range(1, self._options.attempts + 1):
            try:
                return action()
            except self._database.lost as error:
                self._database.close()
                self._listed_at = None
                if attempt == self._options.attempts:
                    raise
                log.warning("attempt %d of %d: %s", attempt, self._options.attempts, error)
                time.sleep(self._options.backoff_ms / 1000)
        raise AssertionError


def _known(paths: list[tuple[str, ...]]) -> str:
    names = ", ".join(".".join(path) for path in paths[:_SHOWN])
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"the database has {names}{more}" if names else "the database has none that the user may read"
