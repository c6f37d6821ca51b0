"""Value: positions in a binlog: a place in a file, the GTID set of MySQL, the GTID position of MariaDB.

    file and position   mysql-bin.000042:1234
    GTID set            3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7,4350f323-...:1-9
    GTID position       0-1-100,7-3-12      (domain-server-sequence, the last transaction of each domain)

A GTID set says which transactions were executed. A GTID position says the same of MariaDB, whose sequence grows by
domain: `7-3-12` covers all of domain 7 up to sequence 12. Sources: MySQL's manual, "GTID Format and Storage"; MariaDB's
manual, "Global Transaction ID".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from barnabas.spark.connectors.mysql.errors import PositionError

Interval = tuple[int, int]
"""Transaction numbers from the first to the last, both inclusive."""

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_INTERVAL: Final = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")
_MARIADB: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})-([0-9]{1,20})")
_FILE: Final = re.compile(r"(.+)\.([0-9]+)")
_GTID_MAX: Final = (1 << 63) - 2
_UINT32: Final = 1 << 32
_UINT64: Final = 1 << 64


class FilePosition(Struct, frozen=True, order=True):
    """A place between two events. Positions are ordered by the number of the file, whose digits may grow."""

    number: int
    position: int
    file: str

    @classmethod
    def of(cls, file: str, position: int) -> FilePosition:
        """The place at `position` in `file`. Raises PositionError if the file's name has no number."""
        found = _FILE.fullmatch(file)
        if found is None or position < 4:
            raise PositionError(
                f"{file}:{position} is no place in a binlog: name a file of SHOW BINARY LOGS, and a position from 4 on"
            )
        return cls(int(found[2]), position, file)

    @classmethod
    def parse(cls, text: str) -> FilePosition:
        """Parse `file:position`. Raises PositionError."""
        file, _, position = text.strip().rpartition(":")
        if not re.fullmatch(r"[0-9]{1,19}", position):
            raise PositionError(f"{text!r} is not of the form file:position, such as mysql-bin.000042:1234")
        return cls.of(file, int(position))

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"


