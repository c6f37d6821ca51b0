"""Machine: hides fields of records from users who are not administrators.

A rule is `TOPICS:PATH=ACTION`, for example `customers*:value.address.street=replace`. TOPICS is a name with `*` for any
characters. PATH begins with `key`, `value` or `headers`; `*` stands for any one name or list element, `**` for any
number of them (at the end for everything below). ACTION is one of

    remove    the field is left out
    replace   the field's value becomes `***`
    last4     only the last four characters of the text stay
    hash      the field's value becomes a short keyed hash, equal for equal values

A value that could not be decoded to fields, so that the path of a rule selects nothing, is hidden as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

ACTIONS: Final = ("remove", "replace", "last4", "hash")
HIDDEN: Final = "***"
_RULE: Final = re.compile(r"(?P<topics>[A-Za-z0-9._*-]+):(?P<path>(?:key|value|headers)(?:\.[^.=]+)*)=(?P<action>\w+)")
_REMOVED: Final = object()
Digest = Callable[[str], str]
"""A keyed hash of a text, in hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class MaskRule:
    """One rule; `path` has the names after `key`, `value` or `headers`."""

    topics: str
    part: str
    path: tuple[str, ...]
    action: str

    @classmethod
    def parse(cls, text: str) -> MaskRule:
        """Raises ValueError that shows the form of a rule."""
        match = _RULE.fullmatch(text.strip())
        if match is None or match["action"] not in ACTIONS:
            raise ValueError(
                f"{text!r} is not a mask: write TOPICS:PATH=ACTION, for example customers*:value.email=replace, with"
                f" one of the actions {', '.join(ACTIONS)}"
            )
        part, *path = match["path"].split(".")
        return cls(match["topics"], part, tuple(path), match["action"])


def rules_of(rules: Sequence[MaskRule], topic: str, part: str) -> list[MaskRule]:
    """The rules for one part (`key`, `value`, `headers`) of the records of a topic."""
    return [rule for rule in rules if rule.part == part and fnmatchcase(topic, rule.topics)]


def masked(value: Any, rules: Sequence[MaskRule], digest: Digest) -> Any:
    """A copy of decoded JSON with the rules applied. A scalar under a rule with a path is hidden as a whole."""
    for rule in rules:
        if value is None:
            return None
        if rule.path and not isinstance(value, dict | list):
            return HIDDEN
        value = _apply(value, rule.path, rule.action, digest)
        if value is _REMOVED:
            return None
    return value


def _apply(value: Any, path: tuple[str, ...], action: str, digest: Digest) -> Any:
    if not path:
        return _acted(value, action, digest)
    if not isinstance(value, dict | list):
        return value
    name, rest = path[0], path[1:]
    items = list(value.items()) if isinstance(value, dict) else [(str(i), v) for i, v in enumerate(value)]
    changed = []
    for key, child in items:
        if name == "**":
            child = _apply(child, path, action, digest) if rest else _acted(child, action, digest)
            if rest and child is not _REMOVED and _names(rest[0], key):
                child = _apply(child, rest[1:], action, digest)
        elif _names(name, key):
            child = _apply(child, rest, action, digest)
        if child is not _REMOVED:
            changed.append((key, child))
    return dict(changed) if isinstance(value, dict) else [child for _, child in changed]


def _names(pattern: str, key: str) -> bool:
    return pattern in ("*", key)


def _acted(value: Any, action: str, digest: Digest) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    match action:
        case "remove":
            return _REMOVED
        case "last4":
            return HIDDEN + text[-4:] if len(text) > 8 else HIDDEN
        case "hash":
            return f"#{digest(text)[:12]}"
        case _:
            return HIDDEN
