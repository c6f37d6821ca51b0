"""Codec: the texts of one transform's or predicate's configuration keys -> values of their types.

Values are checked against the table in `definitions.py`. Errors name the complete key, its value, and what is allowed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.spark.connectors.transforms.definitions import Definition, KeyKind, TransformKey
from barnabas.spark.connectors.transforms.errors import TransformConfigError


class Settings:
    """The configuration of one transform or predicate. `prefix` is the start of its keys, such as `transforms.T.`."""

    def __init__(self, prefix: str, definition: Definition, texts: Mapping[str, str]) -> None:
        self.prefix = prefix
        self._rows = {row.name: row for row in definition.keys}
        self._texts = dict(texts)
        for name in self._texts:
            if name not in self._rows:
                raise unknown_key(prefix + name, (prefix + known for known in (*self._rows, "type")))
        for row in definition.keys:
            self._check(row)

    def _check(self, row: TransformKey) -> None:
        text = self._texts.get(row.name)
        if text is None:
            if row.required:
                raise TransformConfigError(f"{self.prefix}{row.name} is missing; it must be given: {row.doc}")
            return
        if row.choices and text not in row.choices:
            raise self.refuse(row.name, f"one of {', '.join(row.choices)}")
        if row.kind is KeyKind.BOOLEAN and text.strip().lower() not in ("true", "false"):
            raise self.refuse(row.name, "true or false")
        if row.kind is KeyKind.INT and not re.fullmatch(r"[+-]?[0-9]{1,10}", text.strip()):
            raise self.refuse(row.name, "an integer")
        if row.kind is KeyKind.LIST and row.required and not self.list(row.name):
            raise self.refuse(row.name, "a list with at least one element, separated by commas")

    def refuse(self, name: str, allowed: str) -> TransformConfigError:
        """The error for a value that is not allowed."""
        return TransformConfigError(f"{self.prefix}{name} must be {allowed}, got {self.optional(name)!r}")

    def optional(self, name: str) -> str | None:
        """The text of a key, its default, or None if the key is not set."""
        return self._texts.get(name, self._rows[name].default)

    def text(self, name: str) -> str:
        """The text of a key that is required or has a default."""
        text = self.optional(name)
        assert text is not None, name
        return text

    def list(self, name: str) -> tuple[str, ...]:
        """The elements of a list, which commas separate, without the spaces around them."""
        text = self.text(name).strip()
        return tuple(part.strip() for part in text.split(",")) if text else ()

    def integer(self, name: str) -> int | None:
        """The value of an integer key, or None if the key is not set."""
        text = self.optional(name)
        return None if text is None else int(text)


def unknown_key(key: str, known: Iterable[str]) -> TransformConfigError:
    """The error for a key that no definition has. The message names the nearest key that exists."""
    names = sorted(known)
    near = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(names) or 'none'}"
    return TransformConfigError(f"there is no key {key}: {hint}")


def boolean(key: str, text: str) -> bool:
    """The value of a boolean key."""
    if text.strip().lower() not in ("true", "false"):
        raise TransformConfigError(f"{key} must be true or false, got {text!r}")
    return text.strip().lower() == "true"


Transform = Callable[[Any], Any]
"""A configured transform: from a batch of records to a batch of records. It keeps the columns that it does not know."""