class GtidSet(Struct, frozen=True):
    """A set of MySQL's GTIDs: for each uuid, in order, intervals that are sorted and neither overlap nor touch."""

    sources: tuple[tuple[str, tuple[Interval, ...]], ...] = ()

    @classmethod
    def of(cls, sources: Mapping[str, Iterable[Interval]]) -> GtidSet:
        """The set of the given intervals, which may overlap."""
        merged = {uuid.lower(): _merged(intervals) for uuid, intervals in sources.items()}
        return cls(tuple(sorted((uuid, intervals) for uuid, intervals in merged.items() if intervals)))

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Parse a set as `@@gtid_executed` prints it, with or without line ends. Raises PositionError."""
        sources: dict[str, list[Interval]] = {}
        for part in text.replace("\n", "").split(","):
            if not part.strip():
                continue
            uuid, *intervals = part.strip().split(":")
            uuid = uuid.strip().lower()
            if not _UUID.fullmatch(uuid) or not intervals:
                raise PositionError(f"{part.strip()!r} is not of the form uuid:1-5:7")
            sources.setdefault(uuid, []).extend(_interval(interval.strip(), part.strip()) for interval in intervals)
        return cls.of(sources)

    def __str__(self) -> str:
        return ",".join(
            ":".join([uuid, *(f"{first}-{last}" if first != last else str(first) for first, last in intervals)])
            for uuid, intervals in self.sources
        )

    def __bool__(self) -> bool:
        return bool(self.sources)

    def with_gtid(self, uuid: str, number: int) -> GtidSet:
        """The set with one more GTID. The usual case, the successor of the last one, costs no merging."""
        sources = dict(self.sources)
        intervals = sources.get(uuid, ())
        if intervals and intervals[-1][1] + 1 == number:
            sources[uuid] = (*intervals[:-1], (intervals[-1][0], number))
            return GtidSet(tuple(sources.items()))
        return self.union(GtidSet.of({uuid: [(number, number)]}))

    def union(self, other: GtidSet) -> GtidSet:
        """The GTIDs that are in either set."""
        sources: dict[str, list[Interval]] = {}
        for uuid, intervals in (*self.sources, *other.sources):
            sources.setdefault(uuid, []).extend(intervals)
        return GtidSet.of(sources)

    def subtract(self, other: GtidSet) -> GtidSet:
        """The GTIDs of this set that are not in `other`."""
        removed = dict(other.sources)
        return GtidSet.of({uuid: _without(intervals, removed.get(uuid, ())) for uuid, intervals in self.sources})

    def contains(self, other: GtidSet) -> bool:
        """Whether every GTID of `other` is in this set."""
        return not other.subtract(self)

    def origins(self) -> set[str]:
        """The servers whose transactions are in this set."""
        return {uuid for uuid, _ in self.sources}

    def has(self, uuid: str, number: int) -> bool:
        """Whether one GTID is in this set."""
        return any(first <= number <= last for first, last in dict(self.sources).get(uuid.lower(), ()))


def _interval(text: str, part: str) -> Interval:
    found = _INTERVAL.fullmatch(text)
    if found is None:
        tagged = text[:1].isalpha() or text[:1] == "_"
        reason = "tagged GTIDs of MySQL 8.3 are not supported" if tagged else "no interval"
        raise PositionError(f"{text!r} in {part!r}: {reason}; the form is uuid:1-5:7")
    first = int(found[1])
    last = int(found[2]) if found[2] else first
    if not 1 <= first <= last <= _GTID_MAX:
        raise PositionError(f"{text!r} in {part!r} is empty, or its numbers are not between 1 and {_GTID_MAX}")
    return first, last


def _merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    result: list[Interval] = []
    for first, last in sorted(intervals):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return tuple(result)


def _without(intervals: tuple[Interval, ...], removed: tuple[Interval, ...]) -> list[Interval]:
    """What is left of sorted intervals without other sorted intervals."""
    result: list[Interval] = []
    at = 0
    for begin, last in intervals:
        first = begin
        while at < len(removed) and removed[at][1] < first:
            at += 1
        k = at
        while k < len(removed) and removed[k][0] <= last:
            if removed[k][0] > first:
                result.append((first, removed[k][0] - 1))
            first = max(first, removed[k][1] + 1)
            k += 1
        if first <= last:
            result.append((first, last))
    return result


class MariadbGtidPosition(Struct, frozen=True):
    """MariaDB's GTID position: the last (domain, server id, sequence) of each domain, sorted by domain."""

    gtids: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> MariadbGtidPosition:
        """Parse a position as `@@gtid_binlog_pos` prints it. Raises PositionError; a domain may be there only once."""
        found: dict[int, tuple[int, int, int]] = {}
        for part in text.split(","):
            if not part.strip():
                continue
            match = _MARIADB.fullmatch(part.strip())
            if match is None:
                raise PositionError(f"{part.strip()!r} is not of the form domain-server-sequence, such as 0-1-100")
            domain, server, sequence = (int(group) for group in match.groups())
            if domain >= _UINT32 or server >= _UINT32 or sequence >= _UINT64:
                raise PositionError(f"{part.strip()!r} has a number that is too large")
            if domain in found:
                raise PositionError(f"{text!r} has the domain {domain} twice")
            found[domain] = (domain, server, sequence)
        return cls(tuple(sorted(found.values())))

    def __str__(self) -> str:
        return ",".join("-".join(map(str, gtid)) for gtid in self.gtids)

    def __bool__(self) -> bool:
        return bool(self.gtids)

    def with_gtid(self, domain: int, server: int, sequence: int) -> MariadbGtidPosition:
        """The position behind one more transaction. The newest one counts, also if its sequence is smaller, which a
        server allows without gtid_strict_mode."""
        found = {gtid[0]: gtid for gtid in self.gtids}
        found[domain] = (domain, server, sequence)
        return MariadbGtidPosition(tuple(sorted(found.values())))

    def union(self, other: MariadbGtidPosition) -> MariadbGtidPosition:
        """The later GTID of each domain, by its sequence."""
        found = {gtid[0]: gtid for gtid in self.gtids}
        for gtid in other.gtids:
            if gtid[0] not in found or gtid[2] > found[gtid[0]][2]:
                found[gtid[0]] = gtid
        return MariadbGtidPosition(tuple(sorted(found.values())))

    def subtract(self, other: MariadbGtidPosition) -> MariadbGtidPosition:
        """The GTIDs of this position that are not covered by `other`: those of domains in which this one is ahead."""
        return MariadbGtidPosition(tuple(gtid for gtid in self.gtids if not other.has(gtid[0], gtid[2])))

    def contains(self, other: MariadbGtidPosition) -> bool:
        """Whether this position covers all transactions that `other` covers."""
        return not other.subtract(self)

    def origins(self) -> set[int]:
        """The domains whose transactions are covered."""
        return {domain for domain, *_ in self.gtids}

    def has(self, domain: int, sequence: int) -> bool:
        """Whether one transaction is covered."""
        return any(gtid[0] == domain and sequence <= gtid[2] for gtid in self.gtids)


class BinlogPosition(Struct, frozen=True):
    """Where a source continues: behind a whole transaction, as file and position of one server, and by GTIDs.

    (file, position) is exact on the server `server_uuid` only; GTIDs also hold after a failover. `gtids` is a GTID set
    of MySQL or a GTID position of MariaDB as text, and empty on a MySQL server without GTIDs. `failovers` counts how
    often the query has continued on another server, or has started anew. `begun` is when the server began the file, in
    seconds since 1970, by which a file is known that RESET MASTER has begun anew under the same name; 0 if it is not
    known.
    """

    file: str
    position: int
    gtids: str = ""
    server_uuid: str = ""
    failovers: int = 0
    begun: int = 0

    def to_json(self) -> str:
        """The position as JSON, for an offset of Spark; equal positions have equal texts."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> BinlogPosition:
        """Parse what `to_json` returned. Raises PositionError."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise PositionError(f"{text!r} is not a position in a binlog: {error}") from error

    @property
    def place(self) -> FilePosition:
        """The file and position, which can be compared. Raises PositionError."""
        return FilePosition.of(self.file, self.position)
