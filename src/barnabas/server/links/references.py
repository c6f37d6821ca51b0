"""Shell: replaces references to secrets in the client settings of a link, on the broker that connects to the source.

`__mirror_state` and responses have the references; only the memory of brokers has the secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from barnabas.core.config import ConfigError
from barnabas.core.config_providers import ConfigProviderError, ConfigProviders
from barnabas.server.links.fetching.values import LinkDefinition

Resolve = Callable[[LinkDefinition], LinkDefinition]
"""The definition with secrets in place of references, as they are now. Raises ConfigError."""


class LinkReferences:
    """Resolves references with the `config.providers` of this broker. Nothing is kept: a file that has changed, or a
    provider whose class is wrong, shows at the next use."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """`properties` are those of the broker's configuration."""
        self._properties = properties

    def resolve(self, definition: LinkDefinition) -> LinkDefinition:
        """Implements `Resolve`."""
        if not any("${" in text for text in definition.client.values()):
            return definition
        try:
            client = ConfigProviders(self._properties).resolve(definition.client, is_strict=True)
        except ConfigProviderError as error:
            raise ConfigError(f"{error} (on the broker that says this)") from error
        return replace(definition, client=client)
