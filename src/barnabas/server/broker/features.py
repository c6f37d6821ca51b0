"""Machine: which APIs the finalized features of the cluster disable (KIP-848, KIP-932).

ApiVersions lists a disabled API all the same, as in Kafka. Its requests get UNSUPPORTED_VERSION. Records that were
written while the feature was enabled are kept, and are used again when the feature is enabled again.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.metadata.features import GROUP_VERSION, SHARE_VERSION
from barnabas.server.metadata.ports import ImageView


def require_share_groups(metadata: ImageView) -> None:
    """Raises KafkaError UNSUPPORTED_VERSION while `share.version` is 0."""
    _require(metadata, SHARE_VERSION, "share groups")


def require_consumer_groups(metadata: ImageView) -> None:
    """Raises KafkaError UNSUPPORTED_VERSION while `group.version` is 0."""
    _require(metadata, GROUP_VERSION, "the consumer group protocol")


def _require(metadata: ImageView, feature: str, what: str) -> None:
    if metadata.image.features.level(feature) < 1:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The feature {feature} is 0, which disables {what}. Upgrade {feature} to 1.",
        )
