"""Machine: the language in which people search records: conditions on paths, and nothing that executes.

    value.carrier = "UA" and value.delay > 30
    key startswith order- or headers.trace exists
    not (value.items[0].sku in ["a", "b"]) and offset >= 100

A path begins with `key`, `value`, `headers`, `partition`, `offset` or `timestamp`; `$` is the value, as in JSON path.
Operators: = != < <= > >= contains startswith in exists. A literal is JSON; a bare word is text. A path that a record
does not have makes every condition false, except with `!=`. The text is limited in length and depth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.console.errors import BadInputError

CHARACTERS_MAX: Final = 1_000
_DEPTH_MAX: Final = 20
_ROOTS: Final = ("key", "value", "headers", "partition", "offset", "timestamp")
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*")
      | (?P<list>\[[^\]]*\])
      | (?P<operator>==|!=|<=|>=|=|<|>)
      | (?P<paren>[()])
      | (?P<word>(?:[^\s()=!<>\[\]"]|\[\d+\])+)
    )""",
    re.VERBOSE,
)
_OPERATORS: Final = ("=", "==", "!=", "<", "<=", ">", ">=", "contains", "startswith", "in", "exists")
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Condition:
    """A path compared with a literal."""

    path: tuple[str | int, ...]
    operator: str
    literal: Any = None

    def accepts(self, record: Mapping[str, Any]) -> bool:
        found = value_at(record, self.path)
        if self.operator == "exists":
            return found is not MISSING
        if found is MISSING:
            return self.operator == "!="
        return _compare(found, self.operator, self.literal)


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Filter, ...]

    def accepts(self, record: Mapping[str, Any]) -> bool:
        return all(part.accepts(record) for part in self.parts)


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Filter, ...]

    def accepts(self, record: Mapping[str, Any]) -> bool:
        return any(part.accepts(record) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Not:
    part: Filter

    def accepts(self, record: Mapping[str, Any]) -> bool:
        return not self.part.accepts(record)


Filter = Condition | All | AnyOf | Not


def parse_filter(text: str) -> Filter:
    """Raises BadInputError that says where the text is wrong."""
    if len(text) > CHARACTERS_MAX:
        raise BadInputError(f"A search has at most {CHARACTERS_MAX} characters.")
    return _Parser(text).parse()


def value_at(record: Mapping[str, Any], path: tuple[str | int, ...]) -> Any:
    """The value at a path, or MISSING. A number selects an element of a list."""
    found: Any = record
    for step in path:
        if isinstance(found, Mapping) and str(step) in found:
            found = found[str(step)]
        elif isinstance(found, list) and isinstance(step, int) and step < len(found):
            found = found[step]
        else:
            return MISSING
    return found


class _Parser:
    """Recursive descent: `or` binds weaker than `and`, `and` weaker than `not`."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise BadInputError(f"The search cannot be read from {text[position:].strip()[:20]!r} on.")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()

    def parse(self) -> Filter:
        found = self._either(0)
        if self._at < len(self._tokens):
            raise BadInputError(f"The search has {self._tokens[self._at][1]!r} where `and` or `or` is expected.")
        return found

    def _either(self, depth: int) -> Filter:
        parts = [self._both(depth)]
        while self._take("or"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _both(self, depth: int) -> Filter:
        parts = [self._one(depth)]
        while self._take("and"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _one(self, depth: int) -> Filter:
        if depth > _DEPTH_MAX:
            raise BadInputError(f"The search has more than {_DEPTH_MAX} levels of parentheses.")
        if self._take("not"):
            return Not(self._one(depth + 1))
        if self._take("("):
            found = self._either(depth + 1)
            if not self._take(")"):
                raise BadInputError("The search lacks a closing parenthesis.")
            return found
        return self._condition()

    def _condition(self) -> Condition:
        path = parse_path(self._next("a path such as value.id"))
        operator = self._next(f"an operator ({', '.join(_OPERATORS)})").lower()
        if operator not in _OPERATORS:
            raise BadInputError(f"{operator!r} is not an operator: write one of {', '.join(_OPERATORS)}.")
        if operator == "exists":
            return Condition(path, operator)
        literal = _literal(self._next("a value to compare with"))
        if operator == "in" and not isinstance(literal, list):
            raise BadInputError('`in` needs a list, for example value.state in ["NEW", "PAID"].')
        return Condition(path, "=" if operator == "==" else operator, literal)

    def _take(self, word: str) -> bool:
        if self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            if kind in ("word", "paren") and text.lower() == word:
                self._at += 1
                return True
        return False

    def _next(self, expected: str) -> str:
        if self._at == len(self._tokens):
            raise BadInputError(f"The search ends where {expected} is expected.")
        self._at += 1
        return self._tokens[self._at - 1][1]


def parse_path(text: str) -> tuple[str | int, ...]:
    """`value.items[0].sku` as ("value", "items", 0, "sku"). Raises BadInputError."""
    text = "value" + text[1:] if text.startswith("$") else text
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise BadInputError(f"{text!r} is not a path: write value.customer.id, value.items[0] or headers.trace.")
        steps.append(match[1] if match[1] is not None else int(match[2]))
        position = match.end()
    if not steps or steps[0] not in _ROOTS:
        raise BadInputError(f"The path {text!r} begins with none of {', '.join(_ROOTS)}.")
    return tuple(steps)


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _compare(found: Any, operator: str, literal: Any) -> bool:
    match operator:
        case "=":
            return _equal(found, literal)
        case "!=":
            return not _equal(found, literal)
        case "contains":
            if isinstance(found, list):
                return any(_equal(one, literal) for one in found)
            return str(literal).lower() in _text(found).lower()
        case "startswith":
            return _text(found).startswith(str(literal))
        case "in":
            return any(_equal(found, one) for one in literal)
    if _is_number(found) and _is_number(literal):
        pass
    elif not (isinstance(found, str) and isinstance(literal, str)):
        return False
    match operator:
        case "<":
            return bool(found < literal)
        case "<=":
            return bool(found <= literal)
        case ">":
            return bool(found > literal)
        case _:
            return bool(found >= literal)


def _equal(found: Any, literal: Any) -> bool:
    """Equality of JSON; a number in a text equals the number, since keys are often numbers as text."""
    if isinstance(found, str) and not isinstance(literal, str) and literal is not None:
        return found == json.dumps(literal)
    return bool(found == literal) and isinstance(found, bool) == isinstance(literal, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
