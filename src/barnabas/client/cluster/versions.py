"""Value: a request whose content depends on the version that the broker serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barnabas.protocol.wire.apis import ApiKey


@dataclass(frozen=True, slots=True)
class Versioned:
    """A request whose content depends on the version: `build(version)` makes it.

    `unstable` allows a version that Kafka has not declared stable yet, if the broker offers it.
    """

    api_key: ApiKey
    build: Callable[[int], Any]
    unstable: bool = False
