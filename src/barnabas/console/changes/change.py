"""Value: a change that a form or an API call makes, its outcome, and the reading of form fields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.console.access.users import Role
from barnabas.console.errors import BadInputError
from barnabas.console.sources import Call
from barnabas.core.errors import KafkaError
from barnabas.core.secret_names import HIDDEN, is_secret_name

OFFSET_MAX: Final = (1 << 63) - 1
_INT32_MAX: Final = (1 << 31) - 1
_LOGGED_CHARACTERS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened, in one sentence, and the page to show next."""

    text: str
    link: str
    document: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """One form. `fields` are those that the audit log names; passwords and values of records are not among them.

    A change that `is_check` only computes something, so read-only consoles offer it too and it is not logged.
    """

    path: str
    name: str
    role: Role
    run: Callable[[Call], Awaitable[Outcome]]
    fields: tuple[str, ...] = ()
    is_check: bool = False

    def logged(self, fields: Mapping[str, str]) -> dict[str, str]:
        """What the audit log has of the fields of a form. The value of a secret config is hidden."""
        named = {name: fields[name][:_LOGGED_CHARACTERS_MAX] for name in self.fields if name in fields}
        if "value" in named and is_secret_name(named.get("config", "")):
            named["value"] = HIDDEN
        return named


def required(call: Call, name: str) -> str:
    """A field that must not be empty. Raises BadInputError."""
    text = call.query.get(name, "").strip()
    if not text:
        raise BadInputError(f"{name} is missing.")
    return text


def number(call: Call, name: str, *, otherwise: int | None = None, least: int = 0, most: int = _INT32_MAX) -> int:
    """A field with a whole number from `least` to `most`. Raises BadInputError."""
    text = call.query.get(name, "").strip()
    if not text and otherwise is not None:
        return otherwise
    if not text.removeprefix("-").isdecimal() or len(text) > 19 or not least <= int(text) <= most:
        raise BadInputError(f"{name} must be a whole number from {least} to {most}, not {text[:50]!r}.")
    return int(text)


def assignments(text: str) -> dict[str, str]:
    """`name=value` lines as a dictionary. Raises BadInputError."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals or not name.strip():
            raise BadInputError(f"{line!r} is not name=value.")
        found[name.strip()] = value.strip()
    return found


def confirmed(call: Call, name: str) -> None:
    """Require that the user has typed the name of what is deleted. Raises BadInputError."""
    if call.query.get("confirm", "").strip() != name:
        raise BadInputError(f"Type {name!r} to confirm.")


def raise_first(results: Mapping[Any, object]) -> None:
    """Raise the first error of a result with many items, with the item's name."""
    for name, error in results.items():
        if isinstance(error, KafkaError):
            raise KafkaError(error.code, f"{name}: {error}")
