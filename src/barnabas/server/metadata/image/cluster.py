"""Value: the whole metadata of a cluster at one offset of the metadata log; immutable.

A reader can keep an image for as long as it needs, because an image never changes. `ClusterDelta` (`delta.py`) builds
the next image, which shares all unchanged parts with this one.
"""

from __future__ import annotations

from msgspec import Struct, field

from barnabas.protocol.security.credentials import ScramCredential
from barnabas.server.metadata.image.nodes import (
    BrokerImage,
    BrokersImage,
    ControllerImage,
    FeatureRange,
)
from barnabas.server.metadata.image.small import (
    AclImage,
    AclsImage,
    ConfigsImage,
    DelegationTokenImage,
    FeaturesImage,
    ProducerIdsImage,
    QuotasImage,
    ResourceType,
    ScramImage,
    TokensImage,
)
from barnabas.server.metadata.image.topics import LeaderRecoveryState, PartitionImage, TopicImage, TopicsImage

__all__ = [
    "AclImage",
    "AclsImage",
    "BrokerImage",
    "BrokersImage",
    "ClusterImage",
    "ConfigsImage",
    "ControllerImage",
    "DelegationTokenImage",
    "FeatureRange",
    "FeaturesImage",
    "LeaderRecoveryState",
    "MetadataProvenance",
    "PartitionImage",
    "ProducerIdsImage",
    "QuotasImage",
    "ResourceType",
    "ScramCredential",
    "ScramImage",
    "TokensImage",
    "TopicImage",
    "TopicsImage",
]


class MetadataProvenance(Struct, frozen=True):
    """The last metadata record an image contains."""

    offset: int = -1
    epoch: int = 0
    timestamp_ms: int = -1


class ClusterImage(Struct, frozen=True):
    """The metadata of the cluster. The first image is empty; `ClusterDelta` builds the next ones."""

    cluster_id: str = ""
    provenance: MetadataProvenance = field(default_factory=MetadataProvenance)
    features: FeaturesImage = field(default_factory=FeaturesImage)
    brokers: BrokersImage = field(default_factory=BrokersImage)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigsImage = field(default_factory=ConfigsImage)
    producer_ids: ProducerIdsImage = field(default_factory=ProducerIdsImage)
    acls: AclsImage = field(default_factory=AclsImage)
    scram: ScramImage = field(default_factory=ScramImage)
    quotas: QuotasImage = field(default_factory=QuotasImage)
    tokens: TokensImage = field(default_factory=TokensImage)

    @property
    def offset(self) -> int:
        """The offset of the last metadata record in the image; -1 if the image is empty."""
        return self.provenance.offset

    @property
    def leader_epoch(self) -> int:
        """The controller epoch of the last metadata record in the image."""
        return self.provenance.epoch

    def same_state_as(self, other: ClusterImage) -> bool:
        """Whether both images are equal, apart from their provenance."""
        return (
            all(
                getattr(self, part) == getattr(other, part)
                for part in ("brokers", "topics", "configs", "producer_ids", "acls", "scram", "quotas", "tokens")
            )
            and self.features.levels == other.features.levels
        )
