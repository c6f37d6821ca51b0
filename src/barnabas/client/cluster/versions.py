"""Machine: which version of an API to speak with a broker: the highest that both sides know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.client.errors import UnsupportedApiError
from barnabas.protocol.wire.apis import APIS, ApiKey

if TYPE_CHECKING:
    from barnabas.protocol.wire.messages.api_versions import ApiVersionsResponse

VersionRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Versioned:
    """A request whose content depends on the version: `build(version)` makes it.

    `unstable` asks for a version that Kafka has not declared stable yet, where the broker offers it.
    """

    api_key: ApiKey
    build: Callable[[int], Any]
    unstable: bool = False


class BrokerVersions:
    """The API versions one broker advertises, and its finalized features."""

    def __init__(self, ranges: dict[int, VersionRange], features: dict[str, int] | None = None) -> None:
        self.ranges = ranges
        self.features = features or {}

    @classmethod
    def from_response(cls, response: ApiVersionsResponse) -> BrokerVersions:
        ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        features = {f.name: f.max_version_level for f in response.finalized_features}
        return cls(ranges, features)

    def choose(
        self, key: ApiKey, *, peer: str = "the broker", max_version: int | None = None, unstable: bool = False
    ) -> int:
        """The version to use: min of both maxima, not above `max_version`. Raises UnsupportedApiError."""
        api = APIS[key]
        theirs = self.ranges.get(int(key))
        if theirs is None:
            raise UnsupportedApiError(
                f"{api.name} is not served by {peer}. It may be an older broker, one that keeps the API behind a"
                " feature, or a listener that does not offer it."
            )
        highest = min(api.max_version - (1 if api.latest_version_unstable and not unstable else 0), theirs[1])
        if max_version is not None:
            highest = min(highest, max_version)
        lowest = max(api.min_version, theirs[0])
        if highest < lowest:
            raise UnsupportedApiError(
                f"{api.name}: {peer} serves versions {theirs[0]} to {theirs[1]}, this client speaks {api.min_version}"
                f" to {highest}. Upgrade the older side."
            )
        return highest

    def serves(self, key: ApiKey, version: int = 0) -> bool:
        """True when the broker serves `key` in `version` or a newer one."""
        theirs = self.ranges.get(int(key))
        return theirs is not None and theirs[1] >= version
