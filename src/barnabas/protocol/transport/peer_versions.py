"""Machine: the API versions that a peer serves, and the version to use: the highest that both sides know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError
from barnabas.protocol.wire.apis import APIS, ApiKey

if TYPE_CHECKING:
    from barnabas.protocol.wire.messages.api_versions import ApiVersionsResponse

VersionRange = tuple[int, int]
"""The lowest and the highest version, both included."""


class NoCommonVersionError(BarnabasError):
    """The peer and this side share no version of an API. The message is a sentence about the peer, without its name."""


class PeerVersions:
    """The version range of each API that the peer serves, and its finalized features (KIP-584)."""

    __slots__ = ("features", "ranges")

    def __init__(self, ranges: dict[int, VersionRange], features: dict[str, int] | None = None) -> None:
        self.ranges = ranges
        self.features = features or {}

    @classmethod
    def from_response(cls, response: ApiVersionsResponse) -> PeerVersions:
        ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        features = {f.name: f.max_version_level for f in response.finalized_features}
        return cls(ranges, features)

    def choose(self, key: ApiKey, *, max_version: int | None = None, unstable: bool = False) -> int:
        """The highest version of `key` that both sides know, but not above `max_version`.

        `unstable` allows a version that Kafka has not declared stable. Raises NoCommonVersionError.
        """
        api = APIS[key]
        theirs = self.ranges.get(int(key))
        if theirs is None:
            raise NoCommonVersionError(
                f"does not serve {api.name}. The peer may be of an older release, may serve {api.name} only with a"
                " feature that is not enabled, or may not offer it on this listener."
            )
        highest = min(api.max_version - (1 if api.latest_version_unstable and not unstable else 0), theirs[1])
        if max_version is not None:
            highest = min(highest, max_version)
        if highest < max(api.min_version, theirs[0]):
            ours = api.max_version if max_version is None else min(api.max_version, max_version)
            raise NoCommonVersionError(
                f"serves versions {theirs[0]} to {theirs[1]} of {api.name}, this side {api.min_version} to {ours}."
                " Upgrade the older side."
            )
        return highest

    def serves(self, key: ApiKey, version: int = 0) -> bool:
        """True if the peer serves `key` in `version` or a newer one."""
        theirs = self.ranges.get(int(key))
        return theirs is not None and theirs[1] >= version
