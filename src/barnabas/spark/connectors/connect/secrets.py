"""Machine: which keys of a configuration are secrets, and texts without the secrets that references were resolved to.

A reference to a secret, such as `${file:/run/secrets/db.properties:password}`, is resolved when a connector is started.
Errors of Spark, of drivers and of plugins can have any option in their texts, for example in a URL, so that the secrets
are replaced in all texts that leave the runtime: statuses, log lines and exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote

from barnabas.core.errors import BarnabasError

REFERENCE: Final = re.compile(r"\$\{[^}:]+:[^}]+\}")
HIDDEN: Final = "[hidden]"
"""What Connect shows in place of a value of the type PASSWORD."""
LENGTH_MIN: Final = 4
"""The shortest value that is replaced. A shorter one occurs in many texts by chance, and protects nothing."""
_SECRET_KEY: Final = re.compile(
    r"password|passphrase|secret|token(?!\.endpoint)|jaas|credential|user\.info|authorization(?!\.type)|private"
    r"|keystore\.key",
    re.IGNORECASE,
)


class ConnectorStartError(BarnabasError):
    """A connector cannot be started. The text is that of another exception, without secrets."""


def names_secret(key: str) -> bool:
    """Whether the value of a key is a secret, by its name."""
    return _SECRET_KEY.search(key) is not None


class Secrets:
    """The values of the references in the configuration of one connector."""

    def __init__(self, values: frozenset[str] = frozenset()) -> None:
        forms = {form for value in values for form in (value, quote(value, safe=""), quote(value))}
        self._forms = sorted((form for form in forms if len(form) >= LENGTH_MIN), key=lambda form: (-len(form), form))

    def __repr__(self) -> str:
        return f"Secrets({len(self._forms)} texts)"

    def hide(self, text: str) -> str:
        """The text with `[hidden]` in place of each secret."""
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return text

    def hidden_error(self, error: Exception) -> Exception:
        """The exception itself, or one without secrets if its text has some."""
        text = str(error)
        shown = self.hide(text)
        return error if shown == text else ConnectorStartError(f"{type(error).__name__}: {shown}")


def secrets_of(config: Mapping[str, str], resolve: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Secrets:
    """The secrets that the references of a configuration are resolved to. `resolve` replaces references in texts."""
    references = {found: found for text in config.values() for found in REFERENCE.findall(text)}
    return Secrets(frozenset(value for name, value in resolve(references).items() if value != name))
