"""Codec: the events of a binlog, from the bytes that a server sends after COM_BINLOG_DUMP, or that a file has.

    event:  4 timestamp, 1 type, 4 server id, 4 size, 4 log_pos, 2 flags, body, 4 CRC32 of everything before
    file:   fe 'bin', then events

The CRC32 is there if the last FORMAT_DESCRIPTION says so (binlog_checksum); before that event, if the session asked
for it (`SET @source_binlog_checksum = 'CRC32'`). An event of an unknown type is an error, unless its header is flagged
ignorable. Sources: MySQL's mysql/binlog/event/*.h, MariaDB's log_event.h and its manual, "Replication Protocol".
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct as Layout
from typing import Final

from barnabas.spark.connectors.mysql.binlog import bodies
from barnabas.spark.connectors.mysql.binlog.codes import FLAG_ARTIFICIAL, FLAG_BINLOG_IN_USE, FLAG_IGNORABLE, EventType
from barnabas.spark.connectors.mysql.binlog.cursor import EventCursor
from barnabas.spark.connectors.mysql.binlog.events import (
    BinlogTable,
    Event,
    EventHeader,
    FormatDescription,
    Heartbeat,
    Rotate,
    TransactionPayload,
    WithoutChanges,
)
from barnabas.spark.connectors.mysql.binlog.inflating import INFLATED_BYTES_MAX
from barnabas.spark.connectors.mysql.errors import BinlogError, BinlogLimitError, UnsupportedBinlogError

FILE_MAGIC: Final = b"\xfebin"
HEADER_BYTES: Final = 19
EVENT_BYTES_MAX: Final = (1 << 30) + (1 << 20)
"""The default limit for one event: MySQL's largest max_allowed_packet, and room for the headers."""

_HEADER: Final = Layout("<IBIIIH")
_CHECKSUM_BYTES: Final = 4


def decode_header(data: bytes, at: int = 0, where: str = "binlog") -> EventHeader:
    """The header at `data[at:]`. Raises BinlogError if the bytes end inside the header, or its size is too small."""
    if len(data) - at < HEADER_BYTES:
        raise BinlogError(
            f"{where}: the binlog ends inside the header of an event, {len(data) - at} bytes after its beginning: "
            "read on, or restart the query"
        )
    header = EventHeader(*_HEADER.unpack_from(data, at))
    if header.size < HEADER_BYTES:
        raise BinlogError(
            f"{where}: an event of type {header.type} declares {header.size} bytes, less than its header: the binlog "
            "is damaged; check it with mysqlbinlog --verify-binlog-checksum"
        )
    return header


def split_file(data: bytes, where: str = "binlog") -> Iterator[bytes]:
    """The events of a whole binlog file, as bytes. Raises BinlogError where the file ends inside an event."""
    if data[:4] != FILE_MAGIC:
        raise BinlogError(
            f"{where}: the file does not begin with fe 'bin': it is no binlog, or it is encrypted "
            "(binlog_encryption); read encrypted binlogs from the server"
        )
    at = 4
    while at < len(data):
        header = decode_header(data, at, f"{where}:{at}")
        if header.size > len(data) - at:
            raise BinlogError(
                f"{where}:{at}: the file ends inside an event of {header.size} bytes: the server still writes it, or "
                "the file was cut off"
            )
        yield data[at : at + header.size]
        at += header.size


