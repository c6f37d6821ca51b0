"""Shell: the binlogs of one server: their names, where they end, their GTIDs, their events, and places in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from barnabas.spark.connectors.mysql.binlog.decoder import BinlogDecoder
from barnabas.spark.connectors.mysql.binlog.events import MariadbGtidList, PreviousGtids
from barnabas.spark.connectors.mysql.binlog.transactions import TransactionAssembler
from barnabas.spark.connectors.mysql.errors import PositionError, ServerConnectionError, ServerSetupError
from barnabas.spark.connectors.mysql.options import MysqlOptions
from barnabas.spark.connectors.mysql.positions import BinlogPosition, FilePosition, MariadbGtidPosition
from barnabas.spark.connectors.mysql.relocation import (
    PlaceSearch,
    begins_before,
    check_executed,
    parse_gtids,
    purged,
)
from barnabas.spark.connectors.mysql.server import ServerPlan, check_available, session_statements
from barnabas.spark.connectors.mysql.session import MysqlSession


class ServerBinlogs:
    """The binlogs of the server of `plan`. Statements run in `session`; a read of events has a session of its own."""

    def __init__(self, options: MysqlOptions, session: MysqlSession, plan: ServerPlan) -> None:
        self._options = options
        self._session = session
        self._plan = plan

    def written(self) -> FilePosition:
        """The place up to which the server has written its binlog, which is between transactions."""
        renamed = not self._plan.mariadb and self._plan.version >= (8, 2)
        statement = "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS"
        found = self._session.rows(statement, "reading the position of the binlog")
        if not found:
            raise ServerSetupError("the server writes no binlog: set log_bin in its configuration, and restart it")
        return FilePosition.of(str(found[0][0]), int(found[0][1]))

    def files(self) -> list[tuple[str, int]]:
        """The names and sizes of the binlogs, oldest first."""
        found = self._session.rows("SHOW BINARY LOGS", "listing the binlogs")
        return [(str(row[0]), int(row[1])) for row in found]

    def at(self, place: FilePosition) -> BinlogPosition:
        """The position at a place, with the GTIDs up to it. MySQL's may lack transactions that are being committed."""
        gtids = self._newest_gtids(place)
        if gtids is None:
            gtids = self._gtids(place)
        return BinlogPosition(place.file, place.position, gtids, self._plan.server_uuid)

    def _newest_gtids(self, place: FilePosition) -> str | None:
        """The GTIDs up to a place of MariaDB if the server has written nothing behind it, else None.

        BINLOG_GTID_POS gives them too, and reads the whole file up to the place for that.
        """
        if not self._plan.mariadb:
            return None
        found = self._session.rows("SELECT @@global.gtid_binlog_pos", "reading the GTIDs")
        return str(found[0][0] or "") if self.written() == place else None

    def _gtids(self, place: FilePosition) -> str:
        if not self._plan.uses_gtids:
            return ""
        if self._plan.mariadb:
            sql = f"SELECT BINLOG_GTID_POS('{place.file}', {place.position})"
        else:
            sql = "SELECT @@global.gtid_executed"
        return str(self._session.rows(sql, "reading the GTIDs")[0][0] or "").replace("\n", "")

    # -- checks

    def check_available(self, position: BinlogPosition) -> None:
        """Raise BinlogPurgedError if the server has deleted changes after a position of its own."""
        check_available(self._plan, structs.replace(position, gtids=""), [name for name, _ in self.files()])

    def check_history(self, position: BinlogPosition) -> None:
        """Raise PositionError if the binlogs have other transactions up to a position than the query has read."""
        if not self._plan.mariadb or not position.gtids:
            return
        found = self._gtids(position.place)
        if MariadbGtidPosition.parse(found) != MariadbGtidPosition.parse(position.gtids):
            raise PositionError(
                f"up to {position.place}, the server's binlogs have the transactions {found or 'none'}, and the query "
                f"has read {position.gtids}: RESET MASTER was run, the server was restored, or it is another one with "
                "the same server_id. Start the query over with a new checkpoint, an empty stagingLocation and a new "
                "snapshot"
            )

    # -- events

    def events(self, start: BinlogPosition, end: FilePosition) -> Iterator[tuple[bytes, Any, bool]]:
        """The events up to a place: their bytes, the events, and whether the place is reached.

        Raises PositionError if the binlog has no such place, and ServerConnectionError if it ends before.
        """
        session = MysqlSession(self._options)
        try:
            by_file = BinlogPosition(start.file, start.position, "", start.server_uuid)
            for statement in session_statements(self._plan, by_file):
                session.run(statement)
            decoder = BinlogDecoder(start.file, start.position, checksums=self._plan.checksums)
            for raw in session.events(start):
                event = decoder.decode(raw)
                here = FilePosition.of(decoder.file, decoder.position)
                if here > end:
                    raise PositionError(
                        f"the binlog has no event that ends at {end}, which an earlier read has seen: the server lost "
                        "the end of its binlog in a crash (set sync_binlog=1); start the query over with a new snapshot"
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

        Raises PositionError if this server lacks transactions of the position or has diverged, and BinlogPurgedError
        if it has deleted the transactions behind them.
        """
        plan = self._plan
        if not plan.uses_gtids or not position.gtids:
            raise PositionError(
                f"the position {position.place} is of the server {position.server_uuid} and has no GTIDs, this is the "
                f"server {plan.server_uuid}, whose binlogs are others: connect to the server of the position, or start "
                "the query over with a new checkpoint, an empty stagingLocation and a new snapshot"
            )
        sql = "SELECT @@global.gtid_binlog_pos" if plan.mariadb else "SELECT @@global.gtid_executed"
        executed = str(self._session.rows(sql, "reading the GTIDs")[0][0] or "")
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
