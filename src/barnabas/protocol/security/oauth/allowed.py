"""Machine: which URLs and files OAUTHBEARER may read (CVE-2025-27817).

The settings of a client may come from a person who must not make this process read any file or URL: from a request to
Connect's REST API, or from the options of a query. Therefore the list is not a setting of the client. It is in the
environment of the process, by Kafka's names, or by names that an environment can have:

    BARNABAS_SASL_OAUTHBEARER_ALLOWED_URLS=https://idp.example.com/token,file:///etc/barnabas/token
    KAFKA_OPTS="-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://idp.example.com/token"

As in Kafka 4, an empty list allows nothing, and a value must be in the list literally.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError

URLS: Final = "BARNABAS_SASL_OAUTHBEARER_ALLOWED_URLS"
FILES: Final = "BARNABAS_SASL_OAUTHBEARER_ALLOWED_FILES"
_PROPERTIES: Final = {
    URLS: "org.apache.kafka.sasl.oauthbearer.allowed.urls",
    FILES: "org.apache.kafka.sasl.oauthbearer.allowed.files",
}


class AllowedSources(Struct, frozen=True):
    """The two lists."""

    urls: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> AllowedSources:
        return cls(_read(environment, URLS), _read(environment, FILES))

    def check_url(self, setting: str, url: str) -> None:
        """Raises ConfigError."""
        if url not in self.urls:
            raise _not_allowed(setting, url, URLS)

    def check_file(self, setting: str, path: str) -> None:
        """Raises ConfigError."""
        if path not in self.files:
            raise _not_allowed(setting, path, FILES)


def _read(environment: Mapping[str, str], name: str) -> frozenset[str]:
    text = environment.get(name)
    if text is None:
        text = _java_properties(environment.get("KAFKA_OPTS", "")).get(_PROPERTIES[name], "")
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _java_properties(options: str) -> dict[str, str]:
    """The properties that `-Dname=value` sets."""
    try:
        words = shlex.split(options)
    except ValueError:  # a quotation that does not end
        words = options.split()
    pairs = (word.removeprefix("-D").partition("=") for word in words if word.startswith("-D"))
    return {name: value for name, _, value in pairs}


def _not_allowed(setting: str, value: str, variable: str) -> ConfigError:
    return ConfigError(
        f"{setting}={value} is not allowed. Add it to the environment variable {variable} of this process (a list with"
        f" commas), or to Kafka's property {_PROPERTIES[variable]} in KAFKA_OPTS."
    )
