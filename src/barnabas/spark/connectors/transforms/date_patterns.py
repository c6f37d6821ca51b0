"""Codec: milliseconds since 1970 <-> texts in a pattern of Java's `java.text.SimpleDateFormat`, for whole columns.

    y year   M month (MMM, MMMM: English name)   d day of month   D day of year   E day name   a AM or PM
    H hour 0-23   k hour 1-24   K hour 0-11   h hour 1-12   m minute   s second   S millisecond
    z, Z, X, XX, XXX time zone; 'text' in quotes stands for itself, '' is one quote

Texts are formatted in UTC, and texts without a zone are read as UTC, as the transforms of Connect do. Reading is
lenient as in Java: month 13 is January of the next year, and text after the pattern is ignored. Reading a year of two
digits is refused, because Java's result depends on the current date.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
from msgspec import Struct

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time
_MONTHS = [
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
]  # fmt: skip
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_NUMBERS = "yMdDHkKhmsS"
_LETTERS: Final = "yMdDEaHkKhmsSzZX"
_DAY_MS: Final = 86_400_000


class DateToken(Struct, frozen=True):
    """One part of a pattern: `count` times the letter, or a literal text if the letter is empty."""

    letter: str
    count: int = 0
    text: str = ""

    @property
    def number(self) -> bool:
        """True if the part is written with digits."""
        return bool(self.letter) and self.letter in _NUMBERS and not (self.letter == "M" and self.count >= 3)


def parse_pattern(pattern: str) -> tuple[DateToken, ...]:
    """The parts of a pattern. Raises ValueError that names the position of an unknown letter or an open quote."""
    tokens: list[DateToken] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "'":
            text, at = _quoted(pattern, at)
            tokens.append(DateToken("", text=text))
        elif char.isascii() and char.isalpha():
            end = at
            while end < len(pattern) and pattern[end] == char:
                end += 1
            if char not in _LETTERS or (char == "X" and end - at > 3):
                raise ValueError(
                    f"the letter {char!r} at position {at} of the pattern {pattern!r} is not one of {_LETTERS}"
                )
            tokens.append(DateToken(char, end - at))
            at = end
        else:
            tokens.append(DateToken("", text=char))
            at += 1
    return tuple(tokens)


def _quoted(pattern: str, at: int) -> tuple[str, int]:
    """The text of the quotes that open at this position, and the position after them."""
    if pattern[at + 1 : at + 2] == "'":
        return "'", at + 2
    text, end = "", at + 1
    while end < len(pattern):
        if pattern[end] != "'":
            text += pattern[end]
            end += 1
        elif pattern[end + 1 : end + 2] == "'":
            text += "'"
            end += 2
        else:
            return text, end + 1
    raise ValueError(f"the quote at position {at} of the pattern {pattern!r} is not closed")


ISO_TIME: Final = parse_pattern("HH:mm:ss.SSS'Z'")
ISO_TIMESTAMP: Final = parse_pattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def format_ms(ms: Any, tokens: tuple[DateToken, ...]) -> Any:
    """A string column from an int64 column of milliseconds since 1970, in UTC. Nulls stay null."""
    time = ms.cast(pa.timestamp("ms"))
    parts = [_formatted(time, token) for token in tokens]
    if not parts:
        return _pc.if_else(ms.is_valid(), "", pa.scalar(None, pa.string()))
    texts = _pc.binary_join_element_wise(*parts, "", null_handling="emit_null")
    return _pc.if_else(ms.is_valid(), texts, pa.scalar(None, pa.string()))


def _formatted(time: Any, token: DateToken) -> Any:
    hour = _pc.hour(time)
    match token.letter:
        case "":
            return pa.scalar(token.text)
        case "y":
            year = _pc.year(time)
            if token.count == 2:
                return _padded(pa.array(np.mod(year.to_numpy(zero_copy_only=False), 100), from_pandas=True), 2)
            return _padded(year, token.count)
        case "M" if token.count >= 3:
            return _named(_pc.subtract(_pc.month(time), 1), _MONTHS, token.count)
        case "M":
            return _padded(_pc.month(time), token.count)
        case "d":
            return _padded(_pc.day(time), token.count)
        case "D":
            return _padded(_pc.day_of_year(time), token.count)
        case "E":
            return _named(_pc.day_of_week(time), _DAYS, token.count)
        case "a":
            return _pc.if_else(_pc.less(hour, 12), "AM", "PM")
        case "H":
            return _padded(hour, token.count)
        case "k":
            return _padded(_pc.if_else(_pc.equal(hour, 0), 24, hour), token.count)
        case "K":
            return _padded(_twelve(hour), token.count)
        case "h":
            twelve = _twelve(hour)
            return _padded(_pc.if_else(_pc.equal(twelve, 0), 12, twelve), token.count)
        case "m":
            return _padded(_pc.minute(time), token.count)
        case "s":
            return _padded(_pc.second(time), token.count)
        case "S":
            return _padded(_pc.millisecond(time), token.count)
        case "z":
            return pa.scalar("Coordinated Universal Time" if token.count >= 4 else "UTC")
        case "Z":
            return pa.scalar("+0000")
        case _:
            return pa.scalar("Z")


def _twelve(hour: Any) -> Any:
    return _pc.if_else(_pc.less(hour, 12), hour, _pc.subtract(hour, 12))


def _padded(numbers: Any, width: int) -> Any:
    return _pc.utf8_lpad(numbers.cast(pa.int64()).cast(pa.string()), width=width, padding="0")


def _named(index: Any, names: list[str], count: int) -> Any:
    table = pa.array([name if count >= 4 else name[:3] for name in names])
    return table.take(index)


def pattern_reads(tokens: tuple[DateToken, ...]) -> None:
    """Raise ValueError if texts cannot be read with the pattern, because it has a year of two digits."""
    if any(token.letter == "y" and token.count == 2 for token in tokens):
        raise ValueError("a year of two digits cannot be read without the current date; write yyyy")


def parse_texts(texts: Any, tokens: tuple[DateToken, ...]) -> Any:
    """An int64 column of milliseconds since 1970 from a string column. Nulls stay null.

    Raises ValueError whose argument is the number of the first row that does not match the pattern.
    """
    groups = _pc.extract_regex(texts, _reading_regex(tokens))
    failed = _pc.and_(texts.is_valid(), groups.is_null())
    if _pc.any(failed).as_py():
        raise ValueError(failed.to_pylist().index(True))
    found: dict[str, Any] = {}
    for index, token in enumerate(tokens):
        if token.letter and token.letter != "E":
            found[token.letter] = _read(groups.field(f"g{index}"), token)
    return pa.array(_combined(found, len(texts)), pa.int64(), mask=texts.is_null().to_numpy(zero_copy_only=False))


def _reading_regex(tokens: tuple[DateToken, ...]) -> str:
    parts = ["^"]
    for index, token in enumerate(tokens):
        next_number = index + 1 < len(tokens) and tokens[index + 1].number
        if not token.letter:
            parts.append(re.escape(token.text))
        elif token.number:
            digits = f"[0-9]{{{token.count}}}" if next_number else "[0-9]{1,9}"
            parts.append(f"(?P<g{index}>{digits})")
        elif token.letter == "M":
            names = "|".join(f"{name}|{name[:3]}" for name in _MONTHS)
            parts.append(f"(?P<g{index}>(?i:{names}))")
        elif token.letter == "E":
            names = "|".join(f"{name}|{name[:3]}" for name in _DAYS)
            parts.append(f"(?P<g{index}>(?i:{names}))")
        elif token.letter == "a":
            parts.append(f"(?P<g{index}>(?i:AM|PM))")
        elif token.letter == "X":
            zone = {1: "[+-][0-9]{2}", 2: "[+-][0-9]{4}", 3: "[+-][0-9]{2}:[0-9]{2}"}[token.count]
            parts.append(f"(?P<g{index}>Z|{zone})")
        else:
            parts.append(f"(?P<g{index}>UTC|(?:GMT)?[+-][0-9]{{2}}:?[0-9]{{2}}|GMT|Z)")
    return "".join(parts)


def _read(texts: Any, token: DateToken) -> Any:
    """The integers of one part, for the rows that are not null; the others are 0. Zones are minutes east of UTC."""
    if token.number:
        digits = _pc.if_else(_pc.and_(texts.is_valid(), _pc.greater(_pc.utf8_length(texts), 0)), texts, "0")
        return digits.cast(pa.int64()).to_numpy(zero_copy_only=False)
    encoded = texts.dictionary_encode()
    meaning = [_word(word, token.letter) for word in encoded.dictionary.to_pylist()]
    values = pa.array(meaning or [0], pa.int64()).take(encoded.indices.fill_null(0))
    return values.to_numpy(zero_copy_only=False)


def _word(word: str, letter: str) -> int:
    if letter == "M":
        return 1 + next((i for i, name in enumerate(_MONTHS) if word[:3].lower() == name[:3].lower()), 0)
    if letter == "a":
        return int(word.lower() == "pm")
    offset = re.search(r"([+-])([0-9]{2}):?([0-9]{2})?$", word)
    if offset is None:
        return 0
    minutes = int(offset[2]) * 60 + int(offset[3] or 0)
    return -minutes if offset[1] == "-" else minutes


def _combined(found: dict[str, Any], length: int) -> Any:
    """The milliseconds since 1970 from the numbers of the parts, as arrays; parts that are absent are those of 1970."""
    zeros = np.zeros(length, np.int64)
    months = (found.get("y", zeros + 1970) - 1970) * 12 + found.get("M", zeros + 1) - 1
    if "D" in found and "M" not in found:
        days = (months // 12 * 12).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + found["D"] - 1
    else:
        days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + found.get("d", zeros + 1) - 1
    if "H" in found:
        hours = found["H"]
    elif "k" in found:
        hours = np.where(found["k"] == 24, 0, found["k"])
    else:
        twelve = found["K"] if "K" in found else found.get("h", zeros)
        hours = np.where((twelve == 12) & ("h" in found), 0, twelve) + 12 * found.get("a", zeros)
    minutes = hours * 60 + found.get("m", zeros)
    for letter in "zZX":
        minutes = minutes - found.get(letter, zeros)
    return days * _DAY_MS + minutes * 60_000 + found.get("s", zeros) * 1000 + found.get("S", zeros)
