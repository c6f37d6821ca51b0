"""Machine: finds a position of one server in the binlogs of another one, by its GTIDs.

After a failover, the binlogs of the new server have other names and sizes, but the same transactions with the same
GTIDs. The place that is looked for lies behind the last transaction that the position covers, and before the first one
that it does not. It exists only if the new server wrote them in that order: a replica does, unless it applies
transactions in parallel without keeping their order.

    1. From the newest binlog to the oldest, each one begins with the GTIDs of all binlogs before it. The first one
       whose list the position covers is where the search begins (`begins_before`).
    2. The transactions of this binlog and of the later ones are read until none is missing (`PlaceSearch`).

Source: MySQL's manual, "GTID Sets", Previous_gtids; MariaDB's manual, "Gtid_list_event", "gtid_domain_id".
"""

from __future__ import annotations

from barnabas.spark.connectors.mysql.binlog.transactions import BinlogTransaction
from barnabas.spark.connectors.mysql.errors import START_OVER, BinlogPurgedError, HistoryLostError, ServerBehindError
from barnabas.spark.connectors.mysql.positions import BinlogPosition, GtidSet, MariadbGtidPosition
from barnabas.spark.identities import Belonging, belonging, replaced

Gtids = GtidSet | MariadbGtidPosition

_START_OVER = f"or {START_OVER}"


def parse_gtids(text: str, *, mariadb: bool) -> Gtids:
    """GTIDs of a server. Raises PositionError."""
    return MariadbGtidPosition.parse(text) if mariadb else GtidSet.parse(text)


def covers(whole: Gtids, part: Gtids) -> bool:
    """Whether all transactions of `part` are in `whole`. Both are of the same kind of server."""
    if isinstance(whole, GtidSet):
        return isinstance(part, GtidSet) and whole.contains(part)
    return isinstance(part, MariadbGtidPosition) and whole.contains(part)


def check_executed(position: BinlogPosition, executed: Gtids, server: str) -> None:
    """Raise ServerBehindError if `server` lacks transactions that the position covers, and HistoryLostError if it has
    transactions, but none of the same origins: then it is no replica of the position's server that lags.
    """
    wanted = parse_gtids(position.gtids, mariadb=isinstance(executed, MariadbGtidPosition))
    if covers(executed, wanted):
        return
    if isinstance(wanted, GtidSet) and isinstance(executed, GtidSet):
        missing: Gtids = wanted.subtract(executed)
    else:
        assert isinstance(wanted, MariadbGtidPosition) and isinstance(executed, MariadbGtidPosition)
        missing = wanted.subtract(executed)
    if executed and not executed.origins() & wanted.origins():
        raise HistoryLostError(
            f"the position {position.place} belongs to the server {position.server_uuid} with the transactions"
            f" {wanted}, and this is the server {server}, which has none of their origin ({executed}): connect to the"
            f" position's server or a replica of it, {_START_OVER}"
        )
    raise ServerBehindError(
        f"the query has read transactions that this server ({server}) does not have: up to {missing}, and the server "
        f"has {executed or 'none'}. If it is a replica that lags behind, start the query again when it has caught up; "
        "if it never will, connect to a server that has them, or start the query over with a new checkpoint and an "
        "empty stagingLocation"
    )


def other_history(position: BinlogPosition, found: str) -> HistoryLostError:
    """The error if a server's binlogs are not those that the query has read.

    `found` is a clause that says what the server has instead.
    """
    return HistoryLostError(
        f"the server's binlogs do not have the transactions {position.gtids} up to {position.place}, which the query"
        f" has read: {found}. RESET MASTER was run, the server was restored, it lost the end of its binlog in a crash"
        f" (set sync_binlog=1), or it is another one with the same identity. To go on, {START_OVER}"
    )


def check_begun(position: BinlogPosition, begun: int) -> None:
    """Raise HistoryLostError if the position's file is another one of that name, which the server began at `begun`."""
    stored = {"begun at": str(position.begun)} if position.begun else {}
    found = {"begun at": str(begun)}
    if belonging(stored, found) is Belonging.REPLACED:
        problem = replaced(f"the binlog {position.file}", stored, found)
        raise HistoryLostError(
            f"{problem} (seconds since 1970). RESET MASTER was run, or the server was restored: what it has written"
            f" since does not follow the query's position {position.place}. To go on, {START_OVER}"
        )


