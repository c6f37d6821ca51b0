"""Codec: splits a .proto file into tokens with their line numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from barnabas.registry.errors import InvalidSchemaError

_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+|//[^\n]*|/\*.*?\*/)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<float>(?:\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)[fF]?)
    | (?P<int>0[xX][0-9a-fA-F]+|\d+)
    | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<sign>[{}\[\]()<>=;,.:+/-])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_PLAIN: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
END: Final = "end of file"


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a .proto file. `kind` is name, int, float, text, sign or end."""

    kind: str
    text: str
    line: int

    def unquoted(self) -> str:
        """The value of a text token, without quotes and with escapes replaced."""
        return _ESCAPE.sub(_unescape, self.text[1:-1])


def tokens_of(source: str) -> list[Token]:
    """All tokens, and an end token. Raises InvalidSchemaError at a character that cannot begin a token."""
    tokens: list[Token] = []
    position, line, length = 0, 1, len(source)
    while position < length:
        match = _TOKEN.match(source, position)
        if match is None:
            raise InvalidSchemaError(
                f"Line {line} of the .proto: {source[position : position + 20]!r} is not valid here."
            )
        kind, text = match.lastgroup or "", match.group()
        if kind != "space":
            tokens.append(Token(kind, text, line))
        line += text.count("\n")
        position = match.end()
    tokens.append(Token("end", END, line))
    return tokens


def integer_value(text: str) -> int:
    """The value of an `int` token, with or without a minus sign: decimal, hexadecimal (`0x1F`) or octal (`017`).

    Raises ValueError for a digit that octal does not have (`08`).
    """
    negative, digits = text.startswith("-"), text.removeprefix("-")
    is_octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xX"
    value = int(digits, 8 if is_octal else 0)
    return -value if negative else value


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    if code[0] in "xXuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    return _PLAIN.get(code, code)
