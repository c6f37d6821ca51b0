"""Codec: records as lines of text, in the formats that Kafka's console tools read and print, with Kafka's property
names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.cli.records.deserializers import ToText, deserializer

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class LineReader:
    """Parses a line into headers, key and value, as Kafka's LineMessageReader does: `headers<TAB>key<TAB>value`."""

    parse_key: bool = False
    key_separator: str = "\t"
    parse_headers: bool = False
    headers_delimiter: str = "\t"
    headers_separator: str = ","
    headers_key_separator: str = ":"
    null_marker: str | None = None
    ignore_error: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LineReader:
        """A reader for Kafka's properties parse.key, key.separator, and so on. Raises ValueError for an unknown
        property.
        """
        return cls(**_fields(properties, _READER))

    def parse(self, line: bytes, number: int = 0) -> tuple[bytes | None, bytes | None, Headers]:
        """Key, value and headers of a line. Raises ValueError that names the line if a separator is missing."""
        headers: Headers = ()
        key: bytes | None = None
        rest = line
        if self.parse_headers:
            text, rest = self._cut(rest, self.headers_delimiter, "headers.delimiter", number)
            headers = self._headers(text or b"", number)
        if self.parse_key:
            key, rest = self._cut(rest, self.key_separator, "key.separator", number)
        return self._null(key), self._null(rest), headers

    def _cut(self, line: bytes, separator: str, name: str, number: int) -> tuple[bytes | None, bytes]:
        head, found, tail = line.partition(separator.encode())
        if not found:
            if self.ignore_error:
                return None, line
            raise ValueError(f"line {number}: no {name} {separator!r} in {line[:60].decode('utf-8', 'replace')!r}")
        return head, tail

    def _headers(self, text: bytes, number: int) -> Headers:
        if self.null_marker is not None and text == self.null_marker.encode():
            return ()
        headers = []
        for part in text.split(self.headers_separator.encode()):
            name, found, value = part.partition(self.headers_key_separator.encode())
            if not found and not self.ignore_error:
                raise ValueError(f"line {number}: header {part.decode('utf-8', 'replace')!r} is not name:value")
            headers.append((name.decode("utf-8", "replace"), self._null(value)))
        return tuple(headers)

    def _null(self, data: bytes | None) -> bytes | None:
        return None if self.null_marker is not None and data == self.null_marker.encode() else data


@dataclass(frozen=True, slots=True)
class LinePrinter:
    """Formats a record as a line, as Kafka's DefaultMessageFormatter does; the parts have Kafka's order."""

    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_delivery: bool = False
    print_epoch: bool = False
    print_headers: bool = False
    print_key: bool = False
    print_value: bool = True
    key_separator: str = "\t"
    line_separator: str = "\n"
    headers_separator: str = ","
    null_literal: str = "null"
    key_text: ToText | None = None
    """Converts a key's bytes to text; None leaves the bytes unchanged. The next two do the same for values and header
    values.
    """
    value_text: ToText | None = None
    headers_text: ToText | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LinePrinter:
        """A printer for Kafka's properties print.key, key.separator, key.deserializer, and so on. Raises ValueError for
        an unknown property.
        """
        texts: dict[str, Any] = {
            f"{part}_text": deserializer(properties[f"{part}.deserializer"])
            for part in ("key", "value", "headers")
            if f"{part}.deserializer" in properties
        }
        rest = {name: value for name, value in properties.items() if name.split(".")[1:2] != ["deserializer"]}
        return cls(**_fields(rest, _PRINTER), **texts)

    def format(self, record: Any) -> bytes:
        """One record as a line."""
        return self.format_many((record,))

    def format_many(self, records: Iterable[Any]) -> bytes:
        """Many records as lines, in one bytes object."""
        line_end = self.line_separator.encode()
        null = self.null_literal.encode()
        if self._only_value():
            lines = [null if r.value is None else r.value for r in records]
            return line_end.join([*lines, b""])
        if self._only_key_and_value():
            separator = self.key_separator.encode()
            lines = [
                (null if r.key is None else r.key) + separator + (null if r.value is None else r.value) for r in records
            ]
            return line_end.join([*lines, b""])
        separator = self.key_separator.encode()
        return b"".join([separator.join(self._parts(record)) + line_end for record in records])

    def _plain(self) -> bool:
        return not (
            self.print_timestamp
            or self.print_partition
            or self.print_offset
            or self.print_delivery
            or self.print_epoch
            or self.print_headers
            or self.key_text
            or self.value_text
        )

    def _only_value(self) -> bool:
        return self._plain() and self.print_value and not self.print_key

    def _only_key_and_value(self) -> bool:
        return self._plain() and self.print_value and self.print_key

    def _parts(self, record: Any) -> list[bytes]:
        parts = []
        if self.print_timestamp:
            kind = "LogAppendTime" if record.timestamp_type == 1 else "CreateTime"
            parts.append(f"{kind}:{record.timestamp}".encode())
        if self.print_partition:
            parts.append(b"Partition:%d" % record.partition)
        if self.print_offset:
            parts.append(b"Offset:%d" % record.offset)
        if self.print_delivery:
            parts.append(f"Delivery:{record.delivery_count or 'NOT_PRESENT'}".encode())
        if self.print_epoch:
            parts.append(f"Epoch:{'NOT_PRESENT' if record.leader_epoch < 0 else record.leader_epoch}".encode())
        if self.print_headers:
            pairs = [f"{name}:".encode() + self._bytes(value, self.headers_text) for name, value in record.headers]
            parts.append(self.headers_separator.encode().join(pairs) or b"NO_HEADERS")
        if self.print_key:
            parts.append(self._bytes(record.key, self.key_text))
        if self.print_value:
            parts.append(self._bytes(record.value, self.value_text))
        return parts

    def _bytes(self, data: bytes | None, to_text: ToText | None) -> bytes:
        if data is None:
            return self.null_literal.encode()
        return data if to_text is None else to_text(data)


_READER: Final = {
    "parse.key": "parse_key",
    "key.separator": "key_separator",
    "parse.headers": "parse_headers",
    "headers.delimiter": "headers_delimiter",
    "headers.separator": "headers_separator",
    "headers.key.separator": "headers_key_separator",
    "null.marker": "null_marker",
    "ignore.error": "ignore_error",
}
_PRINTER: Final = {
    "print.timestamp": "print_timestamp",
    "print.partition": "print_partition",
    "print.offset": "print_offset",
    "print.delivery": "print_delivery",
    "print.epoch": "print_epoch",
    "print.headers": "print_headers",
    "print.key": "print_key",
    "print.value": "print_value",
    "key.separator": "key_separator",
    "line.separator": "line_separator",
    "headers.separator": "headers_separator",
    "null.literal": "null_literal",
}


def _fields(properties: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in properties.items():
        if name not in names:
            raise ValueError(f"{name!r} is not a property of this tool; the properties are {', '.join(names)}")
        flag = names[name].startswith(("parse_", "print_", "ignore_"))
        fields[names[name]] = value.lower() == "true" if flag else unescape(value)
    return fields


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[tnr0\\])")
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


def unescape(text: str) -> str:
    r"""Replace `\t`, `\n`, `\r`, `\0`, `\xNN` and `\uNNNN` by the characters that they stand for."""
    return _ESCAPE.sub(lambda m: _ESCAPED.get(m[1]) or chr(int(m[1][1:], 16)), text)
