"""Codec: reads a list of tokens one by one: names, numbers, strings, and the values of options."""

from __future__ import annotations

from typing import Any

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.formats.protobuf.lexer import Token, integer_value


class TokenReader:
    """A position in a list of tokens. An unexpected token raises InvalidSchemaError with its line number."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at].text

    def _next(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _take(self, text: str) -> bool:
        token = self._tokens[self._at]
        if token.text == text and token.kind in ("name", "sign"):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            self._fail(f"expected {text!r}, found {self._peek()!r}")

    def _fail(self, what: str) -> Any:
        raise InvalidSchemaError(f"Line {self._tokens[self._at].line} of the .proto: {what}.")

    def _name(self) -> str:
        token = self._tokens[self._at]
        if token.kind != "name":
            self._fail(f"expected a name, found {token.text!r}")
        self._at += 1
        return token.text

    def _full_name(self) -> str:
        name = "." if self._take(".") else ""
        name += self._name()
        while self._take("."):
            name += f".{self._name()}"
        return name

    def _integer(self) -> int:
        negative = self._take("-")
        token = self._next()
        if token.kind != "int":
            self._at -= 1
            self._fail(f"expected an integer, found {token.text!r}")
        try:
            value = integer_value(token.text)
        except ValueError:
            self._fail(f"{token.text!r} is not a number")
        return -value if negative else value

    def _text(self) -> str:
        parts: list[str] = []
        while self._tokens[self._at].kind == "text":
            parts.append(self._next().unquoted())
        if not parts:
            self._fail(f"expected a quoted string, found {self._peek()!r}")
        return "".join(parts)

    def _option_name(self) -> list[tuple[str, bool]]:
        """The parts of an option's name: (name, whether the part is the name of an extension)."""
        parts: list[tuple[str, bool]] = []
        while True:
            if self._take("("):
                parts.append((self._full_name(), True))
                self._expect(")")
            else:
                parts.append((self._name(), False))
            if not self._take("."):
                return parts

    def _constant(self) -> Token:
        """One value as a token. A `{...}` value becomes a token of kind `aggregate`; a number includes its sign."""
        token = self._tokens[self._at]
        if token.kind == "text":
            return Token("value-text", self._text(), token.line)
        if token.text == "{":
            return Token("aggregate", self._aggregate(), token.line)
        sign = "-" if self._take("-") else ""
        if not sign:
            self._take("+")
        token = self._next()
        if token.kind not in ("name", "int", "float"):
            self._at -= 1
            self._fail(f"expected a value, found {token.text!r}")
        text = token.text
        while token.kind == "name" and not sign and self._take("."):
            text += f".{self._name()}"
        return Token(token.kind, sign + text, token.line)

    def _aggregate(self) -> str:
        """The text between braces, in protobuf's text format."""
        self._expect("{")
        depth = 1
        parts: list[str] = []
        while True:
            token = self._next()
            if token.kind == "end":
                self._fail("a '{' is not closed")
            depth += {"{": 1, "}": -1}.get(token.text, 0)
            if depth == 0:
                return " ".join(parts)
            parts.append(token.text)
