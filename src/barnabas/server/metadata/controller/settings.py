"""Value: what the controller knows besides the image: the node's static configuration and who is asking."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from barnabas.core.rng import Rng

MAX_PARTITIONS_PER_BATCH = 10_000
"""The most partitions one CreateTopics or CreatePartitions request may make (ReplicationControlManager)."""


class ControllerSettings(Struct, frozen=True):
    """The static part. `static_config` is the text of what the user set in server.properties or on the command line."""

    node_id: int = 0
    static_config: Mapping[str, str] = field(default_factory=dict)
    default_replication_factor: int = 1
    num_partitions: int = 1
    delete_topic_enable: bool = True
    session_timeout_ms: int = 9_000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    unclean_leader_election_interval_ms: int = 300_000


class DecideContext(Struct, frozen=True):
    """Time and chance for one decision, and the version of the request that asks for it."""

    now_ms: int
    rng: Rng
    settings: ControllerSettings
    version: int = 0
    live_brokers: frozenset[int] = frozenset()
    """Brokers that have sent heartbeats within `session_timeout_ms`, to this controller."""
    may_stop: Callable[[int], bool] = lambda _: True
    """Whether every active broker knows that this one, shutting down, leads nothing any more (`BrokerSessions`)."""
    kraft_version: int | None = None
    """Of the quorum; None where there is none."""
