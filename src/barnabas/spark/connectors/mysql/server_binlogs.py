"""Shell: the binlogs of one server: their names, where they end, their GTIDs, their events, and places in them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from msgspec import structs

from barnabas.spark.connectors.mysql.binlog.decoder import BinlogDecoder
from barnabas.spark.connectors.mysql.binlog.events import FormatDescription, Gtid, MariadbGtidList, PreviousGtids
from barnabas.spark.connectors.mysql.binlog.transactions import TransactionAssembler
from barnabas.spark.connectors.mysql.errors import (
    START_OVER,
    HistoryLostError,
    MysqlSourceError,
    ServerConnectionError,
    ServerSetupError,
)
from barnabas.spark.connectors.mysql.options import MysqlOptions
from barnabas.spark.connectors.mysql.positions import BinlogPosition, FilePosition, GtidSet, MariadbGtidPosition
from barnabas.spark.connectors.mysql.relocation import (
    PlaceSearch,
    begins_before,
    check_begun,
    check_executed,
    check_grown,
    other_history,
    parse_gtids,
    purged,
)
from barnabas.spark.connectors.mysql.server import ServerPlan, check_available, session_statements, status_statement
from barnabas.spark.connectors.mysql.session import MysqlSession

_OWNED_ATTEMPTS: Final = 5
"""How often the server is asked for a moment in which no transaction is being committed."""
_OWNED_RETRY_S: Final = 0.01


class ServerBinlogs:
    """The binlogs of the server of `plan`. Statements run in `session`; a read of events has a session of its own."""

    def __init__(self, options: MysqlOptions, session: MysqlSession, plan: ServerPlan) -> None:
        self._options = options
        self._session = session
        self._plan = plan

    def written(self) -> FilePosition:
        """The place up to which the server has written its binlog, which is between transactions."""
        statement = status_statement(self._plan.version, mariadb=self._plan.mariadb)
        found = self._session.rows(statement, "reading the position of the binlog")
        if not found:
            raise ServerSetupError("the server writes no binlog: set log_bin in its configuration, and restart it")
        return FilePosition.of(str(found[0][0]), int(found[0][1]))

    def files(self) -> list[tuple[str, int]]:
        """The names and sizes of the binlogs, oldest first."""
        found = self._session.rows("SHOW BINARY LOGS", "listing the binlogs")
        return [(str(row[0]), int(row[1])) for row in found]

    def at(self, place: FilePosition, begin: BinlogPosition | None = None) -> BinlogPosition:
        """The position at a place up to which the server has written, with exactly the GTIDs up to the place.

        `begin` is an earlier position of this server. It may be left out for MariaDB, and for MySQL while a lock holds
        off all commits. Raises HistoryLostError if the server has forgotten transactions of `begin`.
        """
        if not self._plan.uses_gtids:
            gtids = ""
        elif self._plan.mariadb:
            gtids = self._mariadb_gtids(place)
        elif begin is None:
            gtids = str(self._executed())
        else:
            gtids = str(self._mysql_gtids(place, begin))
        return BinlogPosition(place.file, place.position, gtids, self._plan.server_uuid)

    def position_between_commits(self) -> BinlogPosition | None:
        """The position up to which a MySQL server has written, if no transaction is being committed.

        Its GTIDs are those up to its place if the server has written nothing more when this returns.
        """
        place = self.written()
        if self._variable("gtid_owned"):
            return None
        return BinlogPosition(place.file, place.position, str(self._executed()), self._plan.server_uuid)

    def _mariadb_gtids(self, place: FilePosition) -> str:
        """BINLOG_GTID_POS reads the whole file up to the place, so it is asked only if the server has written more."""
        newest = self._variable("gtid_binlog_pos")
        if self.written() == place:
            return newest
        found = self._session.rows(f"SELECT BINLOG_GTID_POS('{place.file}', {place.position})", "reading the GTIDs")
        return str(found[0][0] or "")

    def _mysql_gtids(self, place: FilePosition, begin: BinlogPosition) -> GtidSet:
        """The GTIDs up to a place. MySQL has no function like MariaDB's BINLOG_GTID_POS.

        A GTID is in gtid_owned from before its transaction is written to the binlog until the GTID is in gtid_executed.
        So while gtid_owned is empty, the GTIDs up to the place are those of gtid_executed without those of transactions
        behind the place. If gtid_owned is never empty, all transactions from `begin` to the place are read.
        """
        for _ in range(_OWNED_ATTEMPTS):
            if not self._variable("gtid_owned"):
                executed = self._executed()  # before `written`, so that each one of them is written
                gtids = executed.subtract(
                    self._gtids_between(BinlogPosition(place.file, place.position), self.written())
                )
                check_grown(begin, gtids)
                return gtids
            time.sleep(_OWNED_RETRY_S)
        return GtidSet.parse(begin.gtids).union(self._gtids_between(begin, place))

    def _gtids_between(self, begin: BinlogPosition, end: FilePosition) -> GtidSet:
        gtids = GtidSet()
        if begin.place < end:
            for _, event, _ in self.events(begin, end):
                if isinstance(event, Gtid):
                    gtids = gtids.with_gtid(event.uuid, event.number)
        return gtids

    def _executed(self) -> GtidSet:
        return GtidSet.parse(self._variable("gtid_executed"))

    def _variable(self, name: str) -> str:
        return str(self._session.rows(f"SELECT @@global.{name}", "reading the GTIDs")[0][0] or "").replace("\n", "")

    # -- checks

    def check_available(self, position: BinlogPosition) -> None:
        """Raise BinlogPurgedError if the server has deleted changes after a position of its own."""
        check_available(self._plan, structs.replace(position, gtids=""), [name for name, _ in self.files()])

    def check_history(self, position: BinlogPosition) -> None:
        """Raise HistoryLostError if the binlogs have other transactions up to a position than the query has read."""
        if not position.gtids:
            return
        if not self._plan.mariadb:
            self._check_mysql_history(position)
            return
        found = self._mariadb_gtids(position.place)
        if MariadbGtidPosition.parse(found) != MariadbGtidPosition.parse(position.gtids):
            raise other_history(position, f"up to {position.place}, the binlogs have {found or 'none'}")

    def _check_mysql_history(self, position: BinlogPosition) -> None:
        """Compare the GTIDs before the file and the first one behind the place, which needs no reading of the file."""
        check_grown(position, self._executed())
        written = self.written()
        if written < position.place:
            raise other_history(position, f"the binlogs end at {written}")
        read = GtidSet.parse(position.gtids)
        before = self._begin_of(position.file, written).gtids
        if not read.contains(GtidSet.parse(before)):
            raise other_history(position, f"before {position.file}, the binlogs have {before}")
        if position.place == written:
            return
        try:
            found = next((event for _, event, _ in self.events(position, written) if isinstance(event, Gtid)), None)
        except ServerConnectionError:
            raise
        except MysqlSourceError as error:  # of the server or of the decoder, which have read some bytes as an event
            raise other_history(position, f"the place is not between two events ({error})") from error
        if found is not None and read.has(found.uuid, found.number):
            raise other_history(position, f"behind the place, the binlogs have {found.uuid}:{found.number}")

    def begun(self, file: str) -> int:
        """When the server began a binlog, in seconds since 1970."""
        begin = BinlogPosition(file, 4, "", self._plan.server_uuid)
        for raw, event, _ in self.events(begin, self.written()):
            if isinstance(event, FormatDescription):
                return int.from_bytes(raw[:4], "little")
        return 0

    def check_begun(self, position: BinlogPosition) -> None:
        """Raise HistoryLostError if the position's binlog was begun anew since."""
        if position.begun:
            check_begun(position, self.begun(position.file))

    # -- events

    def events(self, start: BinlogPosition, end: FilePosition) -> Iterator[tuple[bytes, Any, bool]]:
        """The events up to a place: their bytes, the events, and whether the place is reached.

        Raises HistoryLostError if the binlog has no such place, and ServerConnectionError if it ends before.
        """
        session = MysqlSession(self._options)
        try:
            by_file = BinlogPosition(start.file, start.position, "", start.server_uuid)
            for statement in session_statements(self._plan, by_file):
                session.run(statement)
            decoder = BinlogDecoder(start.file, start.position, checksums=self._plan.checksums)
            for raw in session.events(start):
                event = decoder.decode(raw)
                if isinstance(event, FormatDescription) and decoder.file == start.file:
                    check_begun(start, int.from_bytes(raw[:4], "little"))
                here = FilePosition.of(decoder.file, decoder.position)
                if here > end:
                    raise HistoryLostError(
                        f"the binlog has no event that ends at {end}, which an earlier read has seen: the server lost "
                        f"the end of its binlog in a crash (set sync_binlog=1). To go on, {START_OVER}"
                    )
                yield raw, event, here == end
                if here == end:
                    return
            raise ServerConnectionError(f"the server's binlog ends before {end}: the query connects again")
        finally:
            session.close()

    def distance(self, start: FilePosition, end: FilePosition) -> int:
        """The bytes of binlog between two places."""
        if start.number == end.number:
            return end.position - start.position
        sizes = dict(self.files())
        between = sum(
            size for file, size in sizes.items() if start.number < FilePosition.of(file, 4).number < end.number
        )
        return sizes.get(start.file, 0) - start.position + between + end.position

    def boundary(self, start: BinlogPosition, end: FilePosition, bytes_max: int) -> BinlogPosition:
        """The place behind the first transaction at which `bytes_max` is reached, or `end` if that is nearer."""
        size = 0
        assembler = TransactionAssembler(start)
        for raw, event, reached in self.events(start, end):
            size += len(raw)
            if assembler.handle(event) is not None and size >= bytes_max:
                return assembler.position
            if reached:
                break
        return BinlogPosition(end.file, end.position, assembler.position.gtids, self._plan.server_uuid)

    # -- failover

    def find(self, position: BinlogPosition) -> BinlogPosition:
        """The place on this server of a position of another one, by its GTIDs (`relocation.py`).

        Raises HistoryLostError if this server lacks transactions of the position or has diverged, and BinlogPurgedError
        if it has deleted the transactions behind them.
        """
        plan = self._plan
        if not plan.uses_gtids or not position.gtids:
            raise HistoryLostError(
                f"the position {position.place} is of the server {position.server_uuid} and has no GTIDs, this is the "
                f"server {plan.server_uuid}, whose binlogs are others: connect to the server of the position, or "
                f"{START_OVER}"
            )
        executed = self._variable("gtid_binlog_pos" if plan.mariadb else "gtid_executed")
        check_executed(position, parse_gtids(executed, mariadb=plan.mariadb), plan.server_uuid)
        written = self.written()
        begin = self._search_begin(position, written)
        search = PlaceSearch(position, begin, mariadb=plan.mariadb)
        if search.place is None:
            assembler = TransactionAssembler(begin)
            for _, event, reached in self.events(begin, written):
                transaction = assembler.handle(event)
                if transaction is not None:
                    search.handle(transaction, assembler.position)
                if reached or search.place is not None:
                    break
        return structs.replace(search.finish(), gtids=position.gtids, failovers=position.failovers + 1)

    def _search_begin(self, position: BinlogPosition, written: FilePosition) -> BinlogPosition:
        """The beginning of the newest binlog before which there are only transactions of `position`."""
        oldest = "nothing"
        for name, _ in reversed(self.files()):
            begin = self._begin_of(name, written)
            if begins_before(position, parse_gtids(begin.gtids, mariadb=self._plan.mariadb)):
                return begin
            oldest = begin.gtids
        raise purged(position, oldest, self._plan.server_uuid)

    def _begin_of(self, file: str, written: FilePosition) -> BinlogPosition:
        """The beginning of a binlog, with the GTIDs of all binlogs before it."""
        begin = BinlogPosition(file, 4, "", self._plan.server_uuid)
        assembler = TransactionAssembler(begin)
        for _, event, reached in self.events(begin, written):
            assembler.handle(event)
            if reached or isinstance(event, PreviousGtids | MariadbGtidList):
                break
        return structs.replace(begin, gtids=assembler.position.gtids)
