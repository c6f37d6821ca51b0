"""Codec: Java properties text (`server.properties`, `meta.properties`) <-> names and values.

The syntax is that of `java.util.Properties.load`: `#` and `!` begin comments, a backslash at the end of a line joins
it with the next, `=`, `:` or white space end the key, and `\\t \\n \\r \\f \\uXXXX` are escapes; a backslash before any
other character is dropped. The last of several lines with one name wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_SPACE: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY_END: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """The names and values in `text`, in the order in which the names first occur.

    Raises ValueError, naming the line, for a `\\u` that is not followed by four hexadecimal digits.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _KEY_END.match(line)
        end = match.end() if match else 0
        rest = line[end:].lstrip(_SPACE)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_SPACE)
        found[_unescape(line[:end], number)] = _unescape(rest, number)
    return found


def render_properties(values: Mapping[str, str], comment: str | None = None) -> str:
    """Text that `parse_properties` and Java read back as `values`, one line per name."""
    lines = [f"#{line}" for line in comment.splitlines()] if comment else []
    lines += [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in values.items()]
    return "".join(line + "\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of `text` without comments and blank lines, each with its line number in `text`.

    Lines that a backslash continues are joined, and have the number of the first one.
    """
    pending: str | None = None
    first = 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = natural.lstrip(_SPACE)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            first = number
            pending = ""
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield first, pending + line
        pending = None
    if pending:
        yield first, pending


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape == "u":
            raise ValueError(f"line {line}: \\u must be followed by four hexadecimal digits")
        return _ESCAPES.get(escape, escape)

    # Two escapes may form one surrogate pair.
    return _ESCAPED.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, key: bool) -> str:
    escaped = []
    for index, char in enumerate(text):
        if char in "\\#!=:" or (char == " " and (key or index == 0)):
            escaped.append("\\" + char)
        elif char in "\t\n\r\f":
            escaped.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[char])
        else:
            escaped.append(char)
    return "".join(escaped)
