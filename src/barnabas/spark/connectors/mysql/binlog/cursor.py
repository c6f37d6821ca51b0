"""Codec: reads the binlog's integers and strings from bytes, in little-endian order, and never beyond their end."""

from __future__ import annotations

from struct import Struct as Layout
from typing import Any

from barnabas.spark.connectors.mysql.errors import BinlogError


class EventCursor:
    """A position in the body of an event. Every method raises BinlogError if the bytes end too early.

    `where` names the event and its position in the binlog. Error messages begin with it.
    """

    __slots__ = ("at", "data", "end", "where")

    def __init__(self, data: bytes, where: str, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.where = where
        self.at = at
        self.end = len(data) if end is None else end

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return self.end - self.at

    def error(self, reason: str) -> BinlogError:
        """The error for damaged bytes at the present position."""
        return BinlogError(
            f"{self.where}: {reason} (byte {self.at} of the event's {self.end}). The binlog is damaged, or the "
            "connection lost bytes: restart the query; if the error repeats, check the file with mysqlbinlog "
            "--verify-binlog-checksum"
        )

    def skip(self, size: int) -> int:
        """Pass over `size` bytes. Returns the position of the first of them."""
        if size < 0 or size > self.end - self.at:
            raise self.error(f"{size} bytes are expected, {self.end - self.at} are left")
        at = self.at
        self.at = at + size
        return at

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        at = self.skip(size)
        return bytes(self.data[at : self.at])

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(self.left)

    def uint(self, size: int) -> int:
        """An unsigned integer of `size` bytes."""
        at = self.skip(size)
        return int.from_bytes(self.data[at : self.at], "little")

    def unpack(self, layout: Layout) -> tuple[Any, ...]:
        """The fields of a `struct` layout."""
        return layout.unpack_from(self.data, self.skip(layout.size))

    def packed_int(self) -> int:
        """A length-encoded integer of MySQL's protocol: 1, 3, 4 or 9 bytes."""
        first = self.uint(1)
        if first < 0xFB:
            return first
        if first == 0xFC:
            return self.uint(2)
        if first == 0xFD:
            return self.uint(3)
        if first == 0xFE:
            return self.uint(8)
        raise self.error(f"0x{first:02x} does not begin a length-encoded integer")

    def packed_bytes(self) -> bytes:
        """A byte string after its length-encoded length."""
        return self.take(self.packed_int())

    def within(self, size: int) -> EventCursor:
        """A cursor over the next `size` bytes, which this cursor passes over."""
        at = self.skip(size)
        return EventCursor(self.data, self.where, at, self.at)

    def text(self, raw: bytes) -> str:
        """`raw` as text; names are UTF-8 in the binlog."""
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise self.error(f"a name is not valid UTF-8: {error.reason}") from error

    def expect_end(self) -> None:
        """Raises BinlogError if bytes are left."""
        if self.at != self.end:
            raise self.error(f"{self.end - self.at} bytes are left behind the last field")