def check_grown(position: BinlogPosition, executed: GtidSet) -> None:
    """Raise HistoryLostError if a MySQL server does not have transactions that the query has read from it."""
    if not executed.contains(GtidSet.parse(position.gtids)):
        raise other_history(position, f"the server has executed {executed or 'none'}")


def begins_before(position: BinlogPosition, earlier: Gtids) -> bool:
    """Whether the search can begin in a binlog, before which a server executed `earlier`."""
    return covers(parse_gtids(position.gtids, mariadb=isinstance(earlier, MariadbGtidPosition)), earlier)


def purged(position: BinlogPosition, oldest: str, server: str) -> BinlogPurgedError:
    """The error if the search can begin in no binlog: the oldest one begins behind the position."""
    return BinlogPurgedError(
        f"the binlogs of this server ({server}) begin with {oldest}, behind the transactions {position.gtids} that the "
        "query has read: those between them are lost to it. Connect to a server with older binlogs, "
        f"{_START_OVER}; and keep binlogs longer than the query may pause (binlog_expire_logs_seconds)"
    )


class PlaceSearch:
    """Reads the transactions of a server from the beginning of a binlog. `place` is the place, once it is known.

    `begin` is that beginning, with the GTIDs before it. Raises HistoryLostError if the server has another history.
    """

    def __init__(self, position: BinlogPosition, begin: BinlogPosition, *, mariadb: bool) -> None:
        self._wanted = parse_gtids(position.gtids, mariadb=mariadb)
        self._server = begin.server_uuid
        self._seen = parse_gtids(begin.gtids, mariadb=mariadb)
        self._position = position
        self.place: BinlogPosition | None = None
        self._settle(begin)

    def handle(self, transaction: BinlogTransaction, behind: BinlogPosition) -> None:
        """Take the next transaction and the position behind it, until `place` is known."""
        if not self._take(transaction.gtid):
            raise HistoryLostError(
                f"this server ({self._server}) wrote the transaction {transaction.gtid or 'without a GTID'}, which the "
                f"query has not read, before others that it has read ({self._position.gtids}), so that there is no "
                "place to continue at. Set replica_preserve_commit_order=ON (MariaDB: slave_parallel_mode=optimistic "
                f"or conservative) on replicas; connect to another server, {_START_OVER}"
            )
        self._settle(behind)

    def finish(self) -> BinlogPosition:
        """The place at the end of the binlogs. Raises HistoryLostError if there is none."""
        if self.place is None:
            raise HistoryLostError(
                f"the binlogs of this server ({self._server}) end before the transactions {self._position.gtids} that "
                "the query has read. Set log_replica_updates=ON (MariaDB: log_slave_updates=ON) on replicas, and "
                f"connect to a server that has them, {_START_OVER}"
            )
        return self.place

    def _take(self, gtid: str) -> bool:
        """Note a transaction. False if the position does not cover it."""
        if isinstance(self._seen, GtidSet) and isinstance(self._wanted, GtidSet):
            uuid, _, number = gtid.rpartition(":")
            if not number.isdigit() or not self._wanted.has(uuid, int(number)):
                return False
            self._seen = self._seen.with_gtid(uuid, int(number))
            return True
        assert isinstance(self._seen, MariadbGtidPosition) and isinstance(self._wanted, MariadbGtidPosition)
        parts = gtid.split("-")
        if len(parts) != 3 or not self._wanted.has(int(parts[0]), int(parts[2])):
            return False
        self._seen = self._seen.with_gtid(int(parts[0]), int(parts[1]), int(parts[2]))
        return True

    def _settle(self, here: BinlogPosition) -> None:
        """Note the place if all transactions of the position have been read."""
        if not covers(self._seen, self._wanted):
            return
        if isinstance(self._wanted, MariadbGtidPosition) and self._seen != self._wanted:
            raise HistoryLostError(
                f"this server ({self._server}) has other transactions than the query has read: {self._seen} and "
                f"{self._position.gtids} have equal numbers, and come from different servers. The servers have "
                f"diverged: connect to one that has the query's transactions, {_START_OVER}"
            )
        self.place = here
