"""Every broker config that may change while a broker runs is applied, or a change of it is rejected."""

from __future__ import annotations

from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.configs.not_applied import NOT_APPLIED, STORES
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.persistent import PersistentMap
from barnabas.server.metadata.image.small import ConfigsImage, broker_resource, group_resource
from barnabas.server.node import typed_configs
from barnabas.server.node.adapters import ImageGroupConfigs

REBUILT = (
    *(typed_configs.BROKER, typed_configs.CLEANER, typed_configs.REPLICATION, typed_configs.CONNECTIONS),
    *(typed_configs.TIERING, typed_configs.REMOTE_READS, typed_configs.INDEX_CACHE),
)
"""The config classes that are built again from the newest image."""
OF_LISTENERS = {"listeners", "listener.security.protocol.map"}
"""Applied by `node/listening`, as `STORES`."""
OVERRIDES = {"max.connections.per.ip.overrides"}
"""A computed field of `typed_configs.CONNECTIONS`."""


def test_every_dynamic_broker_config_is_applied_or_rejected() -> None:
    dynamic = {key.name for key in BROKER_CONFIGS if key.is_dynamic}
    inherited = {name for table in (TOPIC_CONFIGS, GROUP_CONFIGS) for key in table for name in key.synonyms}
    applied = (
        inherited | OVERRIDES | STORES | OF_LISTENERS | {name for builder in REBUILT for name in builder.config_names}
    )
    assert sorted(dynamic & applied & NOT_APPLIED) == []
    assert sorted(dynamic - applied - NOT_APPLIED) == []
    only_for_one_mechanism = {name for name in NOT_APPLIED - dynamic if name.startswith(("sasl.", "connections."))}
    assert sorted(NOT_APPLIED - dynamic - only_for_one_mechanism) == []


def test_a_change_of_the_intervals_of_assignments_holds_for_groups_without_a_config_of_their_own() -> None:
    by_resource = {
        broker_resource(None): {
            "group.consumer.assignment.interval.ms": "700",
            "group.share.assignment.interval.ms": "800",
        },
        group_resource("own"): {"consumer.assignment.interval.ms": "900"},
    }
    image = ClusterImage(configs=ConfigsImage(PersistentMap.of(by_resource)))
    configs = ImageGroupConfigs(lambda: image, lambda image: ConfigView(image.configs, node_id=1))
    assert configs.consumer_assignment_interval_ms("g") == 700
    assert configs.share_assignment_interval_ms("g") == 800
    assert configs.consumer_assignment_interval_ms("own") == 900