class BinlogDecoder:
    """Decodes the events of one server in their order. Keeps the file, the position and the last FORMAT_DESCRIPTION.

    `file` and `position` say where reading starts. `checksums` says whether the session asked for checksums, which
    holds until the first FORMAT_DESCRIPTION. The session must ask for `@@global.binlog_checksum`, and a session with
    MariaDB must set `@mariadb_slave_capability = 4`, or the server rewrites GTID events into old ones.
    """

    def __init__(
        self,
        file: str = "",
        position: int = 4,
        *,
        checksums: bool = True,
        event_bytes_max: int = EVENT_BYTES_MAX,
        inflated_bytes_max: int = INFLATED_BYTES_MAX,
    ) -> None:
        self.file = file
        self.position = position
        self._format = FormatDescription(
            timestamp=0,
            server_id=0,
            end=0,
            server_version="",
            mariadb=False,
            checksums=checksums,
            post_header_sizes=b"",
        )
        self._event_bytes_max = event_bytes_max
        self._inflated_bytes_max = inflated_bytes_max
        self._tables: dict[bytes, BinlogTable] = {}

    @property
    def format(self) -> FormatDescription:
        """The last FORMAT_DESCRIPTION; its `server_version` is empty before the first one."""
        return self._format

    def decode(self, data: bytes) -> Event:
        """Decode one whole event.

        Raises BinlogError for damaged bytes, BinlogLimitError for too large ones, and UnsupportedBinlogError for an
        event that this package does not read.
        """
        where = f"{self.file or 'binlog'}:{self.position}"
        header = decode_header(data, 0, where)
        where = f"{where} (event type {header.type})"
        if header.size != len(data):
            raise BinlogError(f"{where}: the event declares {header.size} bytes and has {len(data)}: restart the query")
        if header.size > self._event_bytes_max:
            raise BinlogLimitError(
                f"{where}: the event has {header.size} bytes, the limit is {self._event_bytes_max}: set "
                "binlog_row_event_max_size to its default of 8192, keep single rows and statements below the limit, "
                "and start the query over with a new checkpoint, an empty stagingLocation and a new snapshot"
            )
        end = self._end(header)
        if header.type == EventType.FORMAT_DESCRIPTION:
            event: Event = self._begin_file(data, header, end, where)
        else:
            body_end = len(data)
            if self._format.checksums:
                body_end -= _CHECKSUM_BYTES
                _check(data, body_end, 0, where)
            event = self._body(header, EventCursor(data, where, HEADER_BYTES, body_end), end)
        if isinstance(event, Rotate):
            self.file, self.position = event.file, event.position
        elif not isinstance(event, Heartbeat):
            self.position = end
        return event

    def _end(self, header: EventHeader) -> int:
        """The 64-bit position behind the event. The header has its low 32 bits, and positions in a file only grow."""
        if header.log_pos == 0 or header.flags & FLAG_ARTIFICIAL or header.type == EventType.ROTATE:
            return self.position
        end = self.position & ~0xFFFFFFFF | header.log_pos
        return end if end >= self.position else end + (1 << 32)

    def _begin_file(self, data: bytes, header: EventHeader, end: int, where: str) -> FormatDescription:
        """Decode a FORMAT_DESCRIPTION. Its CRC32 was computed while its flag "in use" was not set."""
        event = bodies.decode_format(EventCursor(data, where, HEADER_BYTES), _common(header, end))
        if event.checksums:
            _check(data, len(data) - _CHECKSUM_BYTES, header.flags & FLAG_BINLOG_IN_USE, where)
        self._format = event
        self._tables.clear()
        return event

    def _body(self, header: EventHeader, cursor: EventCursor, end: int) -> Event:
        common = _common(header, end)
        if header.type == EventType.TRANSACTION_PAYLOAD:
            payload = bodies.decode_payload(cursor, self._inflated_bytes_max)
            return TransactionPayload(**common, events=tuple(self._inner(payload, cursor.where, end)))
        decode = bodies.BODIES.get(header.type)
        if decode is not None:
            return decode(
                cursor,
                common,
                bodies.Context(header.type, self._format, self._inflated_bytes_max, self._tables, self.position),
            )
        if header.flags & FLAG_IGNORABLE:
            return WithoutChanges(**common, type=header.type)
        raise UnsupportedBinlogError(
            f"{cursor.where}: this version of Barnabas does not know the event, and the server does not flag it as "
            "ignorable, so that changes could be lost: upgrade Barnabas, or switch off the server's feature that "
            "writes it"
        )

    def _inner(self, payload: bytes, where: str, end: int) -> Iterator[Event]:
        """The events of a compressed transaction, which have no checksums. All end where the payload's event ends."""
        at = 0
        while at < len(payload):
            header = decode_header(payload, at, where)
            cursor = EventCursor(
                payload, f"{where}, byte {at} of its payload (event type {header.type})", at, len(payload)
            )
            if header.size > cursor.left:
                raise cursor.error(f"the payload ends inside an event of {header.size} bytes")
            if header.type in (EventType.TRANSACTION_PAYLOAD, EventType.FORMAT_DESCRIPTION, EventType.ROTATE):
                raise cursor.error(f"an event of type {header.type} cannot be in a compressed transaction")
            inner = cursor.within(header.size)
            inner.skip(HEADER_BYTES)
            yield self._body(header, inner, end)
            at = cursor.at


def _common(header: EventHeader, end: int) -> dict[str, int]:
    return {"timestamp": header.timestamp, "server_id": header.server_id, "end": end}


def _check(data: bytes, end: int, cleared_flags: int, where: str) -> None:
    """Raise BinlogError unless the four bytes at `end` are the CRC32 of `data[:end]` with `cleared_flags` cleared."""
    if end < HEADER_BYTES:
        raise BinlogError(f"{where}: the event has {len(data)} bytes, too few for a checksum: restart the query")
    if cleared_flags:
        flags = int.from_bytes(data[17:19], "little") & ~cleared_flags
        found = zlib.crc32(memoryview(data)[19:end], zlib.crc32(data[:17] + flags.to_bytes(2, "little")))
    else:
        found = zlib.crc32(memoryview(data)[:end])
    stored = int.from_bytes(data[end : end + _CHECKSUM_BYTES], "little")
    if found != stored:
        raise BinlogError(
            f"{where}: the event's checksum is {stored:08x}, its bytes have {found:08x}: the binlog or the connection "
            "is damaged; restart the query, and if the error repeats, check the file with mysqlbinlog "
            "--verify-binlog-checksum"
        )
