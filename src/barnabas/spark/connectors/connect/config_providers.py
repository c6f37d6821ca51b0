"""Shell: Connect's config providers: references to secrets in a configuration -> the secrets.

    ${file:/run/secrets/db.properties:password}     a key of a properties file   FileConfigProvider
    ${directory:/run/secrets:password}              the file of this name        DirectoryConfigProvider
    ${env:DB_PASSWORD}                              an environment variable      EnvVarConfigProvider

References are resolved when a connector is started, by the worker that starts it. Topics, REST responses and logs have
the references only. A provider must be named in the worker's `config.providers`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from barnabas.core.errors import BarnabasError
from barnabas.core.properties import parse_properties

_REFERENCE: Final = re.compile(r"\$\{([^}:]+):(([^}:]*):)?([^}]+)\}")
_FILE_BYTES_MAX: Final = 1 << 20
Provider = Callable[[str, str], str]
"""Returns the secret at a path and a key."""


class ConfigProviderError(BarnabasError, ValueError):
    """A reference cannot be resolved, or a provider is unknown."""


class ConfigProviders:
    """The providers that a worker's properties name."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigProviderError for a provider whose class is unknown."""
        names = [name.strip() for name in properties.get("config.providers", "").split(",") if name.strip()]
        self._providers = {name: _provider(name, properties) for name in names}

    def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """The configuration with its references replaced. Raises ConfigProviderError. A text of the form of a
        reference whose provider is not configured stays as it is, as in Connect.
        """
        return {key: self._resolve_text(key, text) for key, text in config.items()}

    def _resolve_text(self, key: str, text: str) -> str:
        return _REFERENCE.sub(lambda match: self._secret(key, match), text)

    def _secret(self, key: str, match: re.Match[str]) -> str:
        provider = self._providers.get(match[1])
        if provider is None:
            return match[0]
        try:
            return provider(match[3] or "", match[4])
        except (OSError, ValueError, KeyError) as error:
            reason = getattr(error, "strerror", None) or str(error) or repr(error)
            raise ConfigProviderError(f"{key}: the reference {match[0]} cannot be resolved: {reason}") from error


def _provider(name: str, properties: Mapping[str, str]) -> Provider:
    class_name = properties.get(f"config.providers.{name}.class", "").strip()
    known: Mapping[str, Provider] = {
        "FileConfigProvider": _from_file,
        "DirectoryConfigProvider": _from_directory,
        "EnvVarConfigProvider": _from_environment,
    }
    found = known.get(class_name.rpartition(".")[2])
    if found is None:
        raise ConfigProviderError(
            f"config.providers.{name}.class must be one of {', '.join(known)}, got {class_name!r}"
        )
    return found


def _from_file(path: str, key: str) -> str:
    values = parse_properties(_read(Path(path)))
    if key not in values:
        raise KeyError(f"the file has no key {key}")
    return values[key]


def _from_directory(path: str, key: str) -> str:
    if "/" in key or key in (".", ".."):
        raise ValueError("the key must be the name of a file in the directory")
    return _read(Path(path) / key)


def _from_environment(path: str, key: str) -> str:
    if key not in os.environ:
        raise KeyError(f"there is no environment variable {key}")
    return os.environ[key]


def _read(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(_FILE_BYTES_MAX + 1)
    if len(data) > _FILE_BYTES_MAX:
        raise ValueError(f"the file has more than {_FILE_BYTES_MAX} bytes")
    return data.decode()
