"""Shell: Kafka's config providers: references to secrets in a configuration -> the secrets.

    ${file:/run/secrets/db.properties:password}     a key of a properties file   FileConfigProvider
    ${directory:/run/secrets:password}              the file of this name        DirectoryConfigProvider
    ${env:DB_PASSWORD}                              an environment variable      EnvVarConfigProvider

References are resolved where a secret is used: by the Connect worker that starts a connector, by the broker that
connects to the source of a link. Topics, responses and logs have the references only. The properties of that process
name its providers:

    config.providers=file,env
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/run/secrets,/etc/kafka/secrets       all paths if it is not set
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    config.providers.env.param.allowlist.pattern=LINK_.*                            all variables if it is not set
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
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
    """The providers that the properties of a process name."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigProviderError for a provider whose class is unknown."""
        names = [name.strip() for name in properties.get("config.providers", "").split(",") if name.strip()]
        self._providers = {name: _provider(name, properties) for name in names}

    def resolve(self, config: Mapping[str, str], *, is_strict: bool = False) -> dict[str, str]:
        """The configuration with its references replaced. Raises ConfigProviderError. A text of the form of a
        reference whose provider is not configured stays as it is, as in Connect; if `is_strict`, it is an error."""
        return {key: self._resolve_text(key, text, is_strict) for key, text in config.items()}

    def _resolve_text(self, key: str, text: str, is_strict: bool) -> str:
        return _REFERENCE.sub(lambda match: self._secret(key, match, is_strict), text)

    def _secret(self, key: str, match: re.Match[str], is_strict: bool) -> str:
        provider = self._providers.get(match[1])
        if provider is None:
            if is_strict:
                known = ", ".join(self._providers) or "none"
                raise ConfigProviderError(
                    f"{key}: the reference {match[0]} cannot be resolved: there is no config provider {match[1]!r}. "
                    f"Name it in config.providers (now: {known}), and its class in config.providers.{match[1]}.class."
                )
            return match[0]
        try:
            return provider(match[3] or "", match[4])
        except (OSError, ValueError, KeyError) as error:
            reason = getattr(error, "strerror", None) or (str(error.args[0]) if error.args else repr(error))
            raise ConfigProviderError(f"{key}: the reference {match[0]} cannot be resolved: {reason}") from error


def is_reference(text: str) -> bool:
    """Whether the whole text is one reference, and so has no secret in it."""
    return _REFERENCE.fullmatch(text) is not None


def _provider(name: str, properties: Mapping[str, str]) -> Provider:
    class_name = properties.get(f"config.providers.{name}.class", "").strip()
    params = f"config.providers.{name}.param."
    match class_name.rpartition(".")[2]:
        case "FileConfigProvider":
            return _FileProvider(params, properties).secret_in_file
        case "DirectoryConfigProvider":
            return _FileProvider(params, properties).secret_in_directory
        case "EnvVarConfigProvider":
            return _EnvironmentProvider(params, properties).secret
        case _:
            raise ConfigProviderError(
                f"config.providers.{name}.class must be one of FileConfigProvider, DirectoryConfigProvider, "
                f"EnvVarConfigProvider, got {class_name!r}"
            )


class _FileProvider:
    """FileConfigProvider and DirectoryConfigProvider, with `allowed.paths`."""

    def __init__(self, params: str, properties: Mapping[str, str]) -> None:
        self._setting = params + "allowed.paths"
        text = properties.get(self._setting, "")
        self._allowed = tuple(os.path.realpath(part.strip()) for part in text.split(",") if part.strip())

    def secret_in_file(self, path: str, key: str) -> str:
        values = parse_properties(self._read(path))
        if key not in values:
            raise KeyError(f"the file has no key {key}")
        return values[key]

    def secret_in_directory(self, path: str, key: str) -> str:
        if "/" in key or key in (".", ".."):
            raise ValueError("the key must be the name of a file in the directory")
        return self._read(os.path.join(path, key))  # noqa: PTH118 - a node does not import pathlib (0.6 MB)

    def _read(self, path: str) -> str:
        real = os.path.realpath(path)  # so that neither `..` nor a symbolic link leads out of an allowed path
        if self._allowed and not any(real == root or real.startswith(root.rstrip("/") + "/") for root in self._allowed):
            raise ValueError(f"{self._setting} does not allow this path")
        with open(real, "rb") as file:  # noqa: PTH123 - as above
            data = file.read(_FILE_BYTES_MAX + 1)
        if len(data) > _FILE_BYTES_MAX:
            raise ValueError(f"the file has more than {_FILE_BYTES_MAX} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError:  # its own text is the name of the codec only, and its cause has the bytes
            raise ValueError("the file is not text in UTF-8") from None


class _EnvironmentProvider:
    """EnvVarConfigProvider, with `allowlist.pattern`."""

    def __init__(self, params: str, properties: Mapping[str, str]) -> None:
        """Raises ConfigProviderError for a pattern that is no regular expression."""
        self._setting = params + "allowlist.pattern"
        text = properties.get(self._setting, "").strip() or ".*"
        try:
            self._allowed = re.compile(text, re.DOTALL)
        except re.error as error:
            raise ConfigProviderError(f"{self._setting}={text} is not a regular expression: {error}") from error

    def secret(self, path: str, key: str) -> str:
        if self._allowed.fullmatch(key) is None:
            raise KeyError(f"{self._setting} does not allow the environment variable {key}")
        if key not in os.environ:
            raise KeyError(f"there is no environment variable {key}")
        return os.environ[key]
