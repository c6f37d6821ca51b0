"""Shell: contexts: the clusters of a user, each with a name and the settings of its clients.

    ~/.config/barnabas/                   BARNABAS_CONFIG_DIR, or barnabas/ in XDG_CONFIG_HOME
        context                           the name of the context that commands use
        contexts/prod.properties          client settings, and those of the schema registry

A context is a file like that of `--command-config`. Its settings apply to a command that was given neither
`--bootstrap-server` (or BARNABAS_BOOTSTRAP) nor a file with `bootstrap.servers`, so that the password for one cluster
is never sent to another. `BARNABAS_CONTEXT`, or `barnabas --context NAME`, chooses for one command.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.core.properties import parse_properties, render_properties
from barnabas.core.secret_names import is_secret_name

VARIABLE: Final = "BARNABAS_CONTEXT"
REGISTRY_PREFIXES: Final = ("schema.registry.", "basic.auth.")
"""Settings of the schema registry, which the clients of Kafka do not get."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_PATHS: Final = ("location", "file")
MASK: Final = "********"


class Contexts:
    """The contexts in a folder. Methods raise ValueError with a message for the user."""

    def __init__(self, folder: Path | None = None) -> None:
        """Without a folder: that of the user."""
        self._folder = folder or _folder()

    @property
    def names(self) -> list[str]:
        """The names of all contexts, in order."""
        return sorted(path.stem for path in (self._folder / "contexts").glob("*.properties"))

    @property
    def current(self) -> str | None:
        """The context that commands use: that of BARNABAS_CONTEXT, or of the last `use`."""
        if chosen := os.environ.get(VARIABLE):
            return chosen
        with contextlib.suppress(OSError):  # also a home that this user must not read, as in some containers
            return (self._folder / "context").read_text(encoding="utf-8").strip() or None
        return None

    def read(self, name: str) -> dict[str, str]:
        """The settings of a context."""
        path = self._path(name)
        try:
            return parse_properties(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            known = ", ".join(self.names)
            raise ValueError(
                f"There is no context {name!r}. "
                + (f"The contexts are: {known}." if known else "`barnabas context set NAME -b HOST:PORT` makes one.")
            ) from None
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error

    def write(self, name: str, settings: Mapping[str, str]) -> None:
        """Create or replace a context. Its file can be read by its owner only."""
        path = self._path(name)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(path, render_properties(settings))
        except OSError as error:
            raise ValueError(
                f"{path} cannot be written: {error.strerror}. Set BARNABAS_CONFIG_DIR to a folder that can."
            ) from error

    def use(self, name: str | None) -> None:
        """Let commands use this context, or none."""
        if name is None:
            (self._folder / "context").unlink(missing_ok=True)
            return
        self.read(name)
        _replace(self._folder / "context", name + "\n")

    def delete(self, name: str) -> None:
        """Delete a context. If commands use it, they use none afterwards."""
        self.read(name)
        self._path(name).unlink()
        if VARIABLE not in os.environ and self.current == name:
            self.use(None)

    def _path(self, name: str) -> Path:
        if _NAME.match(name) is None:
            raise ValueError(f"{name!r} is not the name of a context: use letters, digits, '.', '_' and '-'.")
        return self._folder / "contexts" / f"{name}.properties"


def _folder() -> Path:
    if given := os.environ.get("BARNABAS_CONFIG_DIR"):
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(base) if base else Path.home() / ".config") / "barnabas"
    except RuntimeError:  # a user without a home, as in some containers
        return Path("/nonexistent/barnabas")


def _replace(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)


def context_settings() -> dict[str, str]:
    """The settings of the context that commands use; empty without one. Raises ValueError."""
    contexts = Contexts()
    name = contexts.current
    return {} if name is None else contexts.read(name)


def masked(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings without secrets, for people."""
    return {name: MASK if is_secret_name(name) else value for name, value in settings.items()}


def with_absolute_paths(settings: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The settings of a file in which the paths of files are absolute, since commands run in any folder. A path may be
    relative to the folder in which the command runs, as for Kafka's clients, or to that of the file."""
    found = dict(settings)
    for name, value in settings.items():
        if name.endswith(_PATHS) and value and not Path(value).is_absolute():
            here = Path(value)
            beside = folder / value
            if here.exists() or beside.exists():
                found[name] = str((here if here.exists() else beside).resolve())
    return found
