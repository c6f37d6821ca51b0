"""Value: the settings `mirror.*` of a link, with KIP-1279's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError


class LinkSettings(Struct, frozen=True):
    """The settings of a link. The name of each field is the name of the setting with underscores."""

    mirror_num_replica_fetchers: int = 1
    """The number of connections over which each broker fetches from a broker of the source."""
    mirror_metadata_refresh_interval_ms: int = 60_000
    mirror_fetch_wait_max_ms: int = 1_000
    mirror_fetch_max_bytes: int = 1 << 20
    """The most bytes of one partition in a response."""
    mirror_fetch_response_max_bytes: int = 10 << 20
    mirror_request_timeout_ms: int = 30_000


NAMES: Final = {name.replace("_", "."): name for name in LinkSettings.__struct_fields__}


def link_settings(texts: Mapping[str, str]) -> LinkSettings:
    """The settings given as text. Other names are left to others. Raises ConfigError for a value that is no number."""
    values = {}
    for name, text in texts.items():
        field = NAMES.get(name)
        if field is None:
            continue
        if not text.isdigit() or not int(text):
            raise ConfigError(f"{name}={text}: this setting of a link must be a positive number.")
        values[field] = int(text)
    return LinkSettings(**values)
