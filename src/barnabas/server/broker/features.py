"""Machine: which APIs the finalized features of the cluster switch off (KIP-848, KIP-932).

They stay in ApiVersions, as in Kafka; below the level that brought them, they are answered UNSUPPORTED_VERSION. What
was written while the level was higher is kept, and is there again when it is.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.broker.services import Services
from barnabas.server.metadata.features import GROUP_VERSION, SHARE_VERSION


def require_share_groups(services: Services) -> None:
    """Raises KafkaError UNSUPPORTED_VERSION while `share.version` is 0."""
    _require(services, SHARE_VERSION, "share groups")


def require_consumer_groups(services: Services) -> None:
    """Raises KafkaError UNSUPPORTED_VERSION while `group.version` is 0."""
    _require(services, GROUP_VERSION, "the consumer group protocol")


def _require(services: Services, feature: str, what: str) -> None:
    if services.metadata.image.features.level(feature) < 1:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"This cluster has {what} switched off: {feature} is 0. Upgrade that feature to 1 to use them.",
        )
