"""Codec: regular expressions of Java -> compiled Python patterns, and Java's replacement texts.

Python's syntax has all that configurations of Connect commonly use; named groups are written in another way. What
Python does not have, such as `\\p{Lu}` or `[a&&b]`, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NAMED = re.compile(r"(?<!\\)((?:\\\\)*)\(\?<([A-Za-z][A-Za-z0-9]*)>")
_REFERENCE = re.compile(r"(?<!\\)((?:\\\\)*)\\k<([A-Za-z][A-Za-z0-9]*)>")


def compile_java_pattern(text: str) -> re.Pattern[str]:
    """The compiled pattern. Raises ValueError that says what is wrong, and where."""
    if "&&" in text:
        raise ValueError(
            f"the regular expression {text!r} has &&, which Python does not know; write the class without it"
        )
    plain = _REFERENCE.sub(r"\1(?P=\2)", _NAMED.sub(r"\1(?P<\2>", text))
    try:
        return re.compile(plain)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the regular expression {text!r} is not valid: {error}") from None


def parse_java_replacement(text: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """The function from a match to its replacement: `$1` and `${name}` stand for groups, a backslash quotes the next
    character. As in Java, the digits after `$` are read as long as there is a group of that number. Raises ValueError
    that names the position.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            if at + 1 == len(text):
                raise ValueError(f"the replacement {text!r} ends with a backslash")
            parts.append(text[at + 1])
            at += 2
        elif char == "$":
            group, at = _group(text, at + 1, pattern)
            parts.append(group)
        else:
            parts.append(char)
            at += 1
    return lambda match: "".join(part if isinstance(part, str) else (match.group(part) or "") for part in parts)


def _group(text: str, at: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    """The number of the group whose name or number begins at this position, and the position after it."""
    if text[at : at + 1] == "{":
        end = text.find("}", at)
        name = text[at + 1 : end]
        if end < 0 or name not in pattern.groupindex:
            raise ValueError(f"the replacement {text!r} names a group at position {at} that the pattern does not have")
        return pattern.groupindex[name], end + 1
    end = at
    while end < len(text) and text[end] in "0123456789" and (end == at or int(text[at : end + 1]) <= pattern.groups):
        end += 1
    if end == at or int(text[at:end]) > pattern.groups:
        raise ValueError(
            f"the replacement {text!r} has a $ at position {at - 1} without a group's number; a dollar is written \\$"
        )
    return int(text[at:end]), end
